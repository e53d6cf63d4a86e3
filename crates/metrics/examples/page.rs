//! Prints `docs/metrics.md`: `cargo run -p vmcc-metrics --example page > docs/metrics.md`.

fn main() {
    print!("{}", vmcc_metrics::markdown::page());
}
