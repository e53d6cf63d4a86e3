//! Disjoint paths between two hosts.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos};

use super::{Ends, Kind, default_buffer, path_name};
use crate::check::{self, Check, Fault, require};
use crate::settings::{first_key, on_the_way_back};
use crate::{Builder, HostId, LinkSettings, Loss, Marking, Network, Queue, Reverse, RoutePair, RouteTable};

/// Hosts `client` and `server`, joined by paths that share nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParallelPaths {
    /// Number of paths (named `a`, `b`, ...), or a list of named paths with their differences.
    pub paths: Paths,
    /// The rate of every path, in each direction that `reverse` does not say otherwise of.
    pub rate: BitsPerSec,
    /// The one-way delay of every path.
    pub delay: Nanos,
    /// The buffer at each end of every path.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// Marking rule of the queues.
    #[serde(default)]
    pub marking: Marking,
    /// The queues of each port.
    #[serde(default)]
    pub queue: Queue,
    /// Packets lost on the way, in each direction.
    #[serde(default)]
    pub loss: Loss,
    /// The most of a random extra delay, uniform from none; packets are not reordered unless `reorder` says so.
    #[serde(default)]
    pub jitter: Nanos,
    /// Reordering: packets overtake each other where jitter exceeds their distance.
    #[serde(default)]
    pub reorder: bool,
    /// Differences of every path from `server` to `client`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<Reverse>,
}

/// The paths of a `parallel-paths` topology.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Paths(pub Vec<PathSpec>);

/// One path and how it differs from the others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathSpec {
    /// Its name in traffic, events and results.
    pub name: String,
    /// Its rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitsPerSec>,
    /// Its one-way delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Nanos>,
    /// Its buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Limit>,
    /// Its marking rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marking: Option<Marking>,
    /// Its loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Its jitter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Nanos>,
    /// Reordering by jitter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder: Option<bool>,
    /// Its differences from `server` to `client`, beside those of all paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<Reverse>,
}

impl<'de> Deserialize<'de> for Paths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PathsVisitor;
        impl<'de> Visitor<'de> for PathsVisitor {
            type Value = Paths;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of paths from 1 to 64, or a list of tables with a `name`")
            }
            fn visit_u64<E: serde::de::Error>(self, count: u64) -> Result<Paths, E> {
                if !(1..=64).contains(&count) {
                    return Err(E::invalid_value(serde::de::Unexpected::Unsigned(count), &self));
                }
                let unnamed = |i| PathSpec { name: path_name(i), ..PathSpec::default() };
                Ok(Paths((0..count as usize).map(unnamed).collect()))
            }
            fn visit_i64<E: serde::de::Error>(self, count: i64) -> Result<Paths, E> {
                match u64::try_from(count) {
                    Ok(count) => self.visit_u64(count),
                    Err(_) => Err(E::invalid_value(serde::de::Unexpected::Signed(count), &self)),
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Paths, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Paths)
            }
        }
        deserializer.deserialize_any(PathsVisitor)
    }
}

impl JsonSchema for Paths {
    fn schema_name() -> Cow<'static, str> {
        "Paths".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let list = generator.subschema_for::<Vec<PathSpec>>();
        json_schema!({ "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 64 }, list] })
    }
}

/// One path: both directions.
struct Duplex {
    there: LinkSettings,
    reverse: Reverse,
}

impl Duplex {
    fn back(&self) -> LinkSettings {
        self.reverse.of(&self.there)
    }

    fn rtt(&self) -> Nanos {
        Nanos::new(self.there.delay.get().saturating_add(self.back().delay.get()))
    }
}

impl PathSpec {
    /// Differences of its first direction from all paths.
    fn own(&self) -> Reverse {
        Reverse {
            rate: self.rate,
            delay: self.delay,
            buffer: self.buffer,
            marking: self.marking,
            loss: self.loss,
            jitter: self.jitter,
        }
    }
}

impl ParallelPaths {
    /// The paths by name, each with its own settings filled in, as from `client` to `server`.
    pub fn links(&self) -> Vec<(String, LinkSettings)> {
        self.paths.0.iter().map(|path| (path.name.clone(), self.path(path).there)).collect()
    }

