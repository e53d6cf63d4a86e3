//! Setting up connections, and finding their results again.

use super::ack_path::AckRoutes;
use super::config::{AlgorithmId, ConfigId, ConnId, ConnSpec, ReceiveBuffer, SubflowSpec, TcpConfig};
use super::conn::Conn;
use super::limits::LimitTimes;
use super::pool::SharedRoutes;
use super::record::{ConnRecord, SubflowRecord};
use super::rx::{MessageAction, RxConn, RxSubflow};
use super::shard::Connections;
use super::subflow::{History, Status, Subflow};
use super::tx::Selected;
use crate::endpoint::MAX_INDEX;
use crate::error::{HostError, check, shard_of};
use crate::packet::RouteId;
use crate::rtts::RttGroups;
use crate::time::{Span, Time};
use crate::traffic::App;
use std::collections::BTreeMap;
use std::sync::Arc;
use vmcc_cc::{Algorithm, MAX_PATHS, Params};

#[derive(Clone, Copy, Debug)]
struct Place {
    tx_shard: u8,
    tx: u32,
    rx_shard: u8,
    rx: u32,
}

/// Connections being set up.
#[derive(Debug)]
pub struct World {
    shard_of: Vec<u8>,
    configs: Vec<TcpConfig>,
    algorithms: Vec<Selected>,
    shards: Vec<Connections>,
    places: Vec<Place>,
    /// The pool of two hosts, in the sender's shard.
    pools: BTreeMap<(u32, u32), u32>,
}

/// The group of RTTs that nobody counts: more than there are.
const NO_GROUP: u32 = u32::MAX;

/// Longest stream, in segments: sequence numbers do not wrap.
const MAX_SEGMENTS: u64 = (u32::MAX - 1) as u64;

impl World {
    /// `shard_of[node]` is the shard of each node, as in [`crate::engine`]'s partition.
    pub fn new(shard_of: &[u8]) -> World {
        let shards = shard_of.iter().max().map_or(1, |&s| usize::from(s) + 1);
        World {
            shard_of: shard_of.to_vec(),
            configs: Vec::new(),
            algorithms: Vec::new(),
            shards: vec![Connections::default(); shards],
            places: Vec::new(),
            pools: BTreeMap::new(),
        }
    }

