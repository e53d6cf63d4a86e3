//! Traffic: senders, receivers, times and amounts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use vmcc_multipath::{AckPath, Coupling, Scheduler};
use vmcc_units::{BitsPerSec, Bytes, Nanos};

use super::host::{Host, Protocol};
use super::one_or_many::OneOrMany;
use crate::sizes::{Named, Sizes};
use vmcc_config::tagged;
use vmcc_config::tagged::{Fault, common_schema, split_common};

/// One entry of traffic: the shared part and its kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Traffic {
    /// Senders, receivers, times, and the settings of the hosts that it replaces.
    #[serde(flatten)]
    pub common: Common,
    /// Kind and amount.
    #[serde(flatten)]
    pub kind: TrafficKind,
}

/// Keys common to all kinds of traffic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Common {
    /// Its name in results (`traffic.<name>.goodput_bps`). Absent: its kind, and a number if that is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The senders: a host, a pattern with `*`, or a list of them. Absent: the topology's senders (of a
    /// `graph` the first host, but of `poisson` without explicit routes all).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<OneOrMany>,
    /// The receivers. Absent: the topology's receivers (of a `graph` all but the first host, of `poisson` without explicit
    /// routes all).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<OneOrMany>,
    /// Which sender sends to which receiver.
    #[serde(default)]
    pub pairing: Pairing,
    /// Competing traffic: excluded from the scenario's own metrics.
    /// Absent: datagrams compete, connections and probes are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub competing: Option<bool>,
    /// Start time. Connections that are not timed otherwise (`bulk`, `sized`, `request-response`, `kept_connections`) begin at random within a
    /// round trip from then, but within a hundredth of the time until they stop: no two programs start at once.
    #[serde(default)]
    pub start: Nanos,
    /// Stop time. Absent: at the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Nanos>,
    /// The paths it may use. Absent: all; a connection with fewer subflows than paths, and datagrams, use the first, probes each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<OneOrMany>,
    /// Its queue at every port (`drr` and `priority` queues).
    #[serde(default)]
    pub class: u32,
    /// Its transport, instead of the hosts'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Its congestion control, instead of the hosts'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cc: Option<String>,
    /// Negotiate ECN, instead of the hosts' `ecn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
    /// Rate at which each receiving program reads, in payload; unread data fill `host.receive_buffer`, and then the
    /// window closes. Absent: it reads at once (simulator only; not for `request-response`, `kept_connections` and datagrams).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_rate: Option<BitsPerSec>,
    /// Its number of subflows, instead of the hosts'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = vmcc_cc::MAX_PATHS))]
    pub subflows: Option<u32>,
    /// Scheduler of its senders, instead of the hosts' `scheduler`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
    /// Path of its acknowledgments, instead of the hosts' `ack_path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_path: Option<AckPath>,
    /// Congestion windows of its QUIC connections, instead of the hosts' `coupling`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coupling: Option<Coupling>,
}

/// Which sender sends to which receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// The i-th sender to the i-th receiver, the shorter list repeated; never a host to itself.
    #[default]
    OneToOne,
    /// Every sender to every receiver.
    All,
    /// Every sender to one random receiver, every receiver from one random sender.
    Permutation,
    /// Every connection to a random receiver.
    Random,
}

/// The kinds of traffic.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum TrafficKind {
    /// Connections that always have something to send.
    Bulk(Bulk),
    /// Connections that send a given amount.
    Sized(Sized),
    /// Objects that are asked for at random, with sizes from a distribution.
    Poisson(Poisson),
    /// Transfers that are listed one by one.
    Flows(FlowList),
    /// Many senders answer one receiver at once.
    Incast(Incast),
    /// Clients that ask, wait for the answer, and ask again.
    RequestResponse(RequestResponse),
    /// Datagrams at a constant rate, on for a while, off for a while.
    OnOffUdp(OnOffUdp),
    /// Datagrams at random rates for random times, independently on each interface.
    CongestionGenerator(CongestionGenerator),
    /// Small requests at a steady pace that are answered at once: RTT, loss and marks of every path.
    Probe(Probe),
}

tagged!(TrafficKind, "kind", "a traffic entry", {
    "bulk" => Bulk(Bulk),
    "sized" => Sized(Sized),
    "poisson" => Poisson(Poisson),
    "flows" => Flows(FlowList),
    "incast" => Incast(Incast),
    "request-response" => RequestResponse(RequestResponse),
    "on-off-udp" => OnOffUdp(OnOffUdp),
    "congestion-generator" => CongestionGenerator(CongestionGenerator),
    "probe" => Probe(Probe),
});

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// The bytes of each write of a program that writes at a rate.
const WRITE_CHUNK: Bytes = Bytes::new(16 << 10);

