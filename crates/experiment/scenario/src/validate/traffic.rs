//! Traffic that cannot be sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vmcc_network::check;
use vmcc_units::{BitsPerSec, Bytes, Nanos};

use super::congestion_control::CongestionControl;
use super::host::subflows;
use super::{Check, fault, fault_with, require};
use crate::model::matching;
use crate::model::{
    Common, Coupling, Discipline, FlowList, OneOrMany, Pairing, Poisson, Protocol, Scenario, SizeDist,
    SizePoint, Topology, Traffic, TrafficKind,
};
use vmcc_config::{BadValue, did_you_mean};

/// The most connections of one entry.
const MAX_CONNECTIONS: u64 = 1_000_000;

pub(super) fn check(scenario: &Scenario) -> Result<Vec<Arc<CongestionControl>>, BadValue> {
    let of_hosts = CongestionControl::resolve(&scenario.host, &scenario.host.cc, "host.cc")?;
    let mut congestion_controls = Vec::with_capacity(scenario.traffic.len());
    require(!scenario.traffic.is_empty(), "traffic", "a scenario needs at least one [[traffic]]")?;
    let paths = scenario.topology.paths();
    let mut labels = BTreeSet::new();
    let entries = scenario.traffic.iter().zip(Traffic::labels(&scenario.traffic));
    for (index, (entry, label)) in entries.enumerate() {
        let path = format!("traffic[{index}]");
        let plain = label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        require(
            plain && !label.is_empty(),
            &format!("{path}.name"),
            "a name is letters, digits, `-` or `_`",
        )?;
        let of_path =
            format!("a path is called `{label}`, and their series would mix; give the entry another `name`");
        require(!paths.contains(&label), &format!("{path}.name"), &of_path)?;
        require(labels.insert(label), &format!("{path}.name"), "another entry has this name")?;
        let own = common(scenario, entry, &path)?;
        kind(scenario, entry, &path)?;
        congestion_controls.push(own.unwrap_or_else(|| of_hosts.clone()));
    }
    one_window(scenario)?;
    Ok(congestion_controls)
}

/// Nobody is to take windows for combined that are not.
fn one_window(scenario: &Scenario) -> Check {
    let quic =
        |entry: &Traffic| entry.protocol(&scenario.host) == Protocol::Quic && entry.kind.has_connections();
    require(
        scenario.host.coupling != Some(Coupling::Combined) || scenario.traffic.iter().any(quic),
        "host.coupling",
        "only the paths of QUIC connections can have one window, and no traffic uses QUIC; leave the key out, or set protocol = \"quic\"",
    )
}

/// Checks what entries of all kinds have. Returns the congestion control of an entry that names one.
fn common(
    scenario: &Scenario,
    entry: &Traffic,
    path: &str,
) -> Result<Option<Arc<CongestionControl>>, BadValue> {
    let c = &entry.common;
    require(c.start < scenario.duration, &format!("{path}.start"), "the run ends before this starts")?;
    let ordered = c.stop.is_none_or(|stop| stop > c.start);
    require(ordered, &format!("{path}.stop"), "it stops before it starts")?;
    match &entry.kind {
        TrafficKind::Flows(list) => listed(scenario, c, list, path)?,
        _ => endpoints(scenario, entry, path)?,
    }
    paths(scenario, c.path.as_ref(), &format!("{path}.path"))?;
    class(scenario, c.class, &format!("{path}.class"))?;
    let read = c.read_rate.is_none() || entry.kind.has_connections();
    require(read, &format!("{path}.read_rate"), "datagrams are counted as they arrive; leave the key out")?;
    if entry.kind.is_datagram() {
        let settings = [
            ("protocol", c.protocol.is_some()),
            ("cc", c.cc.is_some()),
            ("ecn", c.ecn.is_some()),
            ("subflows", c.subflows.is_some()),
            ("scheduler", c.scheduler.is_some()),
            ("ack_path", c.ack_path.is_some()),
            ("coupling", c.coupling.is_some()),
        ];
        for (key, given) in settings {
            require(
                !given,
                &format!("{path}.{key}"),
                "datagrams have no congestion control, no ECN and no subflows",
            )?;
        }
        return Ok(None);
    }
    if matches!(entry.kind, TrafficKind::Probe(_)) {
        let settings = [
            ("protocol", c.protocol.is_some()),
            ("cc", c.cc.is_some()),
            ("subflows", c.subflows.is_some()),
            ("scheduler", c.scheduler.is_some()),
            ("ack_path", c.ack_path.is_some()),
            ("coupling", c.coupling.is_some()),
        ];
        for (key, given) in settings {
            let message = "probes have no congestion control and no subflows: they are sent on each path";
            require(!given, &format!("{path}.{key}"), message)?;
        }
        return Ok(None);
    }
    if let Some(rate) = c.read_rate {
        read_rate(rate, &entry.kind, &format!("{path}.read_rate"))?;
    }
    let resolve = |name: &String| CongestionControl::resolve(&scenario.host, name, &format!("{path}.cc"));
    let own = c.cc.as_ref().map(resolve).transpose()?;
    let quic = entry.protocol(&scenario.host) == Protocol::Quic;
    require(
        c.coupling.is_none() || quic,
        &format!("{path}.coupling"),
        "only the paths of QUIC connections can have one window; leave the key out, or give the entry protocol = \"quic\"",
    )?;
    subflows(c.subflows, entry.protocol(&scenario.host), &format!("{path}.subflows"))?;
    Ok(own)
}

