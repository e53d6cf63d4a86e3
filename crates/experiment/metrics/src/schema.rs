//! The part of the results' JSON schema that the catalogue decides: the figures of one run.

use crate::catalogue::{self, Kind, Metric, Place, STATISTICS};
use serde_json::{Map, Value, json};

/// JSON schema (2020-12) of the object `metrics` of a run in `summary.json`.
pub fn of_run() -> Value {
    let mut properties = figures(Place::Run, "");
    properties.insert("paths".to_owned(), json!({ "type": "array", "items": of_path() }));
    let mut patterns = Map::new();
    patterns.extend(keyed(Place::Traffic, "traffic"));
    patterns.extend(keyed(Place::Tier, "tier"));
    patterns.extend(keyed(Place::Size, "size"));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "metrics of a run",
        "type": "object",
        "properties": properties,
        "patternProperties": patterns,
        "additionalProperties": false,
        "$defs": { "distribution": distribution() },
    })
}

fn of_path() -> Value {
    let mut properties = figures(Place::Path, "");
    properties.insert("path".to_owned(), json!({ "type": "string", "description": "the path's name" }));
    json!({
        "type": "object",
        "required": ["path"],
        "properties": properties,
        "patternProperties": Value::Object(keyed(Place::Class, "class").collect()),
        "additionalProperties": false,
    })
}

fn figures(place: Place, prefix: &str) -> Map<String, Value> {
    catalogue::of(place).map(|metric| (format!("{prefix}{}", metric.name), one(metric))).collect()
}

/// Metrics whose key carries a name that the scenario gives.
fn keyed(place: Place, prefix: &'static str) -> impl Iterator<Item = (String, Value)> {
    // Counts stand there as plain numbers.
    catalogue::of(place).map(move |metric| {
        let schema = match metric.kind {
            Kind::Count => json!({ "type": "number", "description": metric.meaning, "minimum": 0 }),
            _ => one(metric),
        };
        (format!("^{prefix}\\..+\\.{}$", metric.name), schema)
    })
}

fn one(metric: &Metric) -> Value {
    let mut schema = match metric.kind {
        Kind::Count => json!({ "type": "integer", "minimum": 0 }),
        Kind::Number => json!({ "type": "number" }),
        Kind::Distribution => json!({ "$ref": "#/$defs/distribution" }),
    };
    schema["description"] = format!("{} [{}]", metric.meaning, metric.unit.symbol()).into();
    schema
}

fn distribution() -> Value {
    let figure = |name: &&str| ((*name).to_owned(), json!({ "type": "number" }));
    json!({
        "type": "object",
        "required": ["mean", "p50", "p99"],
        "properties": Value::Object(STATISTICS.iter().map(figure).collect()),
        "additionalProperties": false,
    })
}