/// Connections that always have something to send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// Rate at which each program writes, in payload; data that could not be written in time are sent later, as iperf3's `--bitrate`
    /// does. Absent: it always has something to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_rate: Option<BitsPerSec>,
    /// The bytes of each write at `write_rate`. Absent: 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_chunk: Option<Bytes>,
    /// Connections of each pair of hosts.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 65536))]
    pub connections: u32,
}

/// Connections that send a given amount.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sized {
    /// The bytes of each transfer.
    pub size: Bytes,
    /// Rate at which each program writes, in payload. Absent: all at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_rate: Option<BitsPerSec>,
    /// The bytes of each write at `write_rate`. Absent: 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_chunk: Option<Bytes>,
    /// Connections of each pair of hosts.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 65536))]
    pub connections: u32,
    /// Sending program on a kernel. Absent: `nginx`. The simulator ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<FileProgram>,
    /// Rounds, as of a shuffle: the next round begins when every transfer of the entry, between whichever hosts,
    /// has arrived whole (kernel engines only, if more than one). Absent: once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub rounds: Option<u32>,
}

/// Programs that send files on a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FileProgram {
    /// `curl` puts them to `nginx`.
    Nginx,
    /// `nfs-cat` reads them from `ganesha.nfsd`, a piece after the other; the receiver connects.
    Nfs,
    /// `rsync` sends them to an rsync daemon.
    Rsync,
    /// `rsync` sends them over `ssh`.
    RsyncSsh,
    /// `lftp` puts them to `vsftpd`. Control and data have a connection each; the latter is measured.
    Ftp,
}

/// Servers and clients of requests on a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RequestProgram {
    /// `redis-benchmark` gets and sets one key of `redis-server`.
    Redis,
    /// `wrk` fetches one page from `nginx`.
    Nginx,
    /// `pgbench` runs its TPC-B-like transaction on PostgreSQL; sizes are its own.
    Postgresql,
}

/// Programs that serve objects on a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectProgram {
    /// `memcached`.
    Memcached,
    /// Apache's web server.
    Apache,
}

/// Objects that are asked for at random (a Poisson process per sender), each on a connection of its own or on one of those that stay open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Poisson {
    /// The sizes.
    pub sizes: SizeDist,
    /// The offered load as a share of each sender's rate. Either this or `per_second`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2))]
    pub load: Option<f64>,
    /// Arrivals per second of each sender. Either this or `load`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// The most objects of this entry in all. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Connections of each pair of hosts that the receiver opens at `start` and keeps, as clients of caches do. Objects go to them in turn; on each
    /// one is asked for at a time, so that one whose connection is busy waits for those before it. Completion times count from the arrival.
    /// Absent: each object has a connection of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub kept_connections: Option<u32>,
    /// Program that serves the objects on a kernel. Absent: `memcached`. The simulator ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ObjectProgram>,
}

/// A distribution of transfer sizes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SizeDist {
    /// A published distribution by name: `web-search`, `data-mining`, `cache` or `hadoop`.
    Named(Named),
    /// Always the same.
    Fixed(Bytes),
    /// Points of the cumulative distribution, in a file beside the scenario too; sizes between points are interpolated.
    Points(Vec<SizePoint>),
}

/// One point of a cumulative distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizePoint {
    /// A size.
    pub size: Bytes,
    /// The share of transfers up to this size.
    #[schemars(range(min = 0, max = 1))]
    pub cdf: f64,
}

impl From<&SizeDist> for Sizes {
    fn from(dist: &SizeDist) -> Self {
        let points = match dist {
            SizeDist::Named(named) => named.points().to_vec(),
            SizeDist::Fixed(size) => vec![(size.get(), 1.0)],
            SizeDist::Points(points) => points.iter().map(|p| (p.size.get(), p.cdf)).collect(),
        };
        Self::new(points)
    }
}

impl<'de> Deserialize<'de> for SizeDist {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizesVisitor;
        impl<'de> Visitor<'de> for SizesVisitor {
            type Value = SizeDist;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "`web-search`, `data-mining`, `cache`, `hadoop`, a size, a list of { size, cdf }, or a file of them (`.csv`, `.txt`)",
                )
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<SizeDist, E> {
                if let Some(named) = Named::by_name(text) {
                    return Ok(SizeDist::Named(named));
                }
                if text.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
                    return text.parse().map(SizeDist::Fixed).map_err(E::custom);
                }
                Err(E::unknown_variant(text, Named::NAMES))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<SizeDist, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(SizeDist::Points)
            }
        }
        deserializer.deserialize_any(SizesVisitor)
    }
}