fn read_rate(rate: BitsPerSec, kind: &TrafficKind, path: &str) -> Check {
    let message = "a program that never reads ends the connection's progress; leave the key out for one that reads at once";
    require(!rate.is_zero(), path, message)?;
    require(
        !kind.asks(),
        path,
        "requests and answers are read at once; leave the key out, or use `bulk` or `sized`",
    )?;
    check::rate(rate, path)?;
    Ok(())
}

/// Programs that write at a rate.
fn writing(kind: &TrafficKind, path: &str) -> Check {
    let (rate, chunk) = kind.writing();
    let (rate_at, chunk_at) = (format!("{path}.write_rate"), format!("{path}.write_chunk"));
    if let Some(rate) = rate {
        let message = "a rate of zero writes nothing; leave the key out for a program that always has something to send";
        require(!rate.is_zero(), &rate_at, message)?;
        check::rate(rate, &rate_at)?;
    }
    require(
        chunk.is_none() || rate.is_some(),
        &chunk_at,
        "a chunk is written at a rate: give `write_rate`, too",
    )?;
    let possible = chunk.is_none_or(|chunk| (Bytes::new(1)..=Bytes::new(1 << 30)).contains(&chunk));
    require(possible, &chunk_at, "a write has from 1B to 1 GiB")
}

fn endpoints(scenario: &Scenario, entry: &Traffic, path: &str) -> Check {
    let hosts = scenario.topology.hosts();
    for (patterns, key) in [(&entry.common.from, "from"), (&entry.common.to, "to")] {
        for pattern in patterns.iter().flat_map(|p| &p.0) {
            if matching(&hosts, std::slice::from_ref(pattern)).is_empty() {
                let help = did_you_mean(pattern, hosts.iter().map(String::as_str));
                let message = format!("no host of this topology is called or matches `{pattern}`");
                return Err(fault_with(format!("{path}.{key}"), message, help));
            }
        }
    }
    let (from, to) = scenario.endpoints(entry);
    require(!from.is_empty(), &format!("{path}.from"), "no host sends")?;
    require(!to.is_empty(), &format!("{path}.to"), "no host receives")?;
    let alone = from.len() == 1 && to == from;
    require(!alone, &format!("{path}.to"), "a host does not send to itself")?;
    if entry.common.pairing == Pairing::Permutation {
        let same = from.len() == to.len();
        let message =
            format!("a permutation needs as many senders ({}) as receivers ({})", from.len(), to.len());
        require(same, &format!("{path}.pairing"), &message)?;
    }
    let kept = matches!(&entry.kind, TrafficKind::Poisson(k) if k.kept_connections.is_some());
    let pairs = match entry.common.pairing {
        Pairing::All => (from.len() as u64).saturating_mul(to.len() as u64),
        // Any receiver may be next.
        Pairing::Random if kept => (from.len() as u64).saturating_mul(to.len() as u64),
        _ => from.len().max(to.len()) as u64,
    };
    let connections = match &entry.kind {
        TrafficKind::Bulk(k) => k.connections,
        TrafficKind::Sized(k) => k.connections,
        TrafficKind::Incast(k) => k.connections,
        TrafficKind::RequestResponse(k) => k.connections,
        TrafficKind::Poisson(k) => k.kept_connections.unwrap_or(1),
        _ => 1,
    };
    let key = match entry.common.pairing {
        Pairing::All => "pairing",
        _ if kept => "kept_connections",
        _ => "connections",
    };
    let fits = pairs.saturating_mul(u64::from(connections)) <= MAX_CONNECTIONS;
    require(fits, &format!("{path}.{key}"), "this makes more than a million connections")?;
    connected(scenario, entry, &from, &to, path)
}

