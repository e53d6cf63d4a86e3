//! Observations of a connection's life, in scenarios with known results.

use crate::common::{get as figure, near, run};

const HEAD: &str = "title='t'\nduration='6s'\nwarmup='1s'\n";

/// The link is away for a second, and TCP asks again at times that double.
const CUT: &str = "[topology]\nkind='parallel-paths'\npaths=[{name='a'},{name='b'}]\nrate='20mbit'\ndelay='2ms'\nbuffer='60kB'\n\
    [[event]]\nkind='link-down'\nat='2s'\nlink='a'\n[[event]]\nkind='link-up'\nat='3s'\nlink='a'\n";

#[test]
fn stall_lasts_while_nothing_can_arrive() {
    let traffic = "[[traffic]]\nname='cut'\nkind='bulk'\nprotocol='tcp'\npath='a'\n\
                   [[traffic]]\nname='other'\nkind='bulk'\nprotocol='tcp'\npath='b'\n";
    let output = run(&format!("{HEAD}{CUT}{traffic}"), &[]);
    let stalled = figure(&output, "traffic.cut.stalled_us.max");
    // The path's two milliseconds are still on their way when it goes.
    assert!((998e3..2.2e6).contains(&stalled), "{stalled}");
    let other = figure(&output, "traffic.other.stalled_us.max");
    assert!(other < 200e3, "{other}");
    assert_eq!(figure(&output, "stalled_us.samples"), 2.0);
    // An independent witness: intervals in which the series says nothing arrived.
    let silent =
        |p: &vmcc_metrics::SeriesPoint<'_>| p.entity == "cut" && p.metric == "goodput_bps" && p.value == 0.0;
    let times: Vec<u64> = output.series.iter().filter(silent).map(|p| p.t_us).collect();
    let every = times.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap() as f64;
    near("silent intervals", times.len() as f64 * every, stalled, 0.2);
}

#[test]
fn final_stall_counts_and_application_pause_does_not() {
    let forever = CUT.split("[[event]]\nkind='link-up'").next().unwrap();
    let traffic = "[[traffic]]\nkind='bulk'\nprotocol='tcp'\npath='a'\n\
                   [[traffic]]\nname='asks'\nkind='request-response'\nprotocol='tcp'\npath='b'\n\
                   request='1kB'\nresponse='10kB'\nthink='100ms'\n";
    let output = run(&format!("{HEAD}{forever}{traffic}"), &[]);
    near("to the end of the run", figure(&output, "stalled_us.max"), 4e6, 0.01);
    assert_eq!(output.metrics.get("traffic.asks.stalled_us"), None);
}

#[test]
fn data_of_a_dead_path_are_reinjected_and_counted_as_blocking() {
    let traffic = "[[traffic]]\nkind='bulk'\n";
    let cut = run(&format!("{HEAD}{CUT}{traffic}"), &["host.cc='reno'"]);
    let whole =
        run(&format!("{HEAD}{}{traffic}", CUT.split("[[event]]").next().unwrap()), &["host.cc='reno'"]);
    assert!(figure(&cut, "reinjected_bytes") > 10_000.0, "{:?}", cut.metrics);
    assert!(figure(&cut, "held_bytes.max") > figure(&whole, "held_bytes.max"));
    assert_eq!(figure(&whole, "reinjected_bytes"), 0.0);
    let single = run(&format!("{HEAD}{CUT}[[traffic]]\nkind='bulk'\nprotocol='tcp'\npath='b'\n"), &[]);
    assert_eq!((figure(&single, "reinjected_bytes"), figure(&single, "subflows_opened")), (0.0, 1.0));
}

