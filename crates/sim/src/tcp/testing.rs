//! A network of one pipe per route, for packet-level tests: each packet is delayed, or lost, as a script says.

use super::config::{ConnId, ConnSpec, SubflowSpec, TcpConfig};
use super::world::{Directory, World};
use crate::endpoint::Wire;
use crate::engine::{Timer, TimerId};
use crate::hosts::{Hosts, OffTimes, ResumeConfig};
use crate::packet::{Packet, RouteId, Sack};
use crate::time::{Span, Time};
use crate::traffic::App;
use std::collections::BTreeMap;
use vmcc_cc::{Algorithm, Params};
use vmcc_multipath::{AckPath, Scheduler};

enum Event {
    Arrival(Packet, Sack),
    Timer(TimerId),
}

/// Decides about a packet put on the wire: extra delay, or loss. May change the packet (marks).
pub(crate) type Script = Box<dyn FnMut(&mut Packet, Time) -> Option<Span>>;

/// Every route is a pipe: a rate, a delay, and the script.
pub(crate) struct Pipe {
    now: Time,
    serial: u64,
    queue: BTreeMap<(Time, u64), Event>,
    /// By route: delay and time per packet.
    pub(crate) routes: Vec<(Span, Span)>,
    busy: Vec<Time>,
    pub(crate) script: Script,
    /// Every packet put on the wire, with its time and whether it was lost.
    pub(crate) log: Vec<(Time, Packet, bool)>,
    /// Most SACK ranges that one ACK had.
    pub(crate) most_sack_ranges: usize,
}

impl Pipe {
    pub(crate) fn new(routes: Vec<(Span, Span)>, script: Script) -> Pipe {
        let busy = vec![Time::ZERO; routes.len()];
        Pipe {
            now: Time::ZERO,
            serial: 0,
            queue: BTreeMap::new(),
            routes,
            busy,
            script,
            log: Vec::new(),
            most_sack_ranges: 0,
        }
    }

    fn push(&mut self, at: Time, event: Event) {
        self.serial += 1;
        self.queue.insert((at, self.serial), event);
    }

    fn put(&mut self, mut packet: Packet, sack: Sack) {
        let extra = (self.script)(&mut packet, self.now);
        self.log.push((self.now, packet, extra.is_none()));
        let Some(extra) = extra else { return };
        let route = packet.route.0 as usize;
        let (delay, gap) = self.routes[route];
        self.busy[route] = self.busy[route].max(self.now) + gap;
        self.push(self.busy[route] + delay + extra, Event::Arrival(packet, sack));
    }
}

impl Wire for Pipe {
    fn now(&self) -> Time {
        self.now
    }

    fn send(&mut self, packet: Packet) {
        self.put(packet, Sack::EMPTY);
    }

    fn send_with_sack(&mut self, mut packet: Packet, sack: &Sack) {
        packet.flags |= Packet::SACK;
        let ranges = sack.ranges.iter().filter(|r| r.end > r.start).count();
        self.most_sack_ranges = self.most_sack_ranges.max(ranges);
        self.put(packet, *sack);
    }

    fn send_with_payload(&mut self, packet: Packet, _payload: &[u8]) {
        unreachable!("connections send no payload: {packet:?}");
    }

    fn arm(&mut self, timer: &mut Timer, id: TimerId, at: Time) {
        timer.deadline = at;
        if at < timer.queued {
            timer.queued = at.max(self.now);
            self.push(timer.queued, Event::Timer(id));
        }
    }

    fn expired(&mut self, timer: &mut Timer, id: TimerId) -> bool {
        if timer.queued != self.now {
            return false;
        }
        timer.queued = Time::NEVER;
        if timer.deadline <= self.now {
            timer.deadline = Time::NEVER;
            return true;
        }
        if timer.is_armed() {
            timer.queued = timer.deadline;
            self.push(timer.queued, Event::Timer(id));
        }
        false
    }
}

/// One sender (node 0), one receiver (node 1), one shard.
pub(crate) struct Lab {
    pub(crate) pipe: Pipe,
    pub(crate) hosts: Hosts,
    pub(crate) directory: Directory,
    pub(crate) conn: ConnId,
    started: bool,
}

