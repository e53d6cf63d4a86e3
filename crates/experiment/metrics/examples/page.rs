//! Prints `docs/reference/metrics.md`: `cargo run -p vmcc-metrics --example page > docs/reference/metrics.md`.

fn main() {
    print!("{}", vmcc_metrics::markdown::page());
}
