//! `vmcc metrics`: what the figures of a result are.

use crate::failure::{Exit, Failure};
use crate::table;
use crate::ui::Ui;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use vmcc_metrics::catalogue::columns::{self, Column};
use vmcc_metrics::catalogue::{self, Kind, Metric, Place, STATISTICS};
use vmcc_metrics::schema;

pub(crate) fn metrics(ui: &Ui) -> Result<Exit, Failure> {
    let entries: Vec<Value> = catalogue::all().iter().map(entry).collect();
    let columns = [Place::Flow, Place::Series].map(|place| (place.pattern(), columns_of(place)));
    let document = json!({
        "metrics": entries,
        "columns": columns.into_iter().collect::<BTreeMap<_, _>>(),
        "statistics": STATISTICS,
        "schema": schema::of_run(),
    });
    ui.answer(&document, text);
    Ok(Exit::Done)
}

fn entry(metric: &Metric) -> Value {
    json!({
        "name": metric.name,
        "title": metric.title,
        "places": metric.places.iter().map(|place| place.pattern()).collect::<Vec<_>>(),
        "unit": metric.unit.symbol(),
        "kind": metric.kind.name(),
        "over": metric.span.name(),
        "engines": metric.engines.names(),
        "meaning": metric.meaning,
    })
}

fn text() -> String {
    let mut text = String::new();
    for place in Place::ALL {
        let mut table = table::plain(&["METRIC", "UNIT", "OVER", "ENGINES", "MEANING"]);
        for metric in catalogue::of(place) {
            let name = match metric.kind {
                Kind::Distribution => format!("{} *", metric.name),
                Kind::Count | Kind::Number => metric.name.to_owned(),
            };
            let (unit, over) = (metric.unit.symbol(), metric.span.name());
            table.add_row([name.as_str(), unit, over, &metric.engines.names().join(" "), metric.meaning]);
        }
        text.push_str(&format!("{}\n{}\n\n", heading(place), table::render(&table)));
        text.push_str(&keys(place).unwrap_or_default());
    }
    text.push_str(&format!(
        "* a distribution: append {}; its bare name means the mean",
        STATISTICS.map(|name| format!(".{name}")).join(", ")
    ));
    text
}

/// Columns of a file that are no metrics.
fn keys(place: Place) -> Option<String> {
    let mut table = table::plain(&["COLUMN", "UNIT", "MEANING"]);
    columns::keys(place).for_each(|column| _ = table.add_row([column.name, column.unit, column.meaning]));
    let any = columns::keys(place).next().is_some();
    any.then(|| format!("Further columns of {}\n{}\n\n", place.pattern(), table::render(&table)))
}

/// The same for programs, by file.
fn columns_of(place: Place) -> Value {
    let one =
        |column: &Column| json!({ "name": column.name, "unit": column.unit, "meaning": column.meaning });
    columns::keys(place).map(one).collect()
}

fn heading(place: Place) -> String {
    match place {
        Place::Run => "Of a run".to_owned(),
        Place::Flow => format!("Of a connection, transfer or request, in {}", place.pattern()),
        Place::Series => format!("Over time, in {}", place.pattern()),
        Place::Path | Place::Class | Place::Traffic | Place::Tier | Place::Size => {
            format!("{}.METRIC", place.pattern())
        }
    }
}
