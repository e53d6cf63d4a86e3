//! The catalogue as the page `docs/reference/metrics.md`.

use crate::catalogue::{self, Metric, Place, columns};
use std::fmt::Write;

const HEAD: &str = "\
# Metrics

Every metric, and the engines that measure it. The page is made from the catalogue in `crates/experiment/metrics`; `vmcc metrics` prints the same.

- `kernel` means this host's kernel (`--engine kernel`) and a guest's (`--engine guest`).
- Metrics over the *window* leave out the warm-up, those over the *run* do not.
- *Measured* traffic is all that is not `competing`.
- A distribution has `mean`, `p50`, `p99`, `p999` (99.9 %), `min`, `max` and `samples`. Percentiles interpolate between the two nearest ranks; those of RTTs \
where every sample counts are within 1 % of one.
- Sizes of transfers and requests have five ranges: `up_to_10kB`, `up_to_100kB`, `up_to_1MB`, `up_to_10MB` and `above_10MB`. The lower ones do \
not count in the higher ones.
- A metric that an engine cannot measure is absent, never zero.
- `slowdown` divides by `ideal_us`, a lower bound without slow start, so that of a transfer without competition can exceed 1. \
Code: `crates/experiment/network/src/unloaded.rs`.
- `goodput_bps` divides by the whole window, of an entry by its time from `start` to `stop`, also where transfers end early: 10 MB that arrive in the first second of a \
window of 20 s are 4 Mbit/s. Compare finite transfers by `fct_us` or `flow_goodput_bps`, which count their own time.
";

/// Before the columns that are no metrics.
const KEYS: &str = "\
Each row has these columns and one `set_<key>` for each swept key, in whose name every character but letters, digits and `_` is `_`. \
The file holds unit and meaning of each column under the key `column.<name>` of its metadata.

| column | unit | meaning |
|---|---|---|
";

/// Before the metrics of a file, which are columns of one and rows of the other.
const FLOW_METRICS: &str = "\nMetrics, each in a column:\n\n";
const SERIES_METRICS: &str = "\nMetrics, each in rows of its own:\n\n";

/// The whole page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for place in Place::ALL {
        let _ = write!(page, "\n## {}\n\n", title(place));
        keys(place, &mut page);
        page.push_str("| metric | unit | over | engines | meaning |\n|---|---|---|---|---|\n");
        catalogue::of(place).for_each(|metric| page.push_str(&row(metric)));
    }
    page
}

/// Columns of a file that are no metrics.
fn keys(place: Place, page: &mut String) {
    let metrics = match place {
        Place::Flow => FLOW_METRICS,
        Place::Series => SERIES_METRICS,
        _ => return,
    };
    page.push_str(KEYS);
    for column in columns::keys(place) {
        let _ = writeln!(page, "| `{}` | {} | {} |", column.name, column.unit, column.meaning);
    }
    page.push_str(metrics);
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
        Place::Flow => "Of a connection, transfer or request: `flows.parquet`".to_owned(),
        Place::Series => "Over time: `series.parquet`, by entity".to_owned(),
        named => format!("Of `{}`: `{}.NAME`", named.pattern(), named.pattern()),
    }
}
