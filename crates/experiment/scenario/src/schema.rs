//! The JSON schema of the language.

use schemars::SchemaGenerator;
use serde_json::{Value, json};
use vmcc_config::sorted;

use crate::model::{ClaimSpec, Scenario};

/// The JSON schema of a scenario file.
pub fn schema() -> Value {
    let mut generator = SchemaGenerator::default();
    let claim = generator.subschema_for::<ClaimSpec>().to_value();
    let mut root = generator.into_root_schema_for::<Scenario>().to_value();
    if let Some(object) = root.as_object_mut() {
        object.insert("title".into(), "vmcc scenario".into());
        if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
            properties.insert("sweep".into(), sweep());
            properties.insert("scale".into(), scale());
            properties.insert(
                "claim".into(),
                json!({ "type": "array", "items": claim, "description": "Expectations over the results." }),
            );
        }
    }
    sorted(root)
}

fn sweep() -> Value {
    json!({
        "description": "Values to vary. The key of a value of the scenario (its section may be left out where no \
            earlier section has that key: host, topology, traffic) with a list of values; or a new name with a list of \
            tables, each a `name` and overrides. Every combination is one case.",
        "type": "object",
        "additionalProperties": { "anyOf": [
            { "type": "array", "minItems": 1 },
            { "type": "object" },
        ] },
    })
}

fn scale() -> Value {
    let one = json!({
        "type": "object",
        "properties": { "only_claimed": {
            "description": "Whether cases are left out that no claim looks at; not where `--set` chooses among the values of an axis.",
            "type": "boolean",
        } },
    });
    json!({
        "description": "Overrides for `--scale small` (one small machine) and `--scale quick` (a look at the result, soon).",
        "type": "object",
        "properties": { "small": one, "quick": one },
        "additionalProperties": false,
    })
}
