//! The machine's side: sends what flows of its host send, serves what is fetched from it, and samples its own kernel meanwhile. It has
//! nothing of the network but its cards.

use super::exchange::{Answer, GuestReport, Job, data_file, place};
use super::sending::{LOOK_AT, SEND_START_TIMEOUT, Sending};
use super::serving::Serving;
use crate::Error;
use crate::algorithms::load;
use crate::clock::{micros, sleep_until_next};
use crate::guard::RunGuard;
use crate::guest::{QUIT, take};
use crate::ports::Ports;
use crate::registry::Record;
use crate::sampler::Sampler;
use crate::spec::{Cc, Flow, LabSpec};
use crate::topology::Topology;
use crate::workload::Programs;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_engine::chain;
use vmcc_netlink::Links;
use vmcc_system::cpu_steal::gaps;
use vmcc_units::Nanos;

/// Poll interval for a file while nothing else happens.
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The same where it is urgent: both sides count from the moment at which one is found.
const START_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Interval of the checks for an abort by the lab.
const ABORT_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Sample interval of the kernel. A shorter one would take a slow machine's processor from its traffic.
const SAMPLE_INTERVAL: Nanos = Nanos::from_millis(20);
/// Interval of the queries that are not needed at every sample.
const SLOW_SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
/// Timeout for its cards to appear.
const CARDS_TIMEOUT: Duration = Duration::from_secs(20);
/// Time by which a program may exceed the duration of the run.
const GRACE_PERIOD: Duration = Duration::from_secs(40);

/// Does what the lab asks for in `directory`, until it asks for nothing more.
///
/// # Errors
/// The machine has no cards, or an answer cannot be given.
pub fn sender(directory: &Path) -> Result<(), Error> {
    let cards = cards(directory)?;
    for number in 0_u32.. {
        let job: Job = loop {
            if directory.join(QUIT).exists() {
                return Ok(());
            }
            match take(directory, &format!("{number}.job")) {
                Some(job) => break job,
                None => thread::sleep(4 * FILE_POLL_INTERVAL),
            }
        };
        let answer = match Run::new(directory, number, &job).and_then(|run| run.transfer(&cards)) {
            Ok(seen) => Answer::Seen(Box::new(seen)),
            Err(error) => Answer::Failed { kind: error.kind(), message: chain(&error) },
        };
        place(directory, &format!("{number}.answer"), &answer)?;
    }
    Ok(())
}

/// The numbers of the machine's network cards, once all are there.
fn cards(directory: &Path) -> Result<Vec<u32>, Error> {
    // A kernel that has it built in has nothing to load.
    let _ = Command::new("modprobe").arg("virtio_net").status();
    let count: usize = loop_until(CARDS_TIMEOUT, || take(directory, "cards"))
        .ok_or_else(|| Error::spec("machine", "the number of network cards is missing"))?;
    let index = |card: usize| nix::net::if_::if_nametoindex(format!("eth{card}").as_str()).ok();
    loop_until(CARDS_TIMEOUT, || (0..count).map(index).collect::<Option<Vec<u32>>>())
        .ok_or_else(|| Error::spec("machine", format!("it has not got its {count} network cards")))
}

fn loop_until<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        match look() {
            None if begun.elapsed() < limit => thread::sleep(4 * FILE_POLL_INTERVAL),
            found => return found,
        }
    }
}

struct Run<'a> {
    directory: &'a Path,
    number: u32,
    spec: LabSpec,
    host: usize,
    programs: Programs,
}

impl<'a> Run<'a> {
    fn new(directory: &'a Path, number: u32, job: &Job) -> Result<Self, Error> {
        let spec = LabSpec { sample_interval: SAMPLE_INTERVAL, ..job.spec()? };
        let host = spec.hosts.iter().position(|name| *name == job.host);
        let host = host.ok_or_else(|| Error::spec("machine", format!("there is no host {}", job.host)))?;
        Ok(Self { directory, number, spec, host, programs: Programs::default() })
    }

    fn transfer(&self, cards: &[u32]) -> Result<GuestReport, Error> {
        let own: Vec<Flow> = self.spec.flows.iter().filter(|flow| flow.from == self.host).cloned().collect();
        provide(&own);
        let mut record = Record::claim(None)?;
        let algorithms = load(own.iter())?;
        let mut guard = RunGuard::new(&algorithms, self.spec.min_paths)?;
        let topology = Topology::inside(&self.spec, self.host, cards, &mut record)?;
        let seen = self.run(&topology, (&mut guard, &mut record));
        let asked = guard.end(&algorithms);
        let seen = seen.map(|seen| GuestReport { asked, ..seen });
        give_back(&topology, self.host, cards);
        self.forget_data();
        seen
    }

