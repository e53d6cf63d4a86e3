//! Traffic: one flow, and so one program, per pair of hosts.

use super::network::Pairs;
use super::subnets::{named, subflows, subnet_on};
use super::{quic, refuse};
use crate::Error;
use crate::spec::{Cc, Flow, Generating, Job, Layout, Path, Probing, Requests, Role, Transport};
use vmcc_network::{Framing, HostId, Lead, Network, Topology, Unloaded};
use vmcc_scenario::model::{
    Common, FileProgram, Host, Incast, ObjectProgram, OnOffUdp, Pairing, Poisson, Probe, Protocol,
    RequestResponse, Sized, Traffic, TrafficKind,
};
use vmcc_scenario::sizes::Sizes;
use vmcc_scenario::{CongestionControl, ResolvedCase, Scenario};
use vmcc_units::{BitsPerSec, Bytes, Nanos};

/// iperf3's `MAX_BLOCKSIZE`.
const MAX_WRITE_SIZE: Bytes = Bytes::new(1 << 20);
/// Number of objects in a cache: one for each five hundredth of the size distribution.
const OBJECTS: usize = 500;
/// Several times what lies between two looks at the kernel's sockets.
const LINGER: Nanos = Nanos::from_millis(50);
/// curl's upload buffer.
const CURL_WRITE_SIZE: Bytes = Bytes::new(64 << 10);
/// More bursts than a run takes programs; the run's own check says so.
const MAX_TURNS: usize = 1_000;

pub(super) fn convert(
    case: &ResolvedCase,
    layout: &Layout,
    paths: &[Path],
    hosts: &[String],
) -> Result<Vec<Flow>, Error> {
    let (mut flows, scenario) = (Vec::new(), &case.scenario);
    let network = scenario.topology.network();
    for (number, label) in Traffic::labels(&scenario.traffic).into_iter().enumerate() {
        let (traffic, chosen) = (&scenario.traffic[number], case.congestion_control(number));
        let key = |key: &str| format!("traffic.{label}.{key}");
        let like = common(scenario, (traffic, chosen), job(scenario, traffic, &key)?, &label)?;
        let times = times(&like, &traffic.kind, &key)?;
        for (from, to) in pairs(scenario, traffic, hosts, &key("pairing"))? {
            // Answers carry the data, and clients are `from`.
            let (from, to) = if matches!(like.job, Job::Requests(_)) { (to, from) } else { (from, to) };
            let subnets = layout.paths_between(from, to, paths.len());
            for transport in transports(scenario, traffic, &like.cc, &key, (&subnets, paths))? {
                let unloaded = unloaded((&network, scenario.host.mtu), (from, to), (&transport, &subnets));
                let at = |(start, stop): &(Nanos, Nanos)| Flow {
                    from,
                    to,
                    transport: transport.clone(),
                    start: *start,
                    stop: *stop,
                    unloaded,
                    ..like.clone()
                };
                let round = |round: u32| times.iter().map(at).map(move |flow| Flow { round, ..flow });
                flows.extend((0..rounds(&traffic.kind)).flat_map(round));
            }
        }
    }
    Ok(flows)
}

/// Pairs of sender and receiver, with their number of routes where flows are spread by hash.
pub(super) fn all_pairs(scenario: &Scenario, hosts: &[String]) -> Result<Pairs, Error> {
    let mut all = Pairs::new();
    for (traffic, label) in scenario.traffic.iter().zip(Traffic::labels(&scenario.traffic)) {
        let key = |key: &str| format!("traffic.{label}.{key}");
        job(scenario, traffic, &key)?;
        if traffic.protocol(&scenario.host) == Protocol::Plmt && traffic.kind.has_connections() {
            let possible = "\"mptcp\", \"tcp\" and \"quic\" are possible";
            return refuse(
                key("protocol"),
                format!("sessions over TCP carriers run on the simulator alone; {possible}"),
            );
        }
        let of_several = is_multipath(scenario, traffic) || quic::is_quic(scenario, traffic);
        let several = subflows(scenario, traffic).filter(|_| of_several);
        let count = several.unwrap_or(1);
        for (from, to) in pairs(scenario, traffic, hosts, &key("pairing"))? {
            let asks = matches!(traffic.kind, TrafficKind::RequestResponse(_));
            let pair = if asks { (to, from) } else { (from, to) };
            let most = all.entry(pair).or_insert(count);
            *most = count.max(*most);
        }
    }
    Ok(all)
}

