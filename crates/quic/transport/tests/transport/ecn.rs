//! ECN marks, false and true ones.

use crate::multipath::{connected, shaped};
use crate::net::{Link, Transfer};
use vmcc_transport::Config;
use vmcc_units::time::Span;

const RATE: u64 = 80_000_000;

fn download(link: Link, bytes: u64) -> (f64, bool) {
    let (mut net, client, server) = connected(&[link], &Config::default());
    let took = Transfer::down(&mut net, client, server, bytes).run(&mut net, Span::from_secs(300));
    let ecn = net.connection(1, server).paths().all(|path| path.ecn);
    (bytes as f64 * 8.0 / took.secs_f64(), ecn)
}

#[test]
fn path_that_marks_every_packet_is_used_without_ecn() {
    for delay in [1, 10, 40] {
        let link = Link { queue: 500_000, ..shaped(RATE, delay) };
        let (control, ecn) = download(link, 40_000_000);
        assert!(ecn, "no marks: ECN stays");
        let (rate, ecn) = download(Link { marks_all: true, ..link }, 40_000_000);
        assert!(!ecn && rate > 0.6 * control, "{delay} ms: {rate:.0} of {control:.0} bit/s");
    }
}

/// A queue above its limits, which others fill: packets that are not ECN-capable are lost there.
#[test]
fn path_that_marks_every_packet_and_drops_others_keeps_ecn() {
    let link = Link { queue: 500_000, marks_all: true, loss_not_ect: 300, ..shaped(RATE, 10) };
    let (rate, ecn) = download(link, 3_000_000);
    assert!(ecn && rate > 0.5e6, "{rate:.0} bit/s");
}

#[test]
fn marks_above_a_threshold_keep_ecn() {
    for mark_above in [3_000, 30_000] {
        let (rate, ecn) = download(Link { mark_above, queue: 500_000, ..shaped(RATE, 10) }, 20_000_000);
        assert!(ecn && rate > 0.4 * RATE as f64, "{mark_above} bytes: {rate:.0} bit/s");
    }
}
