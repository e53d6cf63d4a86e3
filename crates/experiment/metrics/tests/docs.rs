//! The documented metrics are those of the catalogue.

#[test]
fn metrics_page_matches_the_catalogue() {
    let page = include_str!("../../../../docs/reference/metrics.md");
    assert!(
        page == vmcc_metrics::markdown::page(),
        "docs/reference/metrics.md is not what the catalogue says: cargo run -p vmcc-metrics --example page > docs/reference/metrics.md"
    );
}
