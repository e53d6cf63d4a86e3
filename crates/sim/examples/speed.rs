//! One speed case, for profilers: `speed CASE [THREADS [RUNS [MICROSECONDS]]]`.

use vmcc_sim::bench::{Case, run};
use vmcc_sim::time::Span;

fn main() -> Result<(), vmcc_sim::bench::BenchError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: u64| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let mut case = Case::by_name(args.first().map_or("dctcp-k8", String::as_str))?;
    if args.len() > 3 {
        case.duration = Span::from_us(number(3, 1000));
    }
    for _ in 0..number(2, 1) {
        let m = run(&case, number(1, 1) as u32)?;
        println!(
            "{} hops {} events {} timers {} cpu_s {:.3} wall_s {:.3} Mhops/cpu_s {:.2} MB {} utilization {:.3} drops {} marks {}",
            case.name,
            m.totals.packet_hops,
            m.totals.events,
            m.totals.timer_events,
            m.cpu_s,
            m.wall_s,
            m.hops_per_cpu_s() / 1e6,
            m.peak_rss_bytes >> 20,
            m.utilization.unwrap_or(f64::NAN),
            m.totals.dropped,
            m.totals.marks,
        );
    }
    Ok(())
}
