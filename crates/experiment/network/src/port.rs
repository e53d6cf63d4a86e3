//! Properties of a link: queueing, loss.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use vmcc_config::Discipline;
use vmcc_units::{Bytes, Packets};

/// The queues of a port. Traffic chooses its queue with `class`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// In which order the queues are served.
    #[serde(default)]
    pub kind: Discipline,
    /// One weight per queue (`drr`), or one entry per queue (`priority`); empty with `fifo`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<u32>,
    /// Bytes of a queue of weight 1 per round. Absent: one MTU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantum: Option<Bytes>,
    /// Lending: a queue may use what the others leave idle (`drr`). If not, its weight's share is its ceiling.
    #[serde(default = "yes")]
    pub lending: bool,
}

fn yes() -> bool {
    true
}

impl Default for Queue {
    fn default() -> Self {
        Self { kind: Discipline::Fifo, weights: Vec::new(), quantum: None, lending: true }
    }
}

/// Packets lost on a link: a probability, or bursts of loss.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub struct Loss {
    /// The share of packets lost in the long run.
    pub probability: f64,
    /// The mean length of a burst of losses; 1 packet is independent loss.
    pub burst: Option<Packets>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LossTable {
    /// The share of packets lost in the long run.
    #[schemars(range(min = 0, max = 1))]
    probability: f64,
    /// The mean length of a burst of losses.
    #[serde(default)]
    burst: Option<Packets>,
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LossVisitor;
        impl<'de> Visitor<'de> for LossVisitor {
            type Value = Loss;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a loss probability such as 0.01, or { probability = 0.01, burst = \"5pkt\" }")
            }
            fn visit_f64<E>(self, probability: f64) -> Result<Loss, E> {
                Ok(Loss { probability, burst: None })
            }
            fn visit_u64<E>(self, probability: u64) -> Result<Loss, E> {
                Ok(Loss { probability: probability as f64, burst: None })
            }
            fn visit_i64<E>(self, probability: i64) -> Result<Loss, E> {
                Ok(Loss { probability: probability as f64, burst: None })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Loss, A::Error> {
                let table = LossTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Loss { probability: table.probability, burst: table.burst })
            }
        }
        deserializer.deserialize_any(LossVisitor)
    }
}

impl JsonSchema for Loss {
    fn schema_name() -> Cow<'static, str> {
        "Loss".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = LossTable::json_schema(generator);
        json_schema!({ "anyOf": [{ "type": "number", "minimum": 0, "maximum": 1 }, table] })
    }
}
