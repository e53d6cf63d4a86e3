//! Requests that are answered late or never, and what limits the answers.

use crate::common::{get, run};

/// Two paths; each entry of traffic asks on the one of its name.
const TWO: &str = "title='t'\nduration='4s'\nwarmup='1s'\nhost={protocol='tcp',cc='reno'}\n\
    topology={kind='parallel-paths',paths=[{name='a'},{name='b'}],rate='20mbit',delay='2ms',buffer='60kB'}\n";

fn asks(path: &str, more: &str) -> String {
    format!(
        "[[traffic]]\nname='of-{path}'\nkind='request-response'\npath='{path}'\nrequest='1kB'\nresponse='10kB'\n{more}\n"
    )
}

fn down(at: &str) -> String {
    format!("[[event]]\nat='{at}'\nkind='link-down'\nlink='b'\n")
}

#[test]
fn requests_on_dead_paths_are_unfinished() {
    let text =
        [TWO, &asks("a", "requests=20\nstart='1.1s'"), &asks("b", "connections=3"), &down("2s")].concat();
    let output = run(&text, &[]);
    assert_eq!(output.metrics.unfinished, Some(3), "one of each connection");
    let open: Vec<_> =
        output.flows.iter().filter(|flow| flow.size_bytes.is_some() && !flow.completed).collect();
    assert_eq!(open.len(), 3);
    for flow in open {
        assert_eq!(
            (&*flow.traffic, flow.size_bytes, flow.delivered_bytes, flow.end_us),
            ("of-b", Some(10_000), 0, None)
        );
        assert!((1_900_000..2_010_000).contains(&flow.start_us) && flow.fct_us.is_none(), "{flow:?}");
    }
    let (completed, share) =
        (get(&output, "traffic.of-b.completed"), get(&output, "traffic.of-b.unfinished_share"));
    assert!(completed > 100.0 && share > 0.0 && share < 0.03, "{completed} {share}");
    assert_eq!(get(&output, "traffic.of-a.unfinished_share"), 0.0, "all twenty are answered");
}

/// The handshake never completes: the request waits from the start of its connection.
#[test]
fn requests_without_connection_are_unfinished() {
    let text = [TWO, &asks("b", "start='1.5s'"), &down("1.2s")].concat();
    let output = run(&text, &[]);
    assert_eq!((output.metrics.completed, output.metrics.unfinished), (Some(0), Some(1)));
    assert_eq!((get(&output, "established"), get(&output, "unfinished_share")), (0.0, 1.0));
}

#[test]
fn requests_that_were_answered_or_never_made_are_not_unfinished() {
    // A pause follows the only answer of the first.
    let text =
        [TWO, &asks("a", "start='1.1s'\nthink='30s'"), &asks("b", "requests=1\nstart='1.2s'")].concat();
    let output = run(&text, &[]);
    assert_eq!((output.metrics.completed, output.metrics.unfinished), (Some(2), Some(0)));
}

/// A request from before the window is not of it, as a transfer that began before is not.
#[test]
fn requests_count_by_when_they_were_made() {
    let text = [TWO, &asks("b", ""), &down("500ms")].concat();
    assert_eq!(run(&text, &[]).metrics.unfinished, Some(0));
    assert_eq!(run(&text, &["warmup=0s"]).metrics.unfinished, Some(1));
}