    fn run(
        &self,
        topology: &Topology,
        (guard, record): (&mut RunGuard, &mut Record),
    ) -> Result<GuestReport, Error> {
        self.select(topology)?;
        let mut sending = self.flows()?;
        let place = (self.directory, self.number);
        let mut serving = Serving::begin((&self.spec, self.host), &self.programs, topology, record, place)?;
        let ports = Ports::none();
        let mut sampler = Sampler::open(topology, &ports, &self.spec)?;
        self.place("ready")?;
        self.await_go()?;
        self.start_senders(&mut sampler, &mut sending, topology, record)?;
        let start = Instant::now();
        self.place("begun")?;
        let (ended, mut off) = (AtomicBool::new(false), Vec::new());
        let sampled = thread::scope(|scope| {
            let noticing = scope.spawn(|| {
                gaps(&mut |gap| {
                    off.extend(gap.map(|gap| (micros(start.elapsed()), micros(gap))));
                    if ended.load(Ordering::Relaxed) {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                })
            });
            let ends = (&mut *sending, &mut serving);
            let sampled = self.sample(sampler, ends, start, topology, (guard, record));
            ended.store(true, Ordering::Relaxed);
            let noticed = noticing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            noticed.map_err(|e| Error::file("/proc/thread-self/schedstat", e))?;
            sampled
        })?;
        let streams = sampled.streams.iter();
        Ok(GuestReport {
            reinjected: streams.filter_map(|(k, s)| Some((k.0, k.1, s.reinjected_bytes?))).collect(),
            tracks: sampled.tracks,
            fates: sampled.fates,
            clients: sending.into_iter().filter_map(|one| one.left).collect(),
            off,
            ..GuestReport::default()
        })
    }

    /// Makes the congestion control of the flows that are sent here their namespace's own.
    fn select(&self, topology: &Topology) -> Result<(), Error> {
        for (number, flow) in self.spec.flows.iter().enumerate().filter(|(_, f)| f.from == self.host) {
            let selected =
                topology.ends(number).0.sysctl("net.ipv4.tcp_congestion_control", &flow.cc.kernel_name());
            selected.map_err(|e| Error::CongestionControl {
                name: flow.cc.kernel_name(),
                cause: format!("it cannot be selected in the virtual machine ({e})"),
            })?;
        }
        Ok(())
    }

    /// The flows whose programs begin here.
    fn flows(&self) -> Result<Vec<Sending<'_>>, Error> {
        let mut all = Vec::new();
        for (number, flow) in self.spec.flows.iter().enumerate().filter(|(_, f)| f.client() == self.host) {
            let data = self.keep_data(number)?;
            all.push(Sending {
                number,
                flow,
                data,
                client: None,
                sent: Duration::ZERO,
                told: false,
                left: None,
            });
        }
        Ok(all)
    }

    /// A flow's file in the machine's own memory, where reading it costs little.
    fn keep_data(&self, flow: usize) -> Result<Option<PathBuf>, Error> {
        let shared = self.directory.join(data_file(self.number, flow));
        if !shared.exists() {
            return Ok(None);
        }
        let own = own_data(flow);
        fs::copy(&shared, &own).map_err(|e| Error::file(&own, e))?;
        Ok(Some(own))
    }

    fn forget_data(&self) {
        // A machine that cannot remove one has less memory for the next.
        (0..self.spec.flows.len()).for_each(|flow| drop(fs::remove_file(own_data(flow))));
    }

    fn place(&self, what: &str) -> Result<(), Error> {
        place(self.directory, &format!("{}.{what}", self.number), &())
    }

    fn await_go(&self) -> Result<(), Error> {
        let mut last_poll = Instant::now();
        while take::<()>(self.directory, &format!("{}.go", self.number)).is_none() {
            if last_poll.elapsed() > ABORT_POLL_INTERVAL {
                self.check()?;
                last_poll = Instant::now();
            }
            thread::sleep(START_POLL_INTERVAL);
        }
        Ok(())
    }