    /// A path with its own settings filled in.
    fn path(&self, path: &PathSpec) -> Duplex {
        let none = Reverse::default();
        let (own, all) = (path.reverse.as_ref().unwrap_or(&none), self.reverse.as_ref().unwrap_or(&none));
        let common = LinkSettings {
            rate: self.rate,
            delay: self.delay,
            buffer: self.buffer,
            marking: self.marking,
            queue: self.queue.clone(),
            loss: self.loss,
            jitter: self.jitter,
            reorder: path.reorder.unwrap_or(self.reorder),
        };
        Duplex { there: path.own().of(&common), reverse: own.or(all) }
    }

    /// A fault of a path, at the topology's key where the path does not set it itself.
    fn check_path(&self, index: usize, mtu: Bytes) -> Check {
        let own = &self.paths.0[index];
        let at = |bad: Fault, section: &str, owned: bool| {
            let top = if owned { format!("topology.paths[{index}]") } else { "topology".to_owned() };
            Fault { path: format!("{top}{section}{}", bad.path), ..bad }
        };
        let path = self.path(own);
        path.there.check(mtu, "").map_err(|bad| {
            let owned = own.own().says(&first_key(&bad));
            at(bad, "", owned)
        })?;
        path.back().check(mtu, "").map_err(|bad| {
            let key = first_key(&bad);
            let said = |reverse: &Option<Reverse>| reverse.as_ref().is_some_and(|r| r.says(&key));
            match path.reverse.says(&key) {
                true => at(bad, ".reverse", said(&own.reverse)),
                false => on_the_way_back(at(bad, "", own.own().says(&key))),
            }
        })
    }
}

impl Kind for ParallelPaths {
    fn ends(&self) -> Ends {
        Ends::two_sides(vec!["client".into()], vec!["server".into()])
    }

    fn paths(&self) -> Vec<String> {
        self.paths.0.iter().map(|path| path.name.clone()).collect()
    }

    fn queues(&self) -> Vec<&Queue> {
        vec![&self.queue]
    }

    fn check(&self, mtu: Bytes) -> Check {
        let list = (1..=64).contains(&self.paths.0.len());
        require(list, "topology.paths", "from 1 to 64 paths are possible")?;
        check::unique(&self.paths(), |i| format!("topology.paths[{i}].name"))?;
        (0..self.paths.0.len()).try_for_each(|index| self.check_path(index, mtu))
    }

    /// Every path is one link in each direction between the two hosts.
    fn network(&self) -> Network {
        let paths: Vec<Duplex> = self.paths.0.iter().map(|path| self.path(path)).collect();
        let total = |rate: &dyn Fn(&Duplex) -> BitsPerSec| {
            BitsPerSec::new(paths.iter().map(|path| rate(path).get()).fold(0u64, u64::saturating_add))
        };
        let mut builder = Builder::new(paths.iter().map(Duplex::rtt).max().unwrap_or_default());
        let client = builder.host("client", total(&|path| path.there.rate));
        let server = builder.host("server", total(&|path| path.back().rate));
        let mut table = RouteTable::default();
        for (spec, path) in self.paths.0.iter().zip(&paths) {
            // A path's rule refers to that path's RTT.
            let rtt = path.rtt();
            let ports = (builder.port(path.there.clone(), rtt), builder.port(path.back(), rtt));
            let (out, home) = builder.named(&spec.name, (client, server), ports);
            builder.cable(spec.name.as_str(), [out, home]);
            let path = builder.path(spec.name.as_str(), out, vec![out, home]);
            let pair = RoutePair { path: Some(path), forward: vec![out], reverse: vec![home] };
            table.add(HostId(0), HostId(1), pair);
        }
        builder.finish(table)
    }
}