/// One segment of many is lost, once: what arrives until it is repeated waits, at most a window.
#[test]
fn data_behind_a_gap_are_counted() {
    let text = "[topology]\nkind='parallel-paths'\npaths=1\nrate='20mbit'\ndelay='10ms'\nbuffer='30MB'\n\
                [[traffic]]\nkind='bulk'\nprotocol='tcp'\n";
    let clean = run(&format!("{HEAD}{text}"), &["host.cc='reno'"]);
    assert_eq!((figure(&clean, "retransmits"), figure(&clean, "held_bytes.max")), (0.0, 0.0));
    let lossy = run(&format!("{HEAD}{text}"), &["host.cc='reno'", "topology.loss=0.001"]);
    let held = figure(&lossy, "held_bytes.max");
    let series = lossy.series.iter().filter(|p| p.metric == "cwnd_pkt" && p.entity.starts_with("flow"));
    let window = series.map(|p| p.value).fold(0.0, f64::max) * 1448.0;
    assert!(held > 3.0 * 1448.0 && held < 1.5 * window, "{held} held of {window}");
}

/// Jitter that reorders makes senders repeat what is only late; where order is kept, and where packets are lost, they are right.
#[test]
fn spurious_retransmissions_are_undone_and_counted() {
    let text = "[topology]\nkind='parallel-paths'\nrate='20mbit'\ndelay='10ms'\nbuffer='300kB'\n\
                paths=[{name='a',jitter='8ms'},{name='b'}]\n\
                [[traffic]]\nkind='bulk'\nprotocol='tcp'\npath='a'\n[[traffic]]\nkind='bulk'\nprotocol='tcp'\npath='b'\n";
    let of = |set: &[&str]| {
        let output = run(&format!("{HEAD}{text}"), &[&["host.cc='reno'"], set].concat());
        ["undone", "paths.a.undone", "paths.b.undone", "paths.a.retransmits"]
            .map(|name| figure(&output, name))
    };
    let [all, a, b, again] = of(&["topology.reorder=true"]);
    assert!(a >= 1.0 && a <= again && all == a + b, "{all} {a} {b} of {again}");
    assert_eq!(b, 0.0, "in order");
    assert_eq!(of(&[])[0], 0.0, "none overtakes another");
}

const SHARED: &str = "[topology]\nkind='parallel-paths'\npaths=1\nrate='100mbit'\ndelay='200us'\nbuffer='200kB'\n\
    marking={rule='threshold',at='30kB'}\n[host]\ncc='vmcc'\n";

#[test]
fn path_closed_for_a_shared_bottleneck_has_that_reason() {
    let traffic =
        "[[traffic]]\nkind='bulk'\nsubflows=2\n[[traffic]]\nname='single'\nkind='bulk'\nprotocol='tcp'\n";
    let set = ["host.params.vmcc.theta=1000", "host.params.vmcc.phi=1"];
    let output = run(&format!("{HEAD}{SHARED}{traffic}"), &set);
    assert_eq!(figure(&output, "subflows_opened"), 3.0, "{:?}", output.metrics);
    let closed = ["", "_guard", "_timeout"].map(|why| figure(&output, &format!("subflows_closed{why}")));
    assert_eq!(closed, [1.0, 1.0, 0.0]);
    assert_eq!(figure(&output, "traffic.single.subflows_closed"), 0.0);
}

/// The estimate is a moving average of the fraction of packets that were marked, so both have one mean.
#[test]
fn alpha_equals_the_fraction_of_marked_packets() {
    let traffic = "[[traffic]]\nkind='bulk'\nprotocol='tcp'\nconnections=2\n";
    for cc in ["dctcp", "vmcc", "reno"] {
        let output = run(&format!("{HEAD}{SHARED}{traffic}"), &[&format!("host.cc='{cc}'"), "warmup='0s'"]);
        let alphas = output.series.iter().filter(|p| p.metric == "alpha" && p.entity.starts_with("flow"));
        let alphas: Vec<f64> = alphas.filter(|p| p.t_us > 1_000_000).map(|p| p.value).collect();
        if cc == "reno" {
            assert!(alphas.is_empty(), "it has none");
            continue;
        }
        let bytes: u64 = output.flows.iter().map(|flow| flow.delivered_bytes).sum();
        let marked = figure(&output, "ce_marks") / (bytes as f64 / 1448.0);
        near(cc, alphas.iter().sum::<f64>() / alphas.len() as f64, marked, 0.25);
    }
}