/// Parameters of a test's connection.
pub(crate) struct Setup {
    pub(crate) algorithm: &'static str,
    pub(crate) params: &'static [(&'static str, f64)],
    pub(crate) app: App,
    pub(crate) config: TcpConfig,
    pub(crate) scheduler: Scheduler,
    pub(crate) ack_path: AckPath,
    /// One-way delay of each subflow, and the time its bottleneck takes per packet.
    pub(crate) paths: Vec<(Span, Span)>,
    pub(crate) backup: Vec<usize>,
    pub(crate) read_rate_bps: Option<u64>,
    pub(crate) off_times: Vec<(u32, Time, Time)>,
    pub(crate) resume: ResumeConfig,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            algorithm: "reno",
            params: &[],
            app: App::Sized { bytes: 100 * 1448 },
            config: TcpConfig::default(),
            scheduler: Scheduler::LowestRtt,
            ack_path: AckPath::Own,
            paths: vec![(Span::from_ms(10), Span::ZERO)],
            backup: Vec::new(),
            read_rate_bps: None,
            off_times: Vec::new(),
            resume: ResumeConfig::default(),
        }
    }
}

impl Lab {
    pub(crate) fn new(setup: Setup, script: Script) -> Lab {
        let mut world = World::new(&[0, 0]);
        let config = world.add_config(setup.config).expect("test configuration is valid");
        let algorithm = Algorithm::by_name(setup.algorithm).expect("test names a known algorithm");
        let mut params = Params::defaults(algorithm);
        for &(name, value) in setup.params {
            params.set(name, value).expect("test sets a value in range");
        }
        let algorithm = world.add_algorithm(algorithm, params);
        let subflows = (0..setup.paths.len())
            .map(|i| SubflowSpec {
                backup: setup.backup.contains(&i),
                ..SubflowSpec::new(RouteId(2 * i as u32), RouteId(2 * i as u32 + 1))
            })
            .collect();
        let conn = world
            .add_connection(ConnSpec {
                sender: 0,
                receiver: 1,
                start: Time::ZERO,
                stop: Time::NEVER,
                app: setup.app,
                algorithm,
                config,
                scheduler: setup.scheduler,
                ack_path: setup.ack_path,
                subflows,
                multipath: false,
                read_rate_bps: setup.read_rate_bps,
                class: 0,
                group: 0,
                trace: false,
            })
            .expect("test connection is valid");
        let (mut hosts, directory) = world.build::<Hosts>();
        let routes =
            setup.paths.iter().flat_map(|&(delay, gap)| [(delay, gap), (delay, Span::ZERO)]).collect();
        let mut hosts = hosts.remove(0);
        for node in 0..2 {
            let of_node = setup.off_times.iter().filter(|off| off.0 == node);
            let times: Vec<OffTimes> = of_node
                .map(|off| OffTimes { resume: setup.resume, ..OffTimes::once(off.1, off.2) })
                .collect();
            if !times.is_empty() {
                hosts.deschedule(node, times);
            }
        }
        Lab { pipe: Pipe::new(routes, script), hosts, directory, conn, started: false }
    }

    /// Handles everything before `end`.
    pub(crate) fn run_until(&mut self, end: Time) {
        if !std::mem::replace(&mut self.started, true) {
            self.hosts.begin(&mut self.pipe);
        }
        while let Some(entry) = self.pipe.queue.first_entry() {
            if entry.key().0 >= end {
                break;
            }
            let ((at, _), event) = entry.remove_entry();
            self.pipe.now = at;
            match event {
                Event::Arrival(packet, sack) => self.hosts.packet(&mut self.pipe, &packet, &sack),
                Event::Timer(id) => self.hosts.timer(&mut self.pipe, id),
            }
        }
        self.pipe.now = end;
    }

    /// Lets a packet arrive, as one that the network has repeated.
    pub(crate) fn inject(&mut self, packet: Packet) {
        self.hosts.packet(&mut self.pipe, &packet, &Sack::EMPTY);
    }

    pub(crate) fn run_ms(&mut self, ms: u64) {
        self.run_until(Time::ZERO + Span::from_ms(ms));
    }

    pub(crate) fn flow(&self) -> super::record::ConnRecord {
        self.directory.flow(self.conn, &[&self.hosts])
    }

    /// Data packets sent on `route`, lost ones included: time, sequence number, retransmission?
    pub(crate) fn data(&self, route: u32) -> Vec<(Time, u32, bool)> {
        let is_data =
            |p: &&(Time, Packet, bool)| p.1.has(Packet::DATA) && p.1.tag == 0 && p.1.route.0 == route;
        self.pipe.log.iter().filter(is_data).map(|(t, p, _)| (*t, p.seq, p.has(Packet::RETRANSMIT))).collect()
    }
}

/// Loses nothing, delays nothing.
pub(crate) fn clean() -> Script {
    Box::new(|_, _| Some(Span::ZERO))
}

/// Loses the first transmissions of these segments on route 0.
pub(crate) fn lose(seqs: &'static [u32]) -> Script {
    Box::new(move |p, _| {
        let first = p.has(Packet::DATA) && !p.has(Packet::RETRANSMIT) && p.tag == 0 && p.route.0 == 0;
        (!(first && seqs.contains(&p.seq))).then_some(Span::ZERO)
    })
}
