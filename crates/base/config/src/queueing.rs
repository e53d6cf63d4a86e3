//! Marking rules and queueing disciplines: keys shared by scenarios, ports and the agent.

use crate::tagged;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use vmcc_units::{Nanos, Threshold};

/// Rule by which a queue marks packets with ECN's Congestion Experienced.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
#[serde(tag = "rule", rename_all = "kebab-case")]
pub enum Marking {
    /// Never.
    #[default]
    None,
    /// Above a queue length (DCTCP, SIGCOMM 2010).
    Threshold(ThresholdRule),
    /// Random Early Detection with ECN (Floyd and Jacobson, 1993; RFC 3168).
    Red(RedRule),
    /// A threshold per service queue from its share of the port (MQ-ECN, NSDI 2016).
    MqEcn(LambdaRule),
    /// By the time a packet waited (TCN, CoNEXT 2016).
    Tcn(LambdaRule),
}

/// No settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Empty {}

/// The settings of rule `threshold`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThresholdRule {
    /// The queue length above which every ECN-capable packet is marked.
    pub at: Threshold,
}

/// The settings of rule `red`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedRule {
    /// The average queue length at which marking starts.
    pub min: Threshold,
    /// The average queue length at which every packet is marked.
    pub max: Threshold,
    /// The marking probability just below `max`.
    #[serde(default = "default_probability")]
    #[schemars(range(min = 0, max = 1))]
    pub probability: f64,
    /// The weight of the newest sample in the average queue length.
    #[serde(default = "default_weight")]
    #[schemars(range(min = 0, max = 1))]
    pub weight: f64,
}

fn default_probability() -> f64 {
    0.1
}

fn default_weight() -> f64 {
    0.002
}

/// The settings of rules `mq-ecn` and `tcn`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LambdaRule {
    /// The marking factor: the threshold is capacity x RTT x lambda (in time: RTT x lambda).
    #[serde(default = "default_lambda")]
    #[schemars(range(min = 0))]
    pub lambda: f64,
    /// The RTT of the rule. Absent: the topology's base RTT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Nanos>,
}

fn default_lambda() -> f64 {
    1.0
}

/// Only for reading: `none` has no settings of its own.
enum MarkingTable {
    None(Empty),
    Threshold(ThresholdRule),
    Red(RedRule),
    MqEcn(LambdaRule),
    Tcn(LambdaRule),
}

tagged!(MarkingTable, "rule", "a marking rule", {
    "none" => None(Empty),
    "threshold" => Threshold(ThresholdRule),
    "red" => Red(RedRule),
    "mq-ecn" => MqEcn(LambdaRule),
    "tcn" => Tcn(LambdaRule),
});

impl<'de> Deserialize<'de> for Marking {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match MarkingTable::deserialize(deserializer)? {
            MarkingTable::None(Empty {}) => Self::None,
            MarkingTable::Threshold(rule) => Self::Threshold(rule),
            MarkingTable::Red(rule) => Self::Red(rule),
            MarkingTable::MqEcn(rule) => Self::MqEcn(rule),
            MarkingTable::Tcn(rule) => Self::Tcn(rule),
        })
    }
}

impl JsonSchema for Marking {
    fn schema_name() -> Cow<'static, str> {
        "Marking".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        MarkingTable::json_schema(generator)
    }
}

/// In which order a port serves its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// One queue, first in first out.
    #[default]
    Fifo,
    /// Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) over weighted queues.
    Drr,
    /// Strict priority: queue 0 first.
    Priority,
}