#[test]
fn descheduled_times_match_the_events() {
    let text =
        "[topology]\nkind='parallel-paths'\npaths=1\nrate='20mbit'\ndelay='1ms'\n[[traffic]]\nkind='bulk'\n";
    let event = |at: &str, on: &str, off: &str, until: &str| {
        format!(
            "[[event]]\nkind='deschedule'\nhost='client'\nat='{at}'\non='{on}'\noff='{off}'\nuntil='{until}'\n"
        )
    };
    let never = run(&format!("{HEAD}{text}"), &[]);
    assert_eq!((never.metrics.get("vm_off_us"), never.metrics.get("vm_off_total_us")), (None, None));
    // Off for 3 ms ten times; and once for 500 ms, of which the run sees 200.
    let events = event("1s", "7ms", "3ms", "1.1s") + &event("5.3s", "500ms", "500ms", "9s");
    let output = run(&format!("{HEAD}{text}{events}"), &[]);
    near("in all", figure(&output, "vm_off_total_us"), 230e3, 1e-6);
    near("longest", figure(&output, "vm_off_us.max"), 200e3, 0.01);
    near("median", figure(&output, "vm_off_us.p50"), 3e3, 0.01);
    assert_eq!(figure(&output, "vm_off_us.samples"), 11.0);
}

/// Both links are away while the reader empties the buffer: the answer to the next question opens the window.
#[test]
fn outage_during_a_zero_window_ends_with_the_next_probe() {
    let head = "title='t'\nduration='60s'\n[host]\ncc='lia'\nreceive_buffer='20kB'\n\
                [topology]\nkind='parallel-paths'\npaths=[{name='a'},{name='b'}]\nrate='10mbit'\ndelay='10ms'\n\
                [[traffic]]\nkind='bulk'\nread_rate='30kbit'\n";
    let event =
        |kind: &str, at: &str, link: &str| format!("[[event]]\nkind='{kind}'\nat='{at}'\nlink='{link}'\n");
    for down in ["3s", "3.1s", "3.2s", "3.3s", "3.4s", "3.5s", "3.6s", "6.3s"] {
        let events: String =
            ["a", "b"].map(|link| event("link-down", down, link) + &event("link-up", "12s", link)).concat();
        for scheduler in ["lowest-rtt", "round-robin", "redundant", "blest", "ecf"] {
            let set = format!("host.scheduler='{scheduler}'");
            let output = run(&format!("{head}{events}"), &[&set]);
            let stalled = figure(&output, "stalled_us.max");
            assert!((5e6..25e6).contains(&stalled), "{scheduler}, down at {down}: {stalled}");
        }
    }
}

/// A stall ends with its transfer: time until later deliveries, its last segments among them, does not count.
#[test]
fn stall_ends_with_its_transfer() {
    let head = "title='t'\nduration='20s'\n[host]\ncc='reno'\nprotocol='tcp'\n\
                [topology]\nkind='parallel-paths'\npaths=[{name='a'}]\nrate='10mbit'\ndelay='10ms'\n\
                [[traffic]]\nkind='bulk'\nstop='3s'\n[[event]]\nkind='link-down'\nat='2.95s'\nlink='a'\n\
                [[event]]\nkind='link-up'\nlink='a'\n";
    let stalled = |up: &str| figure(&run(&format!("{head}at='{up}'\n"), &[]), "stalled_us.max");
    assert_eq!(stalled("12s"), stalled("19.99s"));
}

/// Probes whose timeout ends after the run are left out, so the share of lost ones does not depend on the timeout.
#[test]
fn long_timeout_does_not_hide_loss() {
    let text = "[topology]\nkind='parallel-paths'\npaths=[{name='a',loss=0.5,reverse={loss=0}}]\nrate='20mbit'\ndelay='5ms'\n\
                [[traffic]]\nkind='probe'\ninterval='1ms'\ntimeout='1s'\n";
    for (timeout, due) in [("20ms", 4980.0), ("4500ms", 500.0)] {
        let output = run(&format!("{HEAD}{text}"), &[&format!("timeout={timeout}")]);
        let loss = figure(&output, "probe_loss");
        assert!((loss - 0.5).abs() < 4.0 * (0.25_f64 / due).sqrt(), "{timeout}: {loss}");
    }
}