    /// Makes room for exactly `count` further connections of one subflow: growth by doubling would keep up to as much again.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.places.reserve_exact(count);
        // How many connections each of several shards has is not known yet.
        if let [shard] = &mut self.shards[..] {
            shard.conns.reserve_exact(count);
            shard.subs.reserve_exact(count);
            shard.rx_conns.reserve_exact(count);
            shard.rx_subs.reserve_exact(count);
        }
    }

    fn shard(&self, node: u32) -> Result<u8, HostError> {
        shard_of(&self.shard_of, node)
    }

    /// Constants that connections can refer to.
    ///
    /// # Errors
    /// [`HostError::Quantity`] if the sizes leave no payload or a buffer is smaller than two packets.
    pub fn add_config(&mut self, config: TcpConfig) -> Result<ConfigId, HostError> {
        let headers = config.header_bytes + config.multipath_header_bytes;
        check("mtu_bytes", config.mtu_bytes.into(), config.mtu_bytes > headers, "more than the headers")?;
        check("ack_bytes", config.ack_bytes.into(), config.ack_bytes > 0, "at least 1")?;
        check("initial_cwnd_pkt", config.initial_cwnd_pkt.into(), config.initial_cwnd_pkt > 0, "at least 1")?;
        check("ack_every", config.ack_every.into(), config.ack_every > 0, "at least 1")?;
        let sack = config.sack_ranges;
        check("sack_ranges", sack.into(), (1..=4).contains(&sack), "1 to 4")?;
        let least = match config.receive_buffer {
            ReceiveBuffer::Fixed { bytes } => bytes,
            ReceiveBuffer::Auto { initial_bytes, max_bytes } => initial_bytes.min(max_bytes),
        };
        check("receive_buffer", least, least >= 2 * u64::from(config.mtu_bytes), "two packets or more")?;
        check("send_buffer_bytes", config.send_buffer_bytes, config.send_buffer_bytes > 0, "at least 1")?;
        let ratio = config.scaling_ratio;
        check("scaling_ratio", ratio.into(), ratio > 0, "at least 1 of 256")?;
        self.configs.push(config);
        Ok(ConfigId((self.configs.len() - 1) as u16))
    }

    /// An algorithm that connections can refer to.
    pub fn add_algorithm(&mut self, algorithm: Algorithm, params: Params) -> AlgorithmId {
        let needs_ecn = algorithm.info().needs_ecn;
        self.algorithms.push(Selected { algorithm, params, needs_ecn });
        AlgorithmId((self.algorithms.len() - 1) as u16)
    }

    /// Keeps windows and RTTs of traced connections every `every`; zero keeps none.
    pub fn sample_every(&mut self, every: Span) {
        for shard in &mut self.shards {
            shard.sample_every = every;
        }
    }

    /// Creates a connection; an application that asks takes two numbers, the second for the
    /// connection of its responses. So does a carrier.
    ///
    /// # Errors
    /// [`HostError`] if a node does not exist, there are no or too many subflows, or a quantity is out of
    /// range.
    pub fn add_connection(&mut self, spec: ConnSpec) -> Result<ConnId, HostError> {
        self.check(&spec)?;
        let id = self.insert(&spec)?;
        let request_bytes = match spec.app {
            App::RequestResponse { request_bytes, .. } | App::Fetches { request_bytes, .. } => {
                Some(request_bytes)
            }
            App::Carrier => None,
            App::Bulk | App::Sized { .. } | App::Paced { .. } | App::OnOff { .. } => return Ok(id),
        };
        let mirror = ConnSpec {
            sender: spec.receiver,
            receiver: spec.sender,
            start: Time::NEVER,
            subflows: spec.subflows.iter().map(SubflowSpec::reversed).collect(),
            ..spec
        };
        let answer = self.insert(&mirror)?;
        let (asks, answers) = (self.places[id.0 as usize], self.places[answer.0 as usize]);
        let edge = self.rx(answers).initial_window();
        self.tx(answers).edge = edge;
        let Some(request_bytes) = request_bytes else {
            // The reader's end sends acknowledgments of a session alone.
            self.tx(answers).rtt_group = NO_GROUP;
            return Ok(id);
        };
        let asker = self.tx(asks);
        let first = asker.answer_bytes(0);
        if let App::Fetches { .. } = asker.app {
            // Requests have a way of their own, which is not what somebody who fetches sees of the network.
            asker.rtt_group = NO_GROUP;
        }
        let messages = [
            (asks, Some(request_bytes), MessageAction::Respond { conn: answers.tx, request_bytes }),
            (answers, first, MessageAction::Answered(asks.tx)),
        ];
        for (place, bytes, on_message) in messages {
            let rx = self.rx(place);
            rx.await_message(bytes);
            rx.rare.get_or_insert_default().on_message = Some(on_message);
        }
        Ok(id)
    }

    fn tx(&mut self, place: Place) -> &mut Conn {
        &mut self.shards[usize::from(place.tx_shard)].conns[place.tx as usize]
    }

    fn rx(&mut self, place: Place) -> &mut RxConn {
        &mut self.shards[usize::from(place.rx_shard)].rx_conns[place.rx as usize]
    }

    fn check(&self, spec: &ConnSpec) -> Result<(), HostError> {
        self.shard(spec.sender)?;
        self.shard(spec.receiver)?;
        check("read rate", 0, spec.read_rate_bps != Some(0), "at least 1 bit/s, or none")?;
        let count = spec.subflows.len();
        if !(1..=MAX_PATHS).contains(&count) {
            return Err(HostError::Subflows { count });
        }
        let longest = MAX_SEGMENTS * 500;
        let size = |what, bytes| check(what, bytes, (1..=longest).contains(&bytes), "1 byte to 2 TB");
        match spec.app {
            App::Bulk | App::Carrier => Ok(()),
            App::Sized { bytes } => size("flow size", bytes),
            App::RequestResponse { request_bytes, response_bytes, .. } => {
                size("request size", request_bytes)?;
                size("response size", response_bytes)
            }
            App::Fetches { request_bytes, ref objects } => {
                size("request size", request_bytes)?;
                objects.iter().try_for_each(|object| size("object size", object.bytes))?;
                let all = objects.iter().map(|object| object.bytes).fold(0, u64::saturating_add);
                check("bytes of all objects", all, all <= longest, "at most 2 TB")
            }
            App::Paced { rate_bps, chunk_bytes, bytes } => {
                check("write rate", rate_bps, rate_bps > 0, "at least 1 bit/s")?;
                size("chunk", chunk_bytes)?;
                bytes.map_or(Ok(()), |bytes| size("flow size", bytes))
            }
            App::OnOff { rate_bps, on, off } => {
                check("rate_bps", rate_bps, rate_bps > 0, "at least 1 bit/s")?;
                check("on period", on.ps(), off == Span::ZERO || on > Span::ZERO, "longer than 0")
            }
        }
    }

    fn insert(&mut self, spec: &ConnSpec) -> Result<ConnId, HostError> {
        let (tx_shard, rx_shard) = (self.shard(spec.sender)?, self.shard(spec.receiver)?);
        let global = self.places.len() as u32;
        let config = &self.configs[usize::from(spec.config.0)];
        let Selected { params, needs_ecn: accurate, .. } = &self.algorithms[usize::from(spec.algorithm.0)];
        // Other detectors keep other state.
        let pools = || params.choice("detector") == Some("correlation");
        let multipath = spec.multipath || spec.subflows.len() > 1;
        let header = config.header_bytes + if multipath { config.multipath_header_bytes } else { 0 };
        let mss = config.mtu_bytes - header;

        let tx_hosts = &self.shards[usize::from(tx_shard)];
        let (tx, tx_first) = (tx_hosts.conns.len() as u32, tx_hosts.subs.len() as u32);
        let rx_hosts = &self.shards[usize::from(rx_shard)];
        let (rx, rx_first) = (rx_hosts.rx_conns.len() as u32, rx_hosts.rx_subs.len() as u32);
        let count = spec.subflows.len() as u32;
        if tx_first.max(rx_first) + count > MAX_INDEX {
            return Err(HostError::Full);
        }

        let mut conn = Conn::new(spec, config.send_buffer_bytes, (global, tx_first), (mss, header));
        let mut rx_conn = RxConn::new(config, &conn, spec.read_rate_bps, spec.receiver);
        rx_conn.first = rx_first;
        if let Some(ack_routes) =
            AckRoutes::new(spec.ack_path, spec.subflows.iter().map(|subflow| subflow.reverse))
        {
            rx_conn.rare.get_or_insert_default().ack_routes = Some(ack_routes);
        }
        let initial_cwnd = config.initial_cwnd_pkt;
        let make_rx = |(i, s): (usize, &SubflowSpec)| {
            RxSubflow::new(rx, tx_first + i as u32, s.reverse, config, *accurate)
        };
        let rx_subs: Vec<RxSubflow> = spec.subflows.iter().enumerate().map(make_rx).collect();
        let make_tx = |(i, s): (usize, &SubflowSpec)| Subflow::new(tx, rx_first + i as u32, s, initial_cwnd);
        let subs: Vec<Subflow> = spec.subflows.iter().enumerate().map(make_tx).collect();

        let hosts = &mut self.shards[usize::from(tx_shard)];
        if let Some(secret) = config.pool_secret.filter(|_| pools()) {
            let ends = (spec.sender, spec.receiver);
            let at = self.pools.get(&ends).copied();
            conn.pool =
                SharedRoutes::join(&mut hosts.pools, at, ends, (tx, &spec.subflows), secret).map(Box::new);
            self.pools.extend(conn.pool.as_deref().map(|place| (ends, place.pool)));
        }
        hosts.conns.push(conn);
        hosts.subs.extend(subs);
        hosts.rtts.add_group(spec.group);
        let hosts = &mut self.shards[usize::from(rx_shard)];
        hosts.rx_conns.push(rx_conn);
        hosts.rx_subs.extend(rx_subs);
        self.places.push(Place { tx_shard, tx, rx_shard, rx });
        Ok(ConnId(global))
    }

    /// Connections created so far.
    pub(crate) fn connections(&self) -> usize {
        self.places.len()
    }

    /// The hosts of each shard with their connections, and the place of each connection.
    pub fn build<H: From<Connections>>(mut self) -> (Vec<H>, Directory) {
        let configs: Arc<[TcpConfig]> = self.configs.into();
        let algorithms: Arc<[Selected]> = self.algorithms.into();
        for shard in &mut self.shards {
            shard.configs = Arc::clone(&configs);
            shard.algorithms = Arc::clone(&algorithms);
        }
        (self.shards.into_iter().map(H::from).collect(), Directory { places: self.places })
    }
}

