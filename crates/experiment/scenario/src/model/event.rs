//! Events: changes while a run lasts.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};
use vmcc_units::{BitsPerSec, Nanos, Packets};

use super::one_or_many::OneOrMany;
use vmcc_config::tagged;
use vmcc_config::tagged::{Fault, common_schema, split_common};
use vmcc_network::Loss;

/// One change at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// Time since the start of the run.
    pub at: Nanos,
    /// The change.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The kinds of change.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EventKind {
    /// A link, or every link of a path, stops carrying packets.
    LinkDown(LinkEvent),
    /// It carries packets again.
    LinkUp(LinkEvent),
    /// Its rate changes.
    SetRate(RateEvent),
    /// Its one-way delay changes.
    SetDelay(DelayEvent),
    /// Its loss changes.
    SetLoss(LossEvent),
    /// A vNIC of a VM moves to another physical NIC.
    Remap(RemapEvent),
    /// A host is descheduled again and again: on for a while, off for a while.
    Deschedule(DescheduleEvent),
    /// The programs of a host have a quota of processor time, as a container with a limit (kernel engine).
    Throttle(ThrottleEvent),
    /// Subflows become backups (RFC 8684, `B` flag): used while no other subflow of their connection can be.
    SetBackup(SubflowEvent),
    /// They are no backups any more.
    ClearBackup(SubflowEvent),
    /// Subflows are closed; what they had not delivered goes on the others of their connection.
    CloseSubflow(SubflowEvent),
    /// Subflows that were closed are opened again.
    OpenSubflow(SubflowEvent),
}

tagged!(EventKind, "kind", "an event", {
    "link-down" => LinkDown(LinkEvent),
    "link-up" => LinkUp(LinkEvent),
    "set-rate" => SetRate(RateEvent),
    "set-delay" => SetDelay(DelayEvent),
    "set-loss" => SetLoss(LossEvent),
    "remap" => Remap(RemapEvent),
    "deschedule" => Deschedule(DescheduleEvent),
    "throttle" => Throttle(ThrottleEvent),
    "set-backup" => SetBackup(SubflowEvent),
    "clear-backup" => ClearBackup(SubflowEvent),
    "close-subflow" => CloseSubflow(SubflowEvent),
    "open-subflow" => OpenSubflow(SubflowEvent),
});

/// A link or path by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkEvent {
    /// The link or path.
    pub link: String,
}

/// A new rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateEvent {
    /// The link or path.
    pub link: String,
    /// The rate from now on, in each direction.
    pub rate: BitsPerSec,
}

/// A new delay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DelayEvent {
    /// The link or path.
    pub link: String,
    /// The one-way delay from now on.
    pub delay: Nanos,
}

/// A new loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LossEvent {
    /// The link or path.
    pub link: String,
    /// The loss from now on, in each direction.
    pub loss: Loss,
}

/// A vNIC's new NIC (`virtual-host` only).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemapEvent {
    /// The VM, such as `vm0`.
    pub vm: String,
    /// Its vNIC, counted from 0.
    pub vnic: u32,
    /// The NIC from now on, counted from 0.
    pub nic: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(time: &Nanos) -> bool {
    time.is_zero()
}

/// A scheduling pattern of a host: while off it neither sends nor handles what arrives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DescheduleEvent {
    /// The host, such as `vm0`.
    pub host: String,
    /// Duration of each period on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub on: Nanos,
    /// Duration of each period off.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub off: Nanos,
    /// Instead of `on` and `off`: pairs of them that were recorded, `[on, off]`, which repeat; or the name of a CSV file in the
    /// scenario's folder or below it that has them, as whole microseconds.
    #[schemars(with = "Recorded")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recorded: Vec<(Nanos, Nanos)>,
    /// End of the pattern, since the start of the run. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Nanos>,
    /// Draw `on` and `off` from exponential distributions with these means, instead of fixed times.
    #[serde(default)]
    pub random: bool,
    /// First work of the host when it runs again: expired timers, or received packets.
    #[serde(default, skip_serializing_if = "First::is_timers")]
    pub first: First,
    /// Packets that wait for the host while it is off, in its receive ring and before it; more are lost (simulator
    /// only). Absent: all wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<Packets>,
}

/// As written.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used: a file is read before the rest is")]
enum Recorded {
    Pairs(Vec<(Nanos, Nanos)>),
    File(String),
}

/// First work of a host when it runs again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum First {
    /// Timers that expired meanwhile: the order of Linux's softirqs, if the interrupts of both were pending.
    #[default]
    Timers,
    /// Packets: the host was taken off while it handled some, or the NIC's interrupt comes first.
    Packets,
}

impl First {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    fn is_timers(&self) -> bool {
        *self == Self::Timers
    }
}

/// A quota of processor time, as `cpu.max` of a cgroup or the limit of a container: while it is used up the host's programs
/// stand still, and its kernel goes on acknowledging and sending again for them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThrottleEvent {
    /// The host.
    pub host: String,
    /// Processor time of its programs in each period, all processors together; at least 1 ms.
    pub quota: Nanos,
    /// The period, 1 ms to 1 s.
    #[serde(default = "usual_period")]
    pub period: Nanos,
    /// End of the quota, since the start of the run. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Nanos>,
}

/// Linux's default, and that of Kubernetes.
fn usual_period() -> Nanos {
    Nanos::from_millis(100)
}

/// Subflows of connections that have several, by their path or by their number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubflowEvent {
    /// Those on this path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Those of this number, counted from 0, the one that opened the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = vmcc_cc::MAX_PATHS - 1))]
    pub subflow: Option<u32>,
    /// Of these entries of traffic. Absent: of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<OneOrMany>,
}

impl SubflowEvent {
    /// True if it applies to connections of the entry with this label.
    pub fn means(&self, label: &str) -> bool {
        self.traffic.as_ref().is_none_or(|names| names.0.iter().any(|name| name == label))
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct When {
    /// Time since the start of the run.
    at: Nanos,
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (when, kind) =
            split_common::<When, EventKind>(Deserialize::deserialize(deserializer)?).map_err(Fault::raise)?;
        Ok(Self { at: when.at, kind })
    }
}

impl JsonSchema for Event {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Event".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        common_schema::<When, EventKind>(generator)
    }
}
