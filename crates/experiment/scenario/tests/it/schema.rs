//! The published schema: its text is reviewed, and it accepts and refuses what the loader does.

use serde_json::{Value, json};

#[test]
fn schema_matches_its_snapshot() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&vmcc_scenario::schema()).unwrap());
}

#[test]
fn schema_accepts_every_built_in_scenario() {
    let validator = jsonschema::validator_for(&vmcc_scenario::schema()).unwrap();
    for builtin in vmcc_scenario::builtin::all() {
        let value: Value = toml::from_str(builtin.text).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", builtin.name);
    }
}

#[test]
fn schema_refuses_unknown_keys_kinds_and_units() {
    let validator = jsonschema::validator_for(&vmcc_scenario::schema()).unwrap();
    let good: Value =
        toml::from_str(vmcc_scenario::builtin::find("examples/dumbbell").unwrap().text).unwrap();
    assert!(validator.is_valid(&good));
    let damaged = [
        ("/topology/kind", json!("dumbell")),
        ("/topology/rate", json!("1 parsec")),
        ("/topology/rate", json!(1)),
        ("/topology/extra", json!(1)),
        ("/traffic/0/size", json!("1kB")),
        ("/host/schedular", json!("ecf")),
        ("/durations", json!("1s")),
        ("/claim/0/text", json!("x")),
    ];
    for (pointer, value) in damaged {
        let mut bad = good.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        bad.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(key.into(), value);
        assert!(!validator.is_valid(&bad), "{pointer} was accepted");
    }
}
