//! Disjoint paths between two hosts.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos};

use super::{Ends, Kind, default_buffer, path_name, times};
use crate::check::{self, Check, require};
use crate::{Builder, HostId, LinkSettings, Loss, Marking, Network, Queue, Table, Way};

/// Hosts `client` and `server`, joined by paths that share nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParallelPaths {
    /// How many (named `a`, `b`, ...), or a list of named paths with their differences.
    pub paths: Paths,
    /// The rate of every path, in each direction.
    pub rate: BitsPerSec,
    /// The one-way delay of every path.
    pub delay: Nanos,
    /// The buffer at each end of every path.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// When the queues mark.
    #[serde(default)]
    pub marking: Marking,
    /// The queues of each port.
    #[serde(default)]
    pub queue: Queue,
    /// Packets lost on the way, in each direction.
    #[serde(default)]
    pub loss: Loss,
    /// The most of a random extra delay, uniform from none; packets are not reordered.
    #[serde(default)]
    pub jitter: Nanos,
}

/// The paths of a `parallel-paths` topology.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Paths(pub Vec<PathSpec>);

/// One path and how it differs from the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
                let unnamed = |i| PathSpec {
                    name: path_name(i),
                    rate: None,
                    delay: None,
                    buffer: None,
                    marking: None,
                    loss: None,
                    jitter: None,
                };
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

impl ParallelPaths {
    /// The paths by name, each with its own settings filled in.
    pub fn links(&self) -> Vec<(String, LinkSettings)> {
        let settings = |path: &PathSpec| LinkSettings {
            rate: path.rate.unwrap_or(self.rate),
            delay: path.delay.unwrap_or(self.delay),
            buffer: path.buffer.unwrap_or(self.buffer),
            marking: path.marking.unwrap_or(self.marking),
            queue: self.queue.clone(),
            loss: path.loss.unwrap_or(self.loss),
            jitter: path.jitter.unwrap_or(self.jitter),
        };
        self.paths.0.iter().map(|path| (path.name.clone(), settings(path))).collect()
    }

    /// A fault of a path, at the topology's key where the path does not set it itself.
    fn check_path(&self, index: usize, settings: &LinkSettings, mtu: Bytes) -> Check {
        let own = &self.paths.0[index];
        let owned = |key: &str| match key {
            "rate" => own.rate.is_some(),
            "delay" => own.delay.is_some(),
            "buffer" => own.buffer.is_some(),
            "marking" => own.marking.is_some(),
            "loss" => own.loss.is_some(),
            "jitter" => own.jitter.is_some(),
            _ => false,
        };
        check::settings(settings, mtu, "").map_err(|mut bad| {
            let rest = bad.path.trim_start_matches('.').to_owned();
            let key = rest.split('.').next().unwrap_or_default();
            let section = if owned(key) { format!("topology.paths[{index}]") } else { "topology".into() };
            bad.path = format!("{section}.{rest}");
            bad
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
        let mut links = self.links().into_iter().enumerate();
        links.try_for_each(|(index, (_, settings))| self.check_path(index, &settings, mtu))
    }

    /// Every path is one link in each direction between the two hosts.
    fn network(&self) -> Network {
        let links = self.links();
        let total = links.iter().map(|(_, link)| link.rate.get()).fold(0u64, u64::saturating_add);
        // A path's rule refers to that path's RTT.
        let rtt = |link: &LinkSettings| times(link.delay, 2);
        let longest = links.iter().map(|(_, link)| rtt(link)).max().unwrap_or_default();
        let mut builder = Builder::new(longest);
        let client = builder.host("client", BitsPerSec::new(total));
        let server = builder.host("server", BitsPerSec::new(total));
        let mut table = Table::default();
        for (name, link) in links {
            let rtt = rtt(&link);
            let port = builder.port(link, rtt);
            let (out, home) = builder.named(&name, (client, server), (port, port));
            builder.cable(name.as_str(), [out, home]);
            let path = builder.path(name, out, vec![out, home]);
            let way = Way { path: Some(path), forward: vec![out], reverse: vec![home] };
            table.add(HostId(0), HostId(1), way);
        }
        builder.finish(table)
    }
}