/// Hosts and sizes of transfers that are listed.
fn listed(scenario: &Scenario, c: &Common, list: &FlowList, path: &str) -> Check {
    let own =
        [("from", c.from.is_some()), ("to", c.to.is_some()), ("pairing", c.pairing != Pairing::OneToOne)];
    for (key, given) in own {
        require(
            !given,
            &format!("{path}.{key}"),
            "each listed transfer has its own hosts; leave the key out",
        )?;
    }
    require(!list.flows.is_empty(), &format!("{path}.flows"), "nothing to send")?;
    let hosts = scenario.topology.hosts();
    let known: BTreeSet<&str> = hosts.iter().map(String::as_str).collect();
    for (index, flow) in list.flows.iter().enumerate() {
        let at = |key: &str| format!("{path}.flows[{index}].{key}");
        for (name, key) in [(&flow.from, "from"), (&flow.to, "to")] {
            if !known.contains(name.as_str()) {
                let message = format!("no host of this topology is called `{name}` (transfer {})", index + 1);
                return Err(fault_with(
                    at(key),
                    message,
                    did_you_mean(name, hosts.iter().map(String::as_str)),
                ));
            }
        }
        require(flow.from != flow.to, &at("to"), "a host does not send to itself")?;
        transfer(scenario, flow.size, &at("size"))?;
    }
    Ok(())
}

/// A size that a connection can transfer.
fn transfer(scenario: &Scenario, bytes: Bytes, path: &str) -> Check {
    require(!bytes.is_zero(), path, "nothing to send")?;
    let most = longest_transfer(scenario.host.mtu);
    require(bytes <= most, path, &format!("at most {most}: 2^32 segments of this MTU, and 2 TB"))
}

/// Every sender must have a way to its receivers.
fn connected(scenario: &Scenario, entry: &Traffic, from: &[String], to: &[String], path: &str) -> Check {
    let kind = scenario.topology.as_kind();
    if from.first().is_none_or(|any| kind.reachable(any).is_none()) {
        return Ok(());
    }
    let mut known: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let pairs: Vec<(&String, &String)> = match entry.common.pairing {
        Pairing::OneToOne => {
            let n = from.len().max(to.len());
            let receiver = |i: usize| &to[i % to.len()];
            let pair = |i: usize| {
                let sender = &from[i % from.len()];
                // A host that would meet itself meets the next.
                (sender, if receiver(i) == sender { receiver(i + 1) } else { receiver(i) })
            };
            (0..n).map(pair).collect()
        }
        _ => from.iter().flat_map(|a| to.iter().map(move |b| (a, b))).collect(),
    };
    for (a, b) in pairs.into_iter().filter(|(a, b)| a != b) {
        let found = known.entry(a).or_insert_with(|| kind.reachable(a).unwrap_or_default());
        if !found.contains(b) {
            let kind =
                if scenario.topology.paths().is_empty() { "there is no path" } else { "no route is given" };
            return Err(fault(format!("{path}.to"), format!("{kind} from `{a}` to `{b}`")));
        }
    }
    Ok(())
}