impl JsonSchema for SizeDist {
    fn schema_name() -> Cow<'static, str> {
        "SizeDist".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (size, points) =
            (generator.subschema_for::<Bytes>(), generator.subschema_for::<Vec<SizePoint>>());
        let file = json_schema!({
            "type": "string",
            "pattern": "\\.(csv|txt)$",
            "description": "a file beside the scenario: a size in bytes and the share of transfers up to it in each line",
        });
        json_schema!({ "anyOf": [{ "enum": Named::NAMES }, size, points, file] })
    }
}

/// Transfers one by one, each on a connection of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowList {
    /// The transfers, or a CSV file of them beside the scenario with the columns `start_us`, `src`, `dst` and `size_bytes`.
    #[schemars(schema_with = "listed_or_file")]
    pub flows: Vec<ListedFlow>,
}

/// One transfer of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListedFlow {
    /// Start, after the entry's.
    pub at: Nanos,
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// Payload.
    pub size: Bytes,
}

fn listed_or_file(generator: &mut SchemaGenerator) -> Schema {
    let listed = generator.subschema_for::<Vec<ListedFlow>>();
    json_schema!({ "anyOf": [listed, { "type": "string", "pattern": "\\.csv$" }] })
}

/// Many senders answer one receiver at once, round after round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Incast {
    /// Payload of each connection per round.
    pub size: Bytes,
    /// Connections of each sender.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 65536))]
    pub connections: u32,
    /// The time from round to round, each on new connections. Absent: one round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Nanos>,
}

/// Clients (`from`) that ask servers (`to`), wait for the answer, and ask again on the same connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestResponse {
    /// The size of a request.
    pub request: Bytes,
    /// The size of an answer.
    pub response: Bytes,
    /// Connections of each pair of hosts.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 65536))]
    pub connections: u32,
    /// The time between an answer and the next request; `"0s"` asks at once.
    #[serde(default)]
    pub think: Nanos,
    /// Programs at both ends on a kernel, which needs one. The simulator ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<RequestProgram>,
    /// Requests of each pair of hosts, over all its connections. Absent: until `stop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Share of the connections that read. The others write: `request` and `response` change places.
    #[serde(default = "all_of_them")]
    #[schemars(range(min = 0, max = 1))]
    pub reads: f64,
}

fn all_of_them() -> f64 {
    1.0
}

impl RequestResponse {
    /// Connections that read; at least one of each kind that has a share.
    pub fn readers(&self) -> u32 {
        let readers = (f64::from(self.connections) * self.reads).round() as u32;
        let fewest = u32::from(self.reads > 0.0);
        let most = self.connections.saturating_sub(u32::from(self.reads < 1.0));
        readers.clamp(fewest.min(most), most)
    }

    /// Requests of the first `connections` of its connections.
    pub fn requests_of(&self, connections: u32) -> Option<u64> {
        let all = u64::from(self.connections.max(1));
        self.requests.map(|requests| requests.saturating_mul(connections.into()) / all)
    }
}

/// Datagrams at a constant rate while on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OnOffUdp {
    /// The rate while on, counting IP packets.
    pub rate: BitsPerSec,
    /// Duration of a period on. Absent: always on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<Nanos>,
    /// Duration of a period off.
    #[serde(default)]
    pub off: Nanos,
    /// Draw `on` and `off` from exponential distributions with these means, instead of fixed times.
    #[serde(default)]
    pub random: bool,
    /// The size of an IP packet.
    #[serde(default = "default_packet")]
    pub packet: Bytes,
}

fn default_packet() -> Bytes {
    Bytes::new(1500)
}

/// Datagrams at random rates for random times, independently on each interface of each sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CongestionGenerator {
    /// The lowest rate of a busy period.
    #[serde(default)]
    pub min_rate: BitsPerSec,
    /// The highest rate of a busy period; rates are uniform between the two.
    pub max_rate: BitsPerSec,
    /// The shortest period.
    pub min_duration: Nanos,
    /// The longest period; durations are uniform between the two.
    pub max_duration: Nanos,
    /// The share of periods that are busy; the others are silent.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub busy: f64,
    /// The size of an IP packet.
    #[serde(default = "default_packet")]
    pub packet: Bytes,
    /// Draw independently for each interface, instead of once for all.
    #[serde(default = "yes")]
    pub independent: bool,
}

fn half() -> f64 {
    0.5
}

/// Small requests at a steady pace, each answered at once: what packets meet on each of the paths. Results are
/// `probe_rtt_us`, `probe_loss` and `probe_marked`; probes have no goodput. With `ecn` they are ECN-capable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The time between two requests on a path.
    pub interval: Nanos,
    /// Draw `interval` from an exponential distribution with this mean, so that probes cannot fall into step with what they
    /// measure.
    #[serde(default)]
    pub random: bool,
    /// The size of a request's IP packet.
    #[serde(default = "small_packet")]
    pub packet: Bytes,
    /// The size of an answer's. Absent: as the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<Bytes>,
    /// Timeout of an answer; later ones count as lost.
    #[serde(default = "one_second")]
    pub timeout: Nanos,
}