/// Location of each connection's halves.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    places: Vec<Place>,
}

impl Directory {
    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.places.len()
    }

    fn sending<'a>(&self, id: ConnId, hosts: &[&'a impl AsRef<Connections>]) -> &'a Conn {
        let place = self.places[id.0 as usize];
        &hosts[usize::from(place.tx_shard)].as_ref().conns[place.tx as usize]
    }

    fn receiving<'a>(&self, id: ConnId, hosts: &[&'a impl AsRef<Connections>]) -> &'a RxConn {
        let place = self.places[id.0 as usize];
        &hosts[usize::from(place.rx_shard)].as_ref().rx_conns[place.rx as usize]
    }

    /// Payload bytes that connection `id` has delivered in order so far.
    ///
    /// # Panics
    /// If `id` or `hosts` come from another world.
    pub fn delivered_bytes(&self, id: ConnId, hosts: &[&impl AsRef<Connections>]) -> u64 {
        self.receiving(id, hosts).delivered_bytes
    }

    /// Limits of the sending half of connection `id` until `now`.
    ///
    /// # Panics
    /// If `id` or `hosts` come from another world.
    pub fn limits(&self, id: ConnId, now: Time, hosts: &[&impl AsRef<Connections>]) -> LimitTimes {
        self.sending(id, hosts).limit_times(now)
    }

    /// Application of connection `id`.
    ///
    /// # Panics
    /// If `id` or `hosts` come from another world.
    pub(crate) fn app<'a>(&self, id: ConnId, hosts: &[&'a impl AsRef<Connections>]) -> &'a App {
        &self.sending(id, hosts).app
    }

    /// Requests that connection `id` has sent, and the time of the last.
    ///
    /// # Panics
    /// If `id` or `hosts` come from another world.
    pub(crate) fn requests(&self, id: ConnId, hosts: &[&impl AsRef<Connections>]) -> (u32, Time) {
        let conn = self.sending(id, hosts);
        (conn.asked, conn.asked_at)
    }

    /// Answers that have arrived whole on connection `id`.
    ///
    /// # Panics
    /// If `id` or `hosts` come from another world.
    pub(crate) fn responses(&self, id: ConnId, hosts: &[&impl AsRef<Connections>]) -> u32 {
        self.receiving(id, hosts).messages
    }

    /// Sends subflow `subflow` of connection `id` over other routes from now on; what is on its way arrives.
    ///
    /// # Panics
    /// If `id`, `subflow` or `hosts` come from another world.
    pub(crate) fn reroute(
        &self,
        id: ConnId,
        subflow: usize,
        (forward, reverse): (RouteId, RouteId),
        hosts: &mut [&mut impl AsMut<Connections>],
    ) {
        let place = self.places[id.0 as usize];
        let tx = hosts[usize::from(place.tx_shard)].as_mut();
        let first = tx.conns[place.tx as usize].first as usize;
        tx.subs[first + subflow].route = forward;
        let rx = hosts[usize::from(place.rx_shard)].as_mut();
        let conn = &mut rx.rx_conns[place.rx as usize];
        if let Some(ack_routes) = conn.ack_routes() {
            ack_routes.reroute(subflow, reverse);
        }
        rx.rx_subs[conn.first as usize + subflow].route = reverse;
    }

    /// The routes of subflow `subflow` of connection `id`, there and back.
    ///
    /// # Panics
    /// If `id`, `subflow` or `hosts` come from another world.
    pub(crate) fn routes(
        &self,
        id: ConnId,
        subflow: usize,
        hosts: &[impl AsRef<Connections>],
    ) -> (RouteId, RouteId) {
        let place = self.places[id.0 as usize];
        let tx = hosts[usize::from(place.tx_shard)].as_ref();
        let rx = hosts[usize::from(place.rx_shard)].as_ref();
        let (sub, rx_sub) =
            (tx.conns[place.tx as usize].first as usize, rx.rx_conns[place.rx as usize].first as usize);
        (tx.subs[sub + subflow].route, rx.rx_subs[rx_sub + subflow].route)
    }

    /// The shard of a connection's sender, and its number there.
    ///
    /// # Panics
    /// If `id` comes from another world.
    pub(crate) fn sender(&self, id: ConnId) -> (usize, u32) {
        let place = self.places[id.0 as usize];
        (usize::from(place.tx_shard), place.tx)
    }

    /// The shard of a connection's receiver, and its number there.
    ///
    /// # Panics
    /// If `id` comes from another world.
    pub(crate) fn receiver(&self, id: ConnId) -> (usize, u32) {
        let place = self.places[id.0 as usize];
        (usize::from(place.rx_shard), place.rx)
    }

    /// Record of connection `id` so far; `hosts` are those of the engine, by shard.
    ///
    /// # Panics
    /// If `id` or `hosts` come from another world.
    pub fn flow(&self, id: ConnId, hosts: &[&impl AsRef<Connections>]) -> ConnRecord {
        let place = self.places[id.0 as usize];
        let tx = hosts[usize::from(place.tx_shard)].as_ref();
        let rx = hosts[usize::from(place.rx_shard)].as_ref();
        let conn = &tx.conns[place.tx as usize];
        let rx_conn = &rx.rx_conns[place.rx as usize];
        let subs = &tx.subs[conn.first as usize..][..usize::from(conn.count)];
        let rx_subs = &rx.rx_subs[rx_conn.first as usize..][..usize::from(conn.count)];
        ConnRecord {
            conn: id,
            start: conn.start,
            established: conn.established_at,
            received: rx_conn.completed,
            acknowledged: conn.acknowledged_at,
            delivered_bytes: rx_conn.delivered_bytes,
            stalled: rx_conn.stalled,
            delivered_at: rx_conn.delivered_at,
            held_bytes: u64::from(rx_conn.most_held) * u64::from(rx_conn.mss_bytes),
            responses: rx_conn.messages,
            subflows: subs.iter().zip(rx_subs).map(|(s, r)| subflow_record(s, r)).collect(),
        }
    }

    /// RTT distributions of all shards together.
    pub fn rtts<'a, H>(&self, hosts: impl IntoIterator<Item = &'a H>) -> RttGroups
    where
        H: AsRef<Connections> + 'a,
    {
        let mut all = RttGroups::default();
        for shard in hosts {
            all.merge(shard.as_ref().rtts());
        }
        all
    }
}

fn subflow_record(sf: &Subflow, rx: &RxSubflow) -> SubflowRecord {
    let History { earlier, reduced_at, closed_at, .. } = sf.history.as_deref().cloned().unwrap_or_default();
    SubflowRecord {
        sender: sf.counters(),
        receiver: rx.counters,
        cwnd_pkt: sf.cwnd,
        ssthresh_pkt: sf.ssthresh,
        srtt_8us: sf.rtt.srtt_8us,
        established: sf.status == Status::Established,
        opened: sf.opened,
        closed: sf.closed,
        earlier,
        closed_at: closed_at.unwrap_or(Time::NEVER),
        reduced_at,
        algorithm_words: sf.path.pub_words,
    }
}
