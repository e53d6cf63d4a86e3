//! `vmcc metrics`: what the figures of a result are.

use crate::failure::{Exit, Failure};
use crate::table;
use crate::ui::Ui;
use serde_json::{Value, json};
use vmcc_metrics::catalogue::{self, Kind, Metric, Place, STATISTICS};
use vmcc_metrics::schema;

pub(crate) fn metrics(ui: &Ui) -> Result<Exit, Failure> {
    let entries: Vec<Value> = catalogue::all().iter().map(entry).collect();
    let document = json!({ "metrics": entries, "statistics": STATISTICS, "schema": schema::of_run() });
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
    }
    text.push_str(&format!(
        "* a distribution: append {}; its bare name means the mean",
        STATISTICS.map(|name| format!(".{name}")).join(", ")
    ));
    text
}

fn heading(place: Place) -> String {
    match place {
        Place::Run => "Of a run".to_owned(),
        Place::Flow => format!("Of a connection or transfer, in {}", place.pattern()),
        Place::Series => format!("Over time, in {}", place.pattern()),
        Place::Path | Place::Class | Place::Traffic => format!("{}.METRIC", place.pattern()),
    }
}