fn small_packet() -> Bytes {
    Bytes::new(64)
}

fn one_second() -> Nanos {
    Nanos::from_secs(1)
}

impl Traffic {
    /// Names in results of all entries, in their order: their own, or else their kinds', numbered from the second on.
    pub fn labels(all: &[Traffic]) -> Vec<String> {
        Self::numbered(all, |entry| entry.kind.name().to_owned())
    }

    /// Names of all entries' random draws, in their order: their own, or else what tells an entry from others of its kind, so
    /// that an entry more does not change its draws. Not what a comparison varies: transport, amounts, end.
    pub fn identities(all: &[Traffic]) -> Vec<String> {
        Self::numbered(all, Self::place)
    }

    fn numbered(all: &[Traffic], of_unnamed: impl Fn(&Traffic) -> String) -> Vec<String> {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let name = |entry: &Traffic| {
            let Some(name) = &entry.common.name else {
                let own = of_unnamed(entry);
                let count = seen.entry(own.clone()).or_default();
                *count += 1;
                return if *count == 1 { own } else { format!("{own}{count}") };
            };
            name.clone()
        };
        all.iter().map(name).collect()
    }
}

impl Traffic {
    /// Kind, hosts, way and start, as far as they are given.
    fn place(&self) -> String {
        let c = &self.common;
        let names = |names: &Option<OneOrMany>| names.as_ref().map(|n| n.0.join(","));
        let given = [
            ("from", names(&c.from)),
            ("to", names(&c.to)),
            ("path", names(&c.path)),
            ("pairing", (c.pairing != Pairing::default()).then(|| format!("{:?}", c.pairing))),
            ("start", (!c.start.is_zero()).then(|| c.start.to_string())),
            ("class", (c.class != 0).then(|| c.class.to_string())),
            ("competing", c.competing.map(|competing| competing.to_string())),
        ];
        let given = given.into_iter().filter_map(|(key, value)| Some(format!("({key} {})", value?)));
        std::iter::once(self.kind.name().to_owned()).chain(given).collect()
    }

    /// The transport of its connections, `host` being the hosts' settings.
    pub fn protocol(&self, host: &Host) -> Protocol {
        self.common.protocol.unwrap_or(host.protocol)
    }

    /// True if it is left out of the scenario's own metrics.
    pub fn is_competing(&self) -> bool {
        self.common.competing.unwrap_or(self.kind.is_datagram())
    }
}

impl TrafficKind {
    /// True if it sends datagrams, which have no connections and react to nothing.
    pub fn is_datagram(&self) -> bool {
        matches!(self, Self::OnOffUdp(_) | Self::CongestionGenerator(_))
    }
    /// True if its connections carry requests and answers, again and again.
    pub fn asks(&self) -> bool {
        let Self::Poisson(poisson) = self else { return matches!(self, Self::RequestResponse(_)) };
        poisson.kept_connections.is_some()
    }
    /// True if it sends over connections.
    pub fn has_connections(&self) -> bool {
        !self.is_datagram() && !matches!(self, Self::Probe(_))
    }

    /// Write rate of its programs and bytes per write, if the rate is limited.
    pub fn writes_at(&self) -> Option<(BitsPerSec, Bytes)> {
        let (rate, chunk) = self.writing();
        rate.map(|rate| (rate, chunk.unwrap_or(WRITE_CHUNK)))
    }

    /// Its `write_rate` and `write_chunk`.
    pub(crate) fn writing(&self) -> (Option<BitsPerSec>, Option<Bytes>) {
        match self {
            Self::Bulk(k) => (k.write_rate, k.write_chunk),
            Self::Sized(k) => (k.write_rate, k.write_chunk),
            _ => (None, None),
        }
    }

    /// The kind as the language names it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bulk(_) => "bulk",
            Self::Sized(_) => "sized",
            Self::Poisson(_) => "poisson",
            Self::Flows(_) => "flows",
            Self::Incast(_) => "incast",
            Self::RequestResponse(_) => "request-response",
            Self::OnOffUdp(_) => "on-off-udp",
            Self::CongestionGenerator(_) => "congestion-generator",
            Self::Probe(_) => "probe",
        }
    }
}

impl<'de> Deserialize<'de> for Traffic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (common, kind) = split_common::<Common, TrafficKind>(Deserialize::deserialize(deserializer)?)
            .map_err(Fault::raise)?;
        Ok(Self { common, kind })
    }
}

impl JsonSchema for Traffic {
    fn schema_name() -> Cow<'static, str> {
        "Traffic".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        common_schema::<Common, TrafficKind>(generator)
    }
}
