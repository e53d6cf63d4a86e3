//! Laws of the transport over the whole range of settings: packet sizes, rates, round trips, buffers, algorithms,
//! with and without delayed acknowledgments. `VMCC_TEST_SCALE` lengthens the runs.

use crate::common::{figures, plan, run_threads};
use vmcc_cc::Algorithm;

const DELAYED_ACKS: [&str; 2] = ["0s", "40ms"];

fn scale() -> f64 {
    std::env::var("VMCC_TEST_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(1.0)
}

fn algorithms() -> impl Iterator<Item = &'static str> {
    Algorithm::all().map(|a| a.name())
}

/// One path and how long slow start and a few round trips after it take.
struct Point {
    mtu_bytes: u64,
    rate_bps: f64,
    rtt_us: f64,
    ms: f64,
}

const fn point(mtu_bytes: u64, rate_bps: f64, rtt_us: f64, ms: f64) -> Point {
    Point { mtu_bytes, rate_bps, rtt_us, ms }
}

const POINTS: [Point; 9] = [
    point(256, 1e6, 500e3, 30e3),
    point(9000, 1e6, 500e3, 60e3),
    point(256, 1e9, 100.0, 60.0),
    point(1500, 1e8, 50e3, 2e3),
    point(6000, 1e9, 10e3, 400.0),
    point(6100, 1e9, 10e3, 400.0),
    point(9000, 1e10, 1e3, 60.0),
    point(1500, 4e11, 10.0, 1.0),
    point(9000, 4e11, 50.0, 3.0),
];

impl Point {
    /// A bandwidth-delay product, or what an initial window and its doubling need.
    fn buffer_bytes(&self) -> f64 {
        (self.rate_bps * self.rtt_us / 8e6).max(20.0 * self.mtu_bytes as f64).ceil()
    }

    fn scenario(&self, cc: &str, delayed_ack: &str) -> String {
        let buffer = self.buffer_bytes();
        let ms = self.ms * scale();
        format!(
            "title = \"one flow\"\nduration = \"{}us\"\nwarmup = \"{}us\"\ninterval = \"{}us\"\n\
             [host]\ncc = \"{cc}\"\nprotocol = \"tcp\"\nmtu = \"{}B\"\nreceive_buffer = \"1GiB\"\n\
             delayed_ack = \"{delayed_ack}\"\n\
             [topology]\nkind = \"parallel-paths\"\npaths = 1\nrate = \"{}kbit\"\ndelay = \"{}us\"\nbuffer = \"{buffer}B\"\n\
             [[traffic]]\nkind = \"bulk\"\n",
            (ms * 1e3) as u64,
            (ms * 500.0) as u64,
            (ms * 100.0) as u64,
            self.mtu_bytes,
            (self.rate_bps / 1e3) as u64,
            (self.rtt_us / 2.0) as u64,
        )
    }
}

/// RFC 5681 and what followed it: a lone flow with a buffer of a bandwidth-delay product fills its path, whatever its
/// packets' size. Goodput is at most the payload's share of the rate; at least half of that, since slow start's end
/// may fall within the measurement and a window grows slowly after it. A window that does not grow gives a few per cent.
#[test]
fn single_flow_fills_its_path() {
    let mut low = Vec::new();
    for cc in algorithms() {
        // wVegas leaves slow start at the first packet that queues, and then adds one a round trip.
        let least = if cc == "wvegas" { 0.2 } else { 0.5 };
        for (point, delayed_ack) in POINTS.iter().flat_map(|p| DELAYED_ACKS.map(|d| (p, d))) {
            let text = point.scenario(cc, delayed_ack);
            let goodput = figures(&run_threads(&plan(&text, &[]), 0, 1, 1))["goodput_bps"];
            let payload = (point.mtu_bytes - 52) as f64 / point.mtu_bytes as f64;
            let share = goodput / (point.rate_bps * payload);
            println!(
                "{cc} mtu {} rate {:e} rtt {} us, delayed {delayed_ack}: {share:.3}",
                point.mtu_bytes, point.rate_bps, point.rtt_us
            );
            // What waited in front for a hole to be filled, at most buffer and path, may come on top.
            let pipes = 2.0 * point.buffer_bytes() * 8e3 / (point.rate_bps * point.ms * scale() / 2.0);
            assert!(share < 1.01 + pipes, "more than the link carries: {share:.3}\n{text}");
            if share < least {
                low.push(format!("{cc} mtu {} rate {:e}: {share:.3}", point.mtu_bytes, point.rate_bps));
            }
        }
    }
    assert!(low.is_empty(), "{low:#?}");
}

