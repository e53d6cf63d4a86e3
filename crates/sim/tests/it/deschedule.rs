//! Senders whose machine is off for three of four time slices: what `awake` has of its share, and that it is LIA otherwise; the same of
//! `vmcc_awake` and vMCC at queues that mark.

use crate::common::{figures, run};

const PATHS: &str = "title='t'\nduration='24s'\nwarmup='4s'\n[host]\ncc='lia'\n[topology]\nkind='parallel-paths'\n\
                     paths=[{name='a'},{name='b'}]\nrate='100mbit'\ndelay='5ms'\nbuffer='20pkt'\n[[traffic]]\nkind='bulk'\n";

/// As vMCC needs it.
const MARKING: &str = "topology.marking={rule='threshold',at='10pkt'}";

fn asleep(slice_ms: u32) -> String {
    let off_ms = 3 * slice_ms;
    format!(
        "{PATHS}[[event]]\nat='0s'\nkind='deschedule'\nhost='client'\non='{slice_ms}ms'\noff='{off_ms}ms'\n"
    )
}

fn goodput(text: &str, set: &[&str]) -> f64 {
    figures(&run(text, set))["goodput_bps"]
}

/// The window that fills these paths does not fit into their queues: as one burst, LIA's is lost at every wake-up.
#[test]
fn awake_gets_its_share_where_the_window_exceeds_the_queue() {
    let share = goodput(PATHS, &[]) / 4.0;
    for slice_ms in [30, 120, 480] {
        let text = asleep(slice_ms);
        let [lia, awake] = ["lia", "awake"].map(|cc| goodput(&text, &[&format!("host.cc='{cc}'")]));
        assert!(lia < 0.5 * share, "{slice_ms} ms: LIA has {:.2} of its share", lia / share);
        assert!(awake > 0.95 * share, "{slice_ms} ms: awake has {:.2} of its share", awake / share);
    }
}

#[test]
fn vmcc_awake_gets_its_share_where_the_window_exceeds_the_queue() {
    // Never off it fills both paths. For that a window needs a hundred round trips from half on, four seconds of these.
    let longer = |text: &str| text.replace("duration='24s'\nwarmup='4s'", "duration='70s'\nwarmup='30s'");
    let share = goodput(&longer(PATHS), &["host.cc='vmcc'", MARKING]) / 4.0;
    for slice_ms in [30, 120, 480] {
        let text = longer(&asleep(slice_ms));
        let [vmcc, awake] =
            ["vmcc", "vmcc_awake"].map(|cc| goodput(&text, &[&format!("host.cc='{cc}'"), MARKING]));
        println!("{slice_ms} ms: vMCC has {:.2} of its share, vmcc_awake {:.2}", vmcc / share, awake / share);
        assert!(vmcc < 0.8 * share, "{slice_ms} ms: vMCC has {:.2} of its share", vmcc / share);
        assert!(awake > 0.95 * share, "{slice_ms} ms: vmcc_awake has {:.2} of its share", awake / share);
    }
}

/// The transport paces by window over sRTT, in which the sleep is; the algorithm says better. Acknowledgments carry no clock there.
#[test]
fn awake_paces_packets_over_quic() {
    let shorter = |text: &str| text.replace("duration='24s'", "duration='10s'");
    let [lia, awake] = ["lia", "awake"]
        .map(|cc| goodput(&shorter(&asleep(30)), &[&format!("host.cc='{cc}'"), "host.protocol='quic'"]));
    assert!(awake > 2.0 * lia, "{awake} and {lia}");
}

/// Discarding samples is not enough.
#[test]
fn share_of_awake_depends_on_pacing() {
    let burst = goodput(&asleep(30), &["host.cc='awake'", "host.params.awake.pace='off'"]);
    assert!(burst < 0.5 * goodput(&asleep(30), &["host.cc='awake'"]), "{burst}");
}

/// Queues of forty times the least round trip, losses, a peer that sleeps: a host that is not descheduled itself detects nothing.
#[test]
fn awake_equals_lia_without_descheduling() {
    let queue = ["topology.delay='250us'", "topology.buffer='160pkt'"];
    let losses = ["topology.delay='250us'", "topology.loss=0.01"];
    let peer = asleep(30).replace("host='client'", "host='server'");
    for (text, set) in [(PATHS, &queue[..]), (PATHS, &losses), (&peer, &queue)] {
        let with = |cc: &str| goodput(text, &[set, &[cc]].concat());
        assert_eq!(with("host.cc='awake'"), with("host.cc='lia'"), "{set:?}");
    }
}

/// Its detection of shared bottlenecks with it.
#[test]
fn vmcc_awake_equals_vmcc_without_descheduling() {
    let queue = ["topology.delay='250us'", "topology.buffer='160pkt'", MARKING];
    let losses = ["topology.delay='250us'", "topology.loss=0.01", MARKING];
    let peer = asleep(30).replace("host='client'", "host='server'");
    for (text, set) in [(PATHS, &queue[..]), (PATHS, &losses), (&peer, &queue)] {
        let with = |cc: &str| goodput(text, &[set, &[cc]].concat());
        assert_eq!(with("host.cc='vmcc_awake'"), with("host.cc='vmcc'"), "{set:?}");
    }
}

/// A host whose on periods are shorter than a round trip does not pace the backlog that it could not send before it is off again.
#[test]
fn awake_is_no_worse_than_lia_in_short_runs() {
    for (on_ms, off_ms) in [(2, 49), (2, 200), (3, 19)] {
        // One seed: timeouts after times off of a second decide what 20 s carry.
        let text = asleep(30)
            .replace("duration='24s'", "duration='204s'")
            .replace("100mbit", "20mbit")
            .replace("on='30ms'\noff='90ms'", &format!("on='{on_ms}ms'\noff='{off_ms}ms'\nrandom=true"));
        let [lia, awake] = ["lia", "awake"].map(|cc| goodput(&text, &[&format!("host.cc='{cc}'")]));
        assert!(awake > 0.9 * lia, "{on_ms} of {off_ms} ms: {awake} and {lia}");
    }
}