fn paths(scenario: &Scenario, wanted: Option<&OneOrMany>, path: &str) -> Check {
    let Some(wanted) = wanted else { return Ok(()) };
    require(!wanted.0.is_empty(), path, "an empty list leaves no path")?;
    wanted.0.iter().try_for_each(|name| path_exists(scenario, name, path))
}

pub(super) fn path_exists(scenario: &Scenario, name: &str, path: &str) -> Check {
    let known = scenario.topology.paths();
    if known.is_empty() {
        return Err(fault(path, "this topology spreads flows by hash and has no named paths"));
    }
    if known.iter().any(|known| known == name) {
        return Ok(());
    }
    let message = format!("there is no path `{name}` (the paths are {})", known.join(", "));
    Err(fault_with(path, message, did_you_mean(name, known.iter().map(String::as_str))))
}

fn class(scenario: &Scenario, class: u32, path: &str) -> Check {
    let queues = scenario.topology.as_kind().queues();
    let count = |queue: &crate::model::Queue| match queue.kind {
        Discipline::Fifo => 1,
        Discipline::Drr | Discipline::Priority => queue.weights.len(),
    };
    let most = queues.into_iter().map(count).max().unwrap_or(1);
    let message = format!("the ports have {most} queue(s), counted from 0");
    require((class as usize) < most, path, &message)
}

fn kind(scenario: &Scenario, entry: &Traffic, path: &str) -> Check {
    let at = |key: &str| format!("{path}.{key}");
    let connections = |n: u32| require(n >= 1, &at("connections"), "at least one connection");
    let size = |bytes: Bytes, key: &str| transfer(scenario, bytes, &at(key));
    writing(&entry.kind, path)?;
    match &entry.kind {
        TrafficKind::Bulk(k) => connections(k.connections),
        TrafficKind::Sized(k) => {
            size(k.size, "size")?;
            connections(k.connections)
        }
        TrafficKind::Poisson(k) => poisson(k, &at),
        // With its hosts.
        TrafficKind::Flows(_) => Ok(()),
        TrafficKind::Incast(k) => {
            size(k.size, "size")?;
            let interval = k.interval.is_none_or(|i| !i.is_zero());
            require(interval, &at("interval"), "rounds need time between them")?;
            connections(k.connections)
        }
        TrafficKind::RequestResponse(k) => {
            size(k.request, "request")?;
            size(k.response, "response")?;
            require((0.0..=1.0).contains(&k.reads), &at("reads"), "a share from 0 to 1")?;
            let both = k.connections >= 2 || k.reads == 0.0 || k.reads == 1.0;
            require(both, &at("connections"), "a mix of reads and writes needs two connections or more")?;
            let enough = k.requests.is_none_or(|requests| requests >= u64::from(k.connections));
            require(enough, &at("requests"), "each connection carries at least one request")?;
            connections(k.connections)
        }
        TrafficKind::OnOffUdp(k) => {
            check::rate(k.rate, &at("rate"))?;
            require(k.on.is_none_or(|on| !on.is_zero()), &at("on"), "it would never send")?;
            let pattern = k.off.is_zero() || k.on.is_some();
            require(pattern, &at("off"), "`off` needs `on`: how long it sends in between")?;
            packet(k.packet, scenario, &at("packet"))
        }
        TrafficKind::CongestionGenerator(k) => {
            check::rate(k.max_rate, &at("max_rate"))?;
            require(k.min_rate <= k.max_rate, &at("min_rate"), "`min_rate` must not be above `max_rate`")?;
            let shortest = k.min_duration >= Nanos::from_millis(1);
            require(shortest, &at("min_duration"), "a period lasts at least 1ms")?;
            let ordered = k.min_duration <= k.max_duration;
            require(ordered, &at("min_duration"), "`min_duration` must not be above `max_duration`")?;
            require((0.0..=1.0).contains(&k.busy), &at("busy"), "a share from 0 to 1")?;
            packet(k.packet, scenario, &at("packet"))
        }
        TrafficKind::Probe(k) => {
            let shortest = k.interval >= Nanos::from_micros(1);
            require(shortest, &at("interval"), "requests are at least 1us apart")?;
            require(!k.timeout.is_zero(), &at("timeout"), "no answer comes at once")?;
            let fits = |packet| (Bytes::new(64)..=scenario.host.mtu).contains(&packet);
            let message = format!("a probe is from 64B to the MTU ({})", scenario.host.mtu);
            require(fits(k.packet), &at("packet"), &message)?;
            require(k.reply.is_none_or(fits), &at("reply"), &message)?;
            let first = entry.common.start.max(scenario.warmup);
            let late =
                first.get().checked_add(k.timeout.get()).is_some_and(|late| late < scenario.duration.get());
            let message = "the run ends before any answer is late: no loss could be seen; give a shorter `timeout` or a longer `duration`";
            require(late, &at("timeout"), message)
        }
    }
}

