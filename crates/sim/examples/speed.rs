//! Engine speed, for profilers: `speed K SUBFLOWS WINDOW MICROSECONDS`.

use vmcc_sim::bench::ceiling;
use vmcc_sim::time::Span;

fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let [k, subflows, window, us] = args[..] else {
        eprintln!("usage: speed K SUBFLOWS WINDOW MICROSECONDS");
        std::process::exit(2);
    };
    let m = ceiling(k as u32, subflows as u32, window as u32, Span::from_us(us));
    println!("{:?}", m.totals);
    let mops = m.hops_per_cpu_s() / 1e6;
    println!("{:.3} CPU s, {mops:.2} M packet-hops/CPU s, {} MB", m.cpu_s, m.peak_rss_bytes >> 20);
}