/// RFC 3168 with windows of a few packets: what the mark makes of them, delayed acknowledgments must not.
/// 20 flows with two packets each on average share fairly (Jain's index) and fill the link.
#[test]
fn marked_flows_share_at_small_windows() {
    for (cc, delayed_ack) in ["reno", "cubic", "lia"].into_iter().flat_map(|c| DELAYED_ACKS.map(|d| (c, d))) {
        let ms = (1_500.0 * scale()) as u64;
        let text = format!(
            "title = \"marks\"\nduration = \"{ms}ms\"\nwarmup = \"500ms\"\n\
             [host]\ncc = \"{cc}\"\necn = true\nprotocol = \"tcp\"\ndelayed_ack = \"{delayed_ack}\"\n\
             [topology]\nkind = \"dumbbell\"\npairs = 40\nrate = \"1gbit\"\ndelay = \"50us\"\naccess_rate = \"1gbit\"\n\
             buffer = \"1000pkt\"\nmarking = {{ rule = \"threshold\", at = \"20pkt\" }}\n\
             [[traffic]]\nkind = \"bulk\"\nfrom = \"left*\"\nto = \"right*\"\n"
        );
        let output = run_threads(&plan(&text, &[]), 0, 1, 1);
        let rates: Vec<f64> = output.flows.iter().filter_map(|f| f.goodput_bps).collect();
        let sum: f64 = rates.iter().sum();
        let jain = sum * sum / (rates.len() as f64 * rates.iter().map(|r| r * r).sum::<f64>());
        println!("{cc}, delayed {delayed_ack}: Jain {jain:.3}, {:.0} Mbit/s", sum / 1e6);
        assert!(jain > 0.9, "{cc}, delayed {delayed_ack}: Jain {jain:.3}");
        assert!(sum > 0.85e9, "{cc}, delayed {delayed_ack}: {:.0} Mbit/s", sum / 1e6);
    }
}

/// A lone flow behind a buffer from one packet to four bandwidth-delay products (8 packets here). A buffer of `n`
/// packets is one of `n` times the packet size, since all packets are of that size. A window that halves when the path
/// overflows fills three quarters of it without a buffer and all of it with one of a product. wVegas wants ten packets
/// in the queue and oscillates where fewer fit.
#[test]
fn buffer_in_bytes_and_in_packets_is_equivalent() {
    for cc in algorithms() {
        let share = |buffer: &str| {
            let ms = (10_000.0 * scale()) as u64;
            let text = format!(
                "title = \"one flow\"\nduration = \"{ms}ms\"\nwarmup = \"2s\"\n\
                 [host]\ncc = \"{cc}\"\nprotocol = \"tcp\"\ndelayed_ack = \"0s\"\n\
                 [topology]\nkind = \"parallel-paths\"\npaths = 1\nrate = \"10mbit\"\ndelay = \"5ms\"\nbuffer = \"{buffer}\"\n\
                 [[traffic]]\nkind = \"bulk\"\n"
            );
            figures(&run_threads(&plan(&text, &[]), 0, 1, 1))["goodput_bps"] / (1e7 * 1448.0 / 1500.0)
        };
        for (packets, least) in [(1, 0.75), (2, 0.75), (4, 0.85), (8, 0.95), (32, 0.99)] {
            let least = if cc == "wvegas" && packets <= 4 { 0.5 } else { least };
            let (of_packets, of_bytes) =
                (share(&format!("{packets}pkt")), share(&format!("{}B", packets * 1500)));
            println!("{cc}, {packets} packets: {of_packets:.3}, in bytes {of_bytes:.3}");
            assert!((of_packets - of_bytes).abs() < 1e-9, "{cc}, {packets} packets");
            assert!((least..1.01).contains(&of_packets), "{cc}, {packets} packets: {of_packets:.3}");
        }
    }
}