    /// Starts what sends from the run's beginning on, and waits until it does. A program takes its time to start, and with a
    /// processor that is mostly taken away the whole run would be over before.
    fn start_senders(
        &self,
        sampler: &mut Sampler<'_>,
        sending: &mut [Sending<'_>],
        topology: &Topology,
        record: &mut Record,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let elapsed = begun.elapsed();
            for one in sending.iter_mut().filter(|one| one.flow.begins_the_run()) {
                one.advance(&self.programs, topology, record, Duration::ZERO)?;
            }
            sampler.take(micros(elapsed))?;
            let tracks = &sampler.samples().tracks;
            let mut silent =
                sending.iter().filter(|one| one.flow.begins_the_run() && !one.has_started(tracks));
            match silent.next() {
                None => break,
                Some(one) if elapsed > SEND_START_TIMEOUT => return Err(one.sends_nothing()),
                Some(_) => {}
            }
            self.check()?;
            thread::sleep(4 * FILE_POLL_INTERVAL);
        }
        sampler.begin();
        Ok(())
    }

    /// Checks that the lab has not aborted this run.
    fn check(&self) -> Result<(), Error> {
        if self.directory.join(QUIT).exists() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Until all programs have ended.
    fn sample(
        &self,
        mut sampler: Sampler<'_>,
        (sending, serving): (&mut [Sending<'_>], &mut Serving),
        start: Instant,
        topology: &Topology,
        (guard, record): (&mut RunGuard, &mut Record),
    ) -> Result<crate::sampler::Samples, Error> {
        let limit = self.spec.duration.to_duration() + GRACE_PERIOD;
        let (mut next_poll, mut next_sample, mut over) = (Duration::ZERO, Duration::ZERO, false);
        while sending.iter().any(|one| one.left.is_none()) || !serving.is_over() {
            let elapsed = start.elapsed();
            for one in sending.iter_mut() {
                one.advance(&self.programs, topology, record, elapsed)?;
            }
            // What its sockets do when its receiver has ended is nobody's traffic.
            if !over {
                sampler.take(micros(elapsed))?;
                if elapsed >= next_sample || sending.iter().any(|one| one.is_closing(elapsed)) {
                    next_sample = elapsed + SLOW_SAMPLE_INTERVAL;
                    sampler.ask_now_and_then()?;
                }
            }
            guard.act(|| sampler.ask_now_and_then())?;
            over = serving.is_over() && sending.iter().all(|one| one.is_over(elapsed));
            if elapsed >= next_poll {
                next_poll = elapsed + ABORT_POLL_INTERVAL;
                self.check()?;
                serving.look(self.directory, self.number)?;
            }
            if let Some(late) = sending.iter().find(|one| elapsed > limit && one.left.is_none()) {
                let cause = format!("it has not ended {} s after its time", GRACE_PERIOD.as_secs());
                return Err(late.client.as_ref().map_or(Error::Interrupted, |c| c.failed(cause, LOOK_AT)));
            }
            if elapsed > limit && !serving.is_over() {
                return Err(Error::Measurement {
                    what: "what is fetched from the virtual machine".to_owned(),
                    cause: format!("no stop request arrived {} s after its time", GRACE_PERIOD.as_secs()),
                    remedy: LOOK_AT.to_owned(),
                });
            }
            sleep_until_next(start, self.spec.sample_interval.to_duration());
        }
        Ok(sampler.finish())
    }
}

/// Path of the machine's own copy of a flow's file.
fn own_data(flow: usize) -> PathBuf {
    PathBuf::from(format!("/run/vmcc-data.{flow}"))
}

/// Has the kernel load algorithms of its own that are modules.
fn provide(flows: &[Flow]) {
    for flow in flows {
        if let Cc::Native(name) = &flow.cc {
            // One that is built in has no module; one that is missing is refused when it is selected.
            let _ = Command::new("modprobe").arg("-q").arg(format!("tcp_{name}")).status();
        }
    }
}

/// Moves the cards out of the host's namespace before that ends, so that the next run finds them.
fn give_back(topology: &Topology, host: usize, cards: &[u32]) {
    let Ok(home) = File::open("/proc/self/ns/net") else { return };
    for netns in topology.stacks_of(host) {
        let (cards, home) = (cards.to_vec(), home.as_raw_fd());
        // The kernel moves those by itself that cannot be moved now.
        netns.run(move || {
            let Ok(mut links) = Links::open() else { return };
            cards
                .iter()
                .enumerate()
                .for_each(|(n, card)| drop(links.move_to(*card, home, &format!("eth{n}"))));
        });
    }
}