/// Job of each connection, and the number of connections.
fn job(scenario: &Scenario, traffic: &Traffic, key: &impl Fn(&str) -> String) -> Result<(Job, u32), Error> {
    match &traffic.kind {
        TrafficKind::Bulk(bulk) => {
            Ok((Job::Bulk { writes_at: writes_at(traffic, &key("write_chunk"))? }, bulk.connections))
        }
        TrafficKind::Sized(Sized { write_rate: Some(_), write_chunk: Some(chunk), .. })
            if *chunk != CURL_WRITE_SIZE =>
        {
            refuse(key("write_chunk"), format!("curl writes {CURL_WRITE_SIZE} at a time, not {chunk}"))
        }
        TrafficKind::Sized(sized) if traffic.common.class > 0 => refuse(
            key("class"),
            format!("nothing sets the DSCP of class {} of files of {}", traffic.common.class, sized.size),
        ),
        TrafficKind::Sized(Sized { program: Some(FileProgram::Nfs), write_rate: Some(_), .. }) => {
            refuse(key("write_rate"), "who reads from a file system sets the pace")
        }
        TrafficKind::Sized(sized) if sized.program == Some(FileProgram::Nfs) => {
            Ok((Job::Chunks { size: sized.size }, sized.connections))
        }
        TrafficKind::Sized(Sized { program: Some(program), size, write_rate, connections, .. })
            if *program != FileProgram::Nginx =>
        {
            Ok((Job::Transfer { program: *program, size: *size, rate: *write_rate }, *connections))
        }
        TrafficKind::Sized(sized) => {
            Ok((Job::Sized { size: sized.size, rate: sized.write_rate }, sized.connections))
        }
        TrafficKind::Incast(incast) if traffic.common.class > 0 => refuse(
            key("class"),
            format!("nothing sets the DSCP of class {} of files of {}", traffic.common.class, incast.size),
        ),
        TrafficKind::Incast(incast) => Ok((Job::Sized { size: incast.size, rate: None }, incast.connections)),
        TrafficKind::OnOffUdp(OnOffUdp { random: true, .. }) => {
            refuse(key("random"), "bursts begin and end when iperf3 is started, not at random")
        }
        TrafficKind::OnOffUdp(udp) => Ok((Job::Datagrams { rate: udp.rate, packet: udp.packet }, 1)),
        TrafficKind::Poisson(poisson) => {
            Ok((objects(scenario, traffic, poisson, key)?, poisson.kept_connections.unwrap_or(1)))
        }
        TrafficKind::RequestResponse(asking) => {
            Ok((Job::Requests(requests(traffic, asking, key)?), asking.connections))
        }
        TrafficKind::CongestionGenerator(generator) => {
            let generating = Generating {
                rates: (generator.min_rate, generator.max_rate),
                durations: (generator.min_duration, generator.max_duration),
                busy: generator.busy,
                packet: generator.packet,
                seed: scenario.seed,
                independent: generator.independent,
            };
            Ok((Job::Generated(generating), 1))
        }
        TrafficKind::Probe(probe) => Ok((Job::Probes(probing(scenario, traffic, probe, key)?), 1)),
        TrafficKind::Flows(_) => refuse(key("kind"), "transfers that are listed one by one"),
    }
}

/// Objects of a cache at the sender, which the receiver fetches.
fn objects(
    scenario: &Scenario,
    traffic: &Traffic,
    poisson: &Poisson,
    key: &impl Fn(&str) -> String,
) -> Result<Job, Error> {
    if traffic.common.class > 0 {
        return refuse(key("class"), "neither memcached nor Apache sets a DSCP");
    }
    if poisson.limit.is_some() {
        return refuse(key("limit"), "what is fetched ends with `stop`");
    }
    if traffic.common.pairing != Pairing::OneToOne {
        return refuse(key("pairing"), "each client fetches from one cache");
    }
    let (Topology::ParallelPaths(_) | Topology::VirtualHost(_)) = &scenario.topology else {
        return refuse(key("kind"), "traffic of kind \"poisson\" where nodes route");
    };
    let sizes = Sizes::from(&poisson.sizes);
    let (from, _) = scenario.endpoints(traffic);
    let sender = scenario.topology.hosts().iter().position(|host| Some(host) == from.first());
    let network = scenario.topology.network();
    let rate = sender.and_then(|sender| network.hosts.get(sender)).map_or(0, |host| host.rate.get());
    let per_second = match (poisson.load, poisson.per_second) {
        (Some(load), _) => load * rate as f64 / 8.0 / sizes.mean(),
        (None, per_second) => per_second.unwrap_or(0.0),
    };
    let middle = |object: usize| (object as f64 + 0.5) / OBJECTS as f64;
    let sizes = (0..OBJECTS).map(|object| sizes.quantile(middle(object))).collect();
    let holder = poisson.program.unwrap_or(ObjectProgram::Memcached);
    let (kept, seed) = (poisson.kept_connections.is_some(), scenario.seed);
    Ok(Job::Objects { holder, kept, sizes, per_second, seed, linger: LINGER })
}