/// The most subflows that a connection of an entry can have, as far as that is known without the network.
pub(super) fn most_subflows(scenario: &Scenario, entry: &Traffic) -> usize {
    let (common, host) = (&entry.common, &scenario.host);
    if entry.protocol(host) == Protocol::Tcp {
        return 1;
    }
    let most = vmcc_cc::MAX_PATHS;
    match (common.subflows.or(host.subflows), &scenario.topology) {
        (Some(count), _) => most.min(count as usize),
        (None, Topology::ParallelPaths(_)) => {
            let known = scenario.topology.paths();
            let takes = |name: &&String| common.path.as_ref().is_none_or(|names| names.0.contains(name));
            most.min(known.iter().filter(takes).count())
        }
        (None, _) => most,
    }
}

/// Transfers are numbered in segments of 32 bits; 72 bytes are the headers of multipath TCP.
fn longest_transfer(mtu: Bytes) -> Bytes {
    let segments = u64::from(u32::MAX - 1);
    Bytes::new((segments * mtu.get().saturating_sub(72)).min(2_000_000_000_000))
}

fn packet(packet: Bytes, scenario: &Scenario, path: &str) -> Check {
    // 28 bytes are headers of IPv4 and UDP.
    let fits = (Bytes::new(29)..=scenario.host.mtu).contains(&packet);
    require(fits, path, &format!("a datagram is from 29B to the MTU ({})", scenario.host.mtu))
}

fn poisson(k: &Poisson, at: &dyn Fn(&str) -> String) -> Check {
    match (k.load, k.per_second) {
        (Some(load), None) => {
            let possible = load > 0.0 && load <= 2.0;
            require(possible, &at("load"), "a load is above 0 and at most 2 (1 is the sender's rate)")?;
        }
        (None, Some(rate)) => {
            let possible = rate > 0.0 && rate <= 1e9;
            require(possible, &at("per_second"), "from above 0 to 1e9 arrivals per second")?;
        }
        (None, None) => return Err(fault(at("load"), "expected either `load` or `per_second`")),
        (Some(_), Some(_)) => {
            return Err(fault(at("per_second"), "`load` and `per_second` contradict each other; give one"));
        }
    }
    require(k.limit != Some(0), &at("limit"), "a limit of zero sends nothing")?;
    let message =
        "at least one connection; leave the key out for objects that have a connection of their own each";
    require(k.kept_connections != Some(0), &at("kept_connections"), message)?;
    match &k.sizes {
        SizeDist::Named(_) => Ok(()),
        SizeDist::Fixed(size) => require(!size.is_zero(), &at("sizes"), "nothing to send"),
        SizeDist::Points(points) => size_points(points, &at("sizes")),
    }
}

fn size_points(points: &[SizePoint], path: &str) -> Check {
    require(!points.is_empty(), path, "a distribution needs at least one point")?;
    for (i, point) in points.iter().enumerate() {
        let at = format!("{path}[{i}]");
        require(!point.size.is_zero(), &format!("{at}.size"), "nothing to send")?;
        require((0.0..=1.0).contains(&point.cdf), &format!("{at}.cdf"), "a share from 0 to 1")?;
        if let Some(before) = i.checked_sub(1).map(|b| &points[b]) {
            let rising = point.size > before.size && point.cdf >= before.cdf;
            require(rising, &at, "sizes and shares must rise from point to point")?;
        }
    }
    let complete = points.last().is_some_and(|p| p.cdf == 1.0);
    require(complete, path, "the last point must have cdf = 1")
}
