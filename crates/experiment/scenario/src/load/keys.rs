//! Which keys a scenario has, and what a short key stands for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::model::{Common, Host, Scenario, Tagged, Topology, TrafficKind, property_names};

/// The keys of the sections of one scenario, which depend on its kinds.
#[derive(Debug)]
pub(crate) struct Keys {
    top: &'static BTreeSet<String>,
    host: &'static BTreeSet<String>,
    topology: BTreeSet<String>,
    /// Of each entry; those of one kind share a set.
    traffic: Vec<Arc<BTreeSet<String>>>,
}

impl Keys {
    pub(crate) fn of(tree: &Map<String, Value>) -> Self {
        let kind = |value: Option<&Value>| {
            value.and_then(|t| t.get("kind")).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let mut topology = tag_properties::<Topology>(&kind(tree.get("topology")));
        topology.insert("kind".into());
        let entries = tree.get("traffic").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut by_kind: BTreeMap<String, Arc<BTreeSet<String>>> = BTreeMap::new();
        let of_kind = |kind: String| match by_kind.get(&kind) {
            Some(keys) => keys.clone(),
            None => by_kind.entry(kind.clone()).or_insert(Arc::new(traffic_keys(&kind))).clone(),
        };
        let traffic = entries.iter().map(|entry| kind(Some(entry))).map(of_kind).collect();
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
        } else if self.kinds().any(|keys| keys.contains(first)) {
            "traffic"
        } else {
            return None;
        };
        Some(format!("{section}.{key}"))
    }

    /// The keys of entries of traffic, those of neighbours of one kind once.
    fn kinds(&self) -> impl Iterator<Item = &BTreeSet<String>> {
        self.traffic.chunk_by(Arc::ptr_eq).filter_map(|same| same.first()).map(Arc::as_ref)
    }

    /// True if the `index`-th entry of traffic has a key.
    pub(crate) fn traffic_has(&self, index: usize, key: &str) -> bool {
        self.traffic.get(index).is_some_and(|keys| keys.contains(key))
    }

    /// Every key that may be given, short and full, for suggestions.
    pub(crate) fn all(&self) -> Vec<String> {
        let mut all: Vec<String> = self.top.iter().cloned().collect();
        all.extend(self.host.iter().flat_map(|k| [k.clone(), format!("host.{k}")]));
        all.extend(self.topology.iter().flat_map(|k| [k.clone(), format!("topology.{k}")]));
        let traffic: BTreeSet<&String> = self.kinds().flatten().collect();
        all.extend(traffic.into_iter().flat_map(|k| [k.clone(), format!("traffic.{k}")]));
        all
    }
}

fn traffic_keys(kind: &str) -> BTreeSet<String> {
    let mut keys = property_names::<Common>().clone();
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
