//! The catalogue as the page `docs/metrics.md`.

use crate::catalogue::{self, Metric, Place};
use std::fmt::Write;

const HEAD: &str = "\
# Metrics

What each figure is, on every engine that has it; made from the catalogue in `crates/metrics`, and the same as `vmcc metrics`.
`kernel` means this host's kernel (`--engine kernel`) and a guest's (`--engine guest`). Figures of a *window* leave out the
warm-up, those of a *run* do not. A distribution has `mean`, `p50`, `p99`, `min`, `max` and `samples`; percentiles
interpolate between the two nearest ranks, but those of RTTs where every sample counts are within 1 % of one. What a
source could not tell is absent, never zero. *Measured* traffic is all that is not `competing`.
";

/// The whole page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for place in Place::ALL {
        let _ = write!(page, "\n## {}\n\n", title(place));
        page.push_str("| metric | unit | over | engines | meaning |\n|---|---|---|---|---|\n");
        catalogue::of(place).for_each(|metric| page.push_str(&row(metric)));
    }
    page
}

fn row(metric: &Metric) -> String {
    format!(
        "| `{}`{} | {} | {} | {} | {} |\n",
        metric.name,
        if metric.kind == catalogue::Kind::Distribution { " (distribution)" } else { "" },
        metric.unit.symbol(),
        metric.span.name(),
        metric.engines.names().join(", "),
        metric.meaning.replace('<', "&lt;"),
    )
}

fn title(place: Place) -> String {
    match place {
        Place::Run => "Of a run: `NAME`".to_owned(),
        Place::Flow => "Of a connection or transfer: a column of `flows.parquet`".to_owned(),
        Place::Series => "Over time: `series.parquet`, by entity".to_owned(),
        named => format!("Of `{}`: `{}.NAME`", named.pattern(), named.pattern()),
    }
}