fn probing(
    scenario: &Scenario,
    traffic: &Traffic,
    probe: &Probe,
    key: &impl Fn(&str) -> String,
) -> Result<Probing, Error> {
    if traffic.common.ecn.or(scenario.host.ecn) == Some(true) {
        return refuse(key("ecn"), "its probes are not ECN-capable");
    }
    Ok(Probing {
        interval: probe.interval,
        random: probe.random,
        seed: scenario.seed,
        packet: probe.packet,
        reply: probe.reply.unwrap_or(probe.packet),
        timeout: probe.timeout,
    })
}

/// Requests of real programs.
fn requests(
    traffic: &Traffic,
    asking: &RequestResponse,
    key: &impl Fn(&str) -> String,
) -> Result<Requests, Error> {
    let Some(program) = asking.program else {
        return refuse(key("program"), "requests without a `program`");
    };
    if traffic.common.class > 0 {
        return refuse(key("class"), "its programs set no DSCP");
    }
    if !asking.think.is_zero() {
        return refuse(key("think"), "its programs ask at once");
    }
    if traffic.common.pairing != Pairing::OneToOne {
        return refuse(key("pairing"), "each client asks one server");
    }
    Ok(Requests {
        program,
        size: asking.response,
        count: asking.requests.unwrap_or(0),
        reads: asking.reads,
        readers: asking.readers(),
    })
}

/// Number of rounds: times that all of it is sent.
fn rounds(kind: &TrafficKind) -> u32 {
    match kind {
        TrafficKind::Sized(sized) => sized.rounds.unwrap_or(1),
        _ => 1,
    }
}

/// Start and stop of each run of its programs: one per on-time of datagrams, one per round of an incast.
fn times(
    flow: &Flow,
    kind: &TrafficKind,
    key: &impl Fn(&str) -> String,
) -> Result<Vec<(Nanos, Nanos)>, Error> {
    let turns = |every: u64| {
        let begins = (0..).map(move |turn: u64| flow.start.get().saturating_add(turn.saturating_mul(every)));
        begins.take_while(|begin| *begin < flow.stop.get()).take(MAX_TURNS)
    };
    match kind {
        TrafficKind::Incast(Incast { interval: Some(interval), .. }) => {
            Ok(turns(interval.get().max(1)).map(|at| (Nanos::new(at), flow.stop)).collect())
        }
        TrafficKind::OnOffUdp(OnOffUdp { on: Some(on), .. })
            if on.get() == 0 || on.get() % 1_000_000_000 != 0 =>
        {
            refuse(key("on"), format!("iperf3 sends for whole seconds, not for {on}"))
        }
        TrafficKind::OnOffUdp(OnOffUdp { on: Some(on), off, .. }) => {
            let until = |at: u64| Nanos::new((at + on.get()).min(flow.stop.get()));
            let every = on.get().saturating_add(off.get());
            Ok(turns(every).map(|at| (Nanos::new(at), until(at))).collect())
        }
        _ => Ok(vec![(flow.start, flow.stop)]),
    }
}

fn is_multipath(scenario: &Scenario, traffic: &Traffic) -> bool {
    traffic.protocol(&scenario.host) == Protocol::Mptcp && traffic.kind.has_connections()
}

