//! One bottleneck.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos};

use super::{Ends, Kind, default_access_buffer, default_buffer, numbered, times};
use crate::check::{self, Check};
use crate::{
    Builder, Draw, HostId, LinkId, LinkSettings, Loss, Marking, Network, PathId, Queue, Reverse, RoutePair,
    Routes,
};

/// Hosts `left0`, `left1`, ... and `right0`, `right1`, ... across one link, `bottleneck`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dumbbell {
    /// Hosts on each side.
    #[schemars(range(min = 1, max = 65536))]
    pub pairs: u32,
    /// The rate of the bottleneck, in each direction.
    pub rate: BitsPerSec,
    /// The one-way delay of the bottleneck.
    pub delay: Nanos,
    /// The buffer at each end of the bottleneck.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// Marking rule of the bottleneck's queues.
    #[serde(default)]
    pub marking: Marking,
    /// The bottleneck's queues.
    #[serde(default)]
    pub queue: Queue,
    /// Packets lost at the bottleneck, in each direction.
    #[serde(default)]
    pub loss: Loss,
    /// Differences of the bottleneck from right to left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<Reverse>,
    /// The rate of the hosts' own links. Absent: the bottleneck's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_rate: Option<BitsPerSec>,
    /// The one-way delay of the hosts' own links.
    #[serde(default)]
    pub access_delay: Nanos,
    /// The buffer at each end of the hosts' own links.
    #[serde(default = "default_access_buffer")]
    pub access_buffer: Limit,
}

impl Dumbbell {
    /// The bottleneck's settings.
    fn bottleneck(&self) -> LinkSettings {
        let plain = LinkSettings::plain(self.rate, self.delay, self.buffer);
        LinkSettings { loss: self.loss, ..plain.with_queues(self.marking, &self.queue) }
    }

    /// The same from right to left.
    fn back(&self) -> LinkSettings {
        self.reverse.clone().unwrap_or_default().of(&self.bottleneck())
    }

    /// The settings of the hosts' own links.
    fn access(&self) -> LinkSettings {
        LinkSettings::plain(self.access_rate.unwrap_or(self.rate), self.access_delay, self.access_buffer)
    }
}

impl Kind for Dumbbell {
    fn ends(&self) -> Ends {
        Ends::two_sides(numbered("left", self.pairs), numbered("right", self.pairs))
    }

    fn paths(&self) -> Vec<String> {
        vec!["bottleneck".into()]
    }

    fn queues(&self) -> Vec<&Queue> {
        vec![&self.queue]
    }

    fn check(&self, mtu: Bytes) -> Check {
        check::count(self.pairs, "pairs")?;
        self.bottleneck().check(mtu, "topology")?;
        if let Some(reverse) = &self.reverse {
            reverse.check(&self.bottleneck(), mtu, "topology")?;
        }
        if let Some(rate) = self.access_rate {
            check::rate(rate, "topology.access_rate")?;
        }
        check::delay(self.access_delay, "topology.access_delay")?;
        check::buffer(self.access_buffer, mtu, "topology.access_buffer")
    }

    fn network(&self) -> Network {
        let across = self.delay.get().saturating_add(self.back().delay.get());
        let base_rtt = Nanos::new(across.saturating_add(times(self.access_delay, 4).get()));
        let mut builder = Builder::new(base_rtt);
        let (left, right) = (builder.node("left"), builder.node("right"));
        let middle = (builder.port(self.bottleneck(), base_rtt), builder.port(self.back(), base_rtt));
        let (there, back) = builder.named("bottleneck", (left, right), middle);
        builder.cable("bottleneck", [there, back]);
        builder.path("bottleneck", there, vec![there, back]);
        let access = self.access();
        let rate = access.rate;
        let port = builder.port(access, base_rtt);
        let mut ports = Vec::new();
        for (side, switch) in [("left", left), ("right", right)] {
            for name in numbered(side, self.pairs) {
                let host = builder.host(name.as_str(), rate);
                let (up, down) = builder.named(&name, (host, switch), (port, port));
                builder.cable(name, [up, down]);
                ports.push((up, down));
            }
        }
        builder.finish(Across { ports, there, back, left: self.pairs as usize })
    }
}

/// Up and down of each host; the bottleneck there and back; how many hosts are on the left.
#[derive(Debug)]
struct Across {
    ports: Vec<(LinkId, LinkId)>,
    there: LinkId,
    back: LinkId,
    left: usize,
}

impl Routes for Across {
    fn between(&self, from: HostId, to: HostId, _count: usize, _draw: Draw<'_>) -> Vec<RoutePair> {
        let (up, down) = (self.ports[from.index()], self.ports[to.index()]);
        let is_left = |host: HostId| host.index() < self.left;
        let (first, second) = if is_left(from) { (self.there, self.back) } else { (self.back, self.there) };
        let across = is_left(from) != is_left(to);
        let (middle, home) = if across { (vec![first], vec![second]) } else { (vec![], vec![]) };
        vec![RoutePair {
            path: across.then_some(PathId(0)),
            forward: [vec![up.0], middle, vec![down.1]].concat(),
            reverse: [vec![down.0], home, vec![up.1]].concat(),
        }]
    }
}
