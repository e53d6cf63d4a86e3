//! The catalogue as the page `docs/reference/metrics.md`.

use crate::catalogue::{self, Metric, Place};
use std::fmt::Write;

const HEAD: &str = "\
# Metrics

Each figure, on every engine that has it. The page is made from the catalogue in `crates/experiment/metrics`; `vmcc metrics` prints the same.

- `kernel` means this host's kernel (`--engine kernel`) and a guest's (`--engine guest`).
- Figures of a *window* leave out the warm-up, those of a *run* do not.
- *Measured* traffic is all that is not `competing`.
- A distribution has `mean`, `p50`, `p99`, `min`, `max` and `samples`. Percentiles interpolate between the two nearest ranks; those of RTTs \
where every sample counts are within 1 % of one.
- A figure that a source cannot tell is absent, never zero.
- `goodput_bps` divides by the whole window, of an entry by its time from `start` to `stop`, also where transfers end early: 10 MB that arrive in the first second of a \
window of 20 s are 4 Mbit/s. Compare finite transfers by `fct_us` or `flow_goodput_bps`, which count their own time.
";

/// Columns of `flows.parquet` that are no metrics.
const FLOW_KEYS: &str = "\
Beside these, each row has `flow` (its number in the run), `traffic`, `from`, `to`, `cc`, `start_us`, `end_us` (null: open at the end), \
`size_bytes` (null: no end), `completed` (a sized transfer that ended) and `measured` (the figures of `summary.json` count it).

";

/// The whole page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for place in Place::ALL {
        let _ = write!(page, "\n## {}\n\n", title(place));
        if place == Place::Flow {
            page.push_str(FLOW_KEYS);
        }
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