/// Everything of an entry but the hosts, and the subnets between them.
fn common(
    scenario: &Scenario,
    (traffic, chosen): (&Traffic, &CongestionControl),
    (job, connections): (Job, u32),
    label: &str,
) -> Result<Flow, Error> {
    let key = |key: &str| format!("traffic.{label}.{key}");
    let common = &traffic.common;
    let role = if traffic.is_competing() { Role::Competing } else { Role::Measured };
    if quic::is_quic(scenario, traffic) {
        quic::check(traffic, &key)?;
    } else {
        check_kernels_own(common, &key)?;
    }
    if common.read_rate.is_some() {
        return refuse(key("read_rate"), "the programs read at once");
    }
    let cc = match traffic.kind.has_connections() {
        false => Cc::Native("reno".to_owned()),
        true => congestion_control(chosen, role, quic::is_quic(scenario, traffic)),
    };
    let ecn = common.ecn.or(scenario.host.ecn);
    if let (Some(false), Cc::Registry(params)) = (ecn, &cc)
        && params.algorithm().info().needs_ecn
    {
        return refuse(key("ecn"), format!("{} asks the kernel for ECN by itself", params.algorithm()));
    }
    Ok(Flow {
        role,
        from: 0,
        to: 0,
        cc,
        ecn,
        transport: Transport::Tcp { subnet: 0 },
        class: common.class,
        connections,
        job,
        round: 0,
        start: common.start,
        // The run's end stops whatever goes on then.
        stop: common.stop.map_or(scenario.duration, |stop| stop.min(scenario.duration)),
        label: label.to_owned(),
        unloaded: None,
    })
}

/// Headers of IPv4 and TCP with timestamps, and MPTCP's data sequence signal.
const TCP_HEADER_BYTES: u32 = 52;
const MPTCP_HEADER_BYTES: u32 = TCP_HEADER_BYTES + 20;
/// Headers of IPv4 and UDP. Those of QUIC are left out: the time on the empty network is a lower bound.
const QUIC_HEADER_BYTES: u32 = 28;

/// Timing on the empty network of what a transport transfers over its subnets.
fn unloaded(
    (network, mtu): (&Network, Bytes),
    (from, to): (usize, usize),
    (transport, subnets): (&Transport, &[usize]),
) -> Option<Unloaded> {
    let host = |index: usize| u32::try_from(index).map(HostId).ok();
    let mut draws = 0..;
    let mut draw = || draws.next().unwrap_or(0);
    let mut routes = network.routes.between(host(from)?, host(to)?, subnets.len(), &mut draw);
    let header_bytes = match transport {
        Transport::Tcp { subnet } => {
            let at = subnets.iter().position(|own| own == subnet).filter(|at| *at < routes.len());
            routes = at.map_or(routes.clone(), |at| vec![routes.swap_remove(at)]);
            TCP_HEADER_BYTES
        }
        Transport::Mptcp { .. } => MPTCP_HEADER_BYTES,
        Transport::Quic(_) => QUIC_HEADER_BYTES,
    };
    let payload_bytes = u32::try_from(mtu.get()).unwrap_or(u32::MAX).saturating_sub(header_bytes).max(1);
    network.unloaded(&routes, Framing { payload_bytes, header_bytes }, Lead::Handshake)
}

/// iperf3's `--bitrate` and `--length`.
fn writes_at(traffic: &Traffic, chunk_key: &str) -> Result<Option<(BitsPerSec, Bytes)>, Error> {
    match traffic.kind.writes_at() {
        Some((_, chunk)) if chunk > MAX_WRITE_SIZE => {
            refuse(chunk_key, format!("iperf3 writes at most {MAX_WRITE_SIZE} at a time"))
        }
        writes_at => Ok(writes_at),
    }
}

/// Refuses settings that an entry cannot choose, because the kernel has only one behaviour.
fn check_kernels_own(common: &Common, key: &impl Fn(&str) -> String) -> Result<(), Error> {
    let linux = Host::default();
    if common.scheduler.is_some_and(|own| own != linux.scheduler) {
        return refuse(key("scheduler"), "it is the kernel's own business and not Linux's default");
    }
    if common.ack_path.is_some_and(|own| own != linux.ack_path) {
        return refuse(key("ack_path"), "MPTCP acknowledges a subflow's data on that subflow");
    }
    Ok(())
}

