//! Which keys a scenario has, and what a short key stands for.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::model::{Common, Host, Scenario, Tagged, Topology, TrafficKind, property_names};

/// The keys of the sections of one scenario, which depend on its kinds.
#[derive(Debug)]
pub(crate) struct Keys {
    top: BTreeSet<String>,
    host: BTreeSet<String>,
    topology: BTreeSet<String>,
    traffic: Vec<BTreeSet<String>>,
}

impl Keys {
    pub(crate) fn of(tree: &Map<String, Value>) -> Self {
        let kind = |value: Option<&Value>| {
            value.and_then(|t| t.get("kind")).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let mut topology = tag_properties::<Topology>(&kind(tree.get("topology")));
        topology.insert("kind".into());
        let entries = tree.get("traffic").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let traffic = entries.iter().map(|entry| traffic_keys(&kind(Some(entry)))).collect();
        Self { top: property_names::<Scenario>(), host: property_names::<Host>(), topology, traffic }
    }

    /// The full path of a key that may leave out its section; `None` if nothing has that key.
    ///
    /// Sections are tried in the order scenario, `host`, `topology`, `traffic`.
    pub(crate) fn canonical(&self, key: &str) -> Option<String> {
        let first = key.split('.').next().unwrap_or_default();
        if self.top.contains(first) {
            return Some(key.to_owned());
        }
        let section = if self.host.contains(first) {
            "host"
        } else if self.topology.contains(first) {
            "topology"
        } else if self.traffic.iter().any(|keys| keys.contains(first)) {
            "traffic"
        } else {
            return None;
        };
        Some(format!("{section}.{key}"))
    }

    /// Whether the `index`-th entry of traffic has a key.
    pub(crate) fn traffic_has(&self, index: usize, key: &str) -> bool {
        self.traffic.get(index).is_some_and(|keys| keys.contains(key))
    }

    /// Every key that may be given, short and full, for suggestions.
    pub(crate) fn all(&self) -> Vec<String> {
        let mut all: Vec<String> = self.top.iter().cloned().collect();
        all.extend(self.host.iter().flat_map(|k| [k.clone(), format!("host.{k}")]));
        all.extend(self.topology.iter().flat_map(|k| [k.clone(), format!("topology.{k}")]));
        let traffic: BTreeSet<&String> = self.traffic.iter().flatten().collect();
        all.extend(traffic.into_iter().flat_map(|k| [k.clone(), format!("traffic.{k}")]));
        all
    }
}

fn traffic_keys(kind: &str) -> BTreeSet<String> {
    let mut keys = property_names::<Common>();
    keys.extend(tag_properties::<TrafficKind>(kind));
    keys.insert("kind".into());
    keys
}

/// The keys of one variant of a tagged table.
fn tag_properties<E: Tagged>(tag: &str) -> BTreeSet<String> {
    let mut generator = schemars::SchemaGenerator::default();
    E::variants()
        .iter()
        .find(|variant| variant.tag == tag)
        .map(|variant| (variant.schema)(&mut generator).to_value())
        .and_then(|schema| schema.get("properties")?.as_object().map(|p| p.keys().cloned().collect()))
        .unwrap_or_default()
}