fn pairs(
    scenario: &Scenario,
    traffic: &Traffic,
    hosts: &[String],
    key: &str,
) -> Result<Vec<(usize, usize)>, Error> {
    let (from, to) = scenario.endpoints(traffic);
    let number = |name: &String| hosts.iter().position(|host| host == name);
    let (from, to): (Vec<usize>, Vec<usize>) =
        (from.iter().filter_map(number).collect(), to.iter().filter_map(number).collect());
    match traffic.common.pairing {
        Pairing::OneToOne => {
            // A host that would meet itself meets the next.
            let pair = |i: usize| {
                let (sender, receiver) = (from[i % from.len()], to[i % to.len()]);
                (sender, if receiver == sender { to[(i + 1) % to.len()] } else { receiver })
            };
            Ok((0..from.len().max(to.len())).map(pair).collect())
        }
        Pairing::All => {
            let all = from.iter().flat_map(|from| to.iter().map(|to| (*from, *to)));
            Ok(all.filter(|(from, to)| from != to).collect())
        }
        Pairing::Permutation | Pairing::Random => refuse(key, "pairs by chance"),
    }
}

/// A pair of hosts has this many subnets for all its connections.
fn check_subflows(
    given: Option<u32>,
    key: String,
    (subnets, paths): (&[usize], &[Path]),
) -> Result<(), Error> {
    // From the number of paths on they are routes by hash; there one subflow is what entries have that give none.
    let hashed = subnets.iter().any(|subnet| *subnet >= paths.len());
    match given.or(hashed.then_some(1)) {
        Some(count) if count as usize != subnets.len() && hashed => Err(Error::NotExpressible {
            key,
            problem: format!("{count} here, {} in another entry between the same hosts", subnets.len()),
            remedy: "give both the same number, or use `--engine sim`".to_owned(),
        }),
        Some(count) if count as usize != subnets.len() => {
            refuse(key, "a connection has one subflow per path, or per vNIC")
        }
        _ => Ok(()),
    }
}

/// Transports of an entry's flows over the subnets between two hosts, each given by its path. Probes have one per subnet.
fn transports(
    scenario: &Scenario,
    traffic: &Traffic,
    cc: &Cc,
    key: &impl Fn(&str) -> String,
    (subnets, paths): (&[usize], &[Path]),
) -> Result<Vec<Transport>, Error> {
    if quic::is_quic(scenario, traffic) {
        return Ok(vec![quic::transport(scenario, traffic, cc, key, (subnets, paths))?]);
    }
    if !matches!(traffic.kind, TrafficKind::Probe(_) | TrafficKind::CongestionGenerator(_)) {
        return Ok(vec![transport(scenario, traffic, key, (subnets, paths))?]);
    }
    let one = |path: usize| subnet_on(path, subnets, &key("path")).map(|subnet| Transport::Tcp { subnet });
    match named(traffic, paths, &key("path"))? {
        none if none.is_empty() => Ok((0..subnets.len()).map(|subnet| Transport::Tcp { subnet }).collect()),
        some => some.into_iter().map(one).collect(),
    }
}

/// The paths that an entry names.
/// Transport of a flow over the subnets between its hosts, each given by its path.
fn transport(
    scenario: &Scenario,
    traffic: &Traffic,
    key: &impl Fn(&str) -> String,
    (subnets, paths): (&[usize], &[Path]),
) -> Result<Transport, Error> {
    let multipath = is_multipath(scenario, traffic);
    if multipath {
        check_subflows(subflows(scenario, traffic), key("subflows"), (subnets, paths))?;
    }
    let key = key("path");
    let named = named(traffic, paths, &key)?;
    let subnet_on = |path: usize| subnet_on(path, subnets, &key);
    match (multipath, named.as_slice()) {
        (true, []) => Ok(Transport::Mptcp { first: 0 }),
        (true, [first, ..]) if named.len() == paths.len() => {
            Ok(Transport::Mptcp { first: subnet_on(*first)? })
        }
        (true, _) => refuse(key, "an MPTCP connection over some of the paths"),
        (false, []) => Ok(Transport::Tcp { subnet: 0 }),
        (false, [path]) => Ok(Transport::Tcp { subnet: subnet_on(*path)? }),
        (false, _) => refuse(key, "a TCP connection over several paths"),
    }
}

/// Measured traffic runs under the registry's algorithm. What competes under a name that the kernel itself has
/// runs under the kernel's own code: it stands for the hosts of others.
fn congestion_control(chosen: &CongestionControl, role: Role, is_quic: bool) -> Cc {
    match &*chosen.name {
        _ if is_quic => Cc::Own(chosen.params),
        name @ ("reno" | "cubic") if role == Role::Competing => Cc::Native(name.to_owned()),
        _ => Cc::Registry(chosen.params),
    }
}
