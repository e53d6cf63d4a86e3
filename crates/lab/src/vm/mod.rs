//! A host that is a virtual machine, so that it has a kernel of its own and its processor can be taken away.
//!
//! ```text
//!   namespace of the run: the host's stack       namespace of the machine
//!   mid0 ── p0 ═══════════ link ════════════════ tap0 ── eth0 ┐
//!   mid1 ── p1 ═══════════ link ════════════════ tap1 ── eth1 ┴ the machine: programs, TCP, algorithms
//! ```
//!
//! The lab builds the network around it as for any host; the host's own namespace only has the near ends of user-space links. The
//! machine boots with the first run and serves all of an engine's. Its kernel runs the algorithm and is sampled inside; at
//! the moments of the scenario's pattern its process is stopped and continued ([`Power`]).

mod exchange;
mod sender;
mod sending;
mod serving;

pub(crate) use exchange::{ClientExit, GuestReport};
pub use sender::sender;

use crate::guest::{
    self, GuestError, GuestOptions, KernelImage, Power, Worker, WorkerEnd, WorkerProgram, take,
};
use crate::registry::Record;
use crate::spec::{LabSpec, Wire};
use crate::topology::{Topology, in_namespace};
use crate::userspace_link::{LinkEnd, UserspaceLink};
use crate::workload::Elsewhere;
use crate::{Error, Netns};
use exchange::{Answer, Job, data_file, held_file, place};
use nix::libc;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vmcc_netlink::Links;
use vmcc_scenario::ResolvedCase;

/// Poll interval for a file.
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The same where both sides count from the moment at which it is found.
const START_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Timeout for the machine to boot and to set up a run, emulated on a busy host.
const SETUP_TIMEOUT: Duration = Duration::from_secs(180);
const LOOK_AT: &str = "see whether the host is overloaded, or try `vmcc internal guest -- vmcc doctor`";
/// Prefix of the folders that `vmcc clean` removes when their process is gone; the process id follows.
const FOLDER: &str = "vmcc-guest-";

/// A running virtual machine. Dropping it ends it and removes everything that it needed.
#[derive(Debug)]
pub struct VirtualMachine {
    // In the order in which they end.
    worker: Worker,
    power: Power,
    next: u32,
    netns: Netns,
    _record: Record,
}

impl VirtualMachine {
    /// Boots one with this many network cards, which runs `program` until it is dropped, for `time_limit` at most.
    ///
    /// # Errors
    /// Its namespace, its taps or its folder cannot be made. That it does not boot its first run says.
    pub fn start(
        kernel: &KernelImage,
        cards: usize,
        program: &WorkerProgram,
        time_limit: Duration,
    ) -> Result<Self, Error> {
        let mut record = Record::claim(None)?;
        let netns = Netns::create(&format!("vmcc-{}-machine", record.run_id()), &mut record)?;
        let taps: Vec<String> = (0..cards).map(|card| format!("tap{card}")).collect();
        taps.iter().try_for_each(|tap| add_tap(&netns, tap))?;
        let prefix = format!("{FOLDER}{}-", std::process::id());
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir();
        let directory = directory.map_err(|e| Error::file(std::env::temp_dir(), e))?;
        place(directory.path(), "cards", &cards)?;
        let power = Power::default();
        let options = GuestOptions {
            // One, as those of the papers, and because two emulated ones would need two of the host's.
            cpus: 1,
            taps,
            power: Some(power.clone()),
            time_limit,
            // What is found here is found there, whose files are the same.
            env: std::env::var_os("PATH")
                .map(|path| ("PATH".into(), with_usual(&path)))
                .into_iter()
                .collect(),
            ..GuestOptions::default()
        };
        let (kernel, program) = (kernel.clone(), program.clone());
        let worker = netns.run(move || Worker::start(directory, kernel, program, options));
        Ok(Self { worker, power, next: 0, netns, _record: record })
    }

    /// Tells the machine what it will do, and joins it to the network.
    pub(crate) fn prepare(
        &mut self,
        case: &ResolvedCase,
        spec: &LabSpec,
        topology: &Topology,
    ) -> Result<Session<'_>, Error> {
        let host = spec.machines.hosts.first().copied().unwrap_or_default();
        let number = self.next;
        self.next += 1;
        let mut userspace_links = Vec::new();
        for (subnet, near) in
            topology.stacks_of(host).flat_map(|stack| subnets_of(spec, host).map(move |l| (l, stack)))
        {
            // From the machine to the network first; a path's directions are from host 0's side.
            let wires = match (spec.userspace_links_impair(), host) {
                (true, 0) => (spec.paths[subnet].out.wire, spec.paths[subnet].back.wire),
                (true, _) => (spec.paths[subnet].back.wire, spec.paths[subnet].out.wire),
                (false, _) => (Wire::default(), Wire::default()),
            };
            let near = LinkEnd { at: near, name: format!("p{subnet}") };
            let far = LinkEnd { at: &self.netns, name: format!("tap{subnet}") };
            userspace_links.push(UserspaceLink::start(&far, &near, wires, (spec.machines.seed, subnet))?);
        }
        let job = Job { case: case.clone(), host: spec.hosts[host].clone(), seed: spec.machines.seed };
        Ok(Session {
            machine: self,
            number,
            host,
            job,
            _userspace_links: userspace_links,
            descheduler: None,
            begun: None,
            asked: spec.flows.iter().any(|flow| flow.server() == host),
            stopped: Vec::new(),
            busy: 0.0,
        })
    }

    fn folder(&self) -> &Path {
        self.worker.directory()
    }

    /// An error if it has ended.
    fn is_there(&mut self) -> Result<(), Error> {
        let cause = match self.worker.ended() {
            None => return Ok(()),
            Some(WorkerEnd::Failed(GuestError::Interrupted)) => return Err(Error::Interrupted),
            Some(WorkerEnd::Failed(error)) => return Err(error.into()),
            Some(WorkerEnd::Exited { code, last }) => format!("its program ended with code {code}: {last}"),
            Some(WorkerEnd::Gone) => "it is gone".to_owned(),
        };
        Err(Error::Measurement { what: "the virtual machine".to_owned(), cause, remedy: LOOK_AT.to_owned() })
    }
}

/// A list of folders of programs, and behind them those that every guest has.
fn with_usual(path: &OsStr) -> OsString {
    let mut both = path.to_owned();
    both.push(":");
    both.push(guest::PATH);
    both
}

/// The subnets that a host's flows need.
fn subnets_of(spec: &LabSpec, host: usize) -> std::ops::Range<usize> {
    0..cards(spec, host)
}

/// Number of network cards that a host needs.
pub(crate) fn cards(spec: &LabSpec, host: usize) -> usize {
    let own = spec.flows.iter().filter(|flow| flow.from == host);
    own.map(|flow| spec.paths_of(flow).len()).max().unwrap_or(0)
}

/// One run of a machine.
pub(crate) struct Session<'a> {
    machine: &'a mut VirtualMachine,
    number: u32,
    pub(crate) host: usize,
    job: Job,
    _userspace_links: Vec<UserspaceLink>,
    descheduler: Option<Descheduler>,
    /// True if the machine serves flows and the lab has not yet reported that all clients are done.
    asked: bool,
    /// Start of the run, and the CPU time that the machine had used by then.
    begun: Option<(Instant, Duration)>,
    /// For how long it was stopped each time.
    pub(crate) stopped: Vec<Duration>,
    /// The share of the time for which it was not stopped that it had a processor, as the host counts: to the machine itself, time
    /// that the host took is time that it worked.
    pub(crate) busy: f64,
}

impl Session<'_> {
    /// Gives the machine what its flows send and its job, waits until it is ready, and begins; from when on both count.
    pub(crate) fn begin(
        &mut self,
        spec: &LabSpec,
        files: &[(usize, std::path::PathBuf)],
        check: &dyn Fn() -> Result<(), Error>,
    ) -> Result<Instant, Error> {
        for (flow, file) in files {
            let copy = self.machine.folder().join(data_file(self.number, *flow));
            fs::copy(file, &copy).map_err(|e| Error::file(copy, e))?;
        }
        place(self.machine.folder(), &self.file("job"), &self.job)?;
        self.wait_for("ready", FILE_POLL_INTERVAL, check)?;
        for (flow, _) in files {
            // What stays is removed with the folder.
            let _ = fs::remove_file(self.machine.folder().join(data_file(self.number, *flow)));
        }
        place(self.machine.folder(), &self.file("go"), &())?;
        self.wait_for("begun", START_POLL_INTERVAL, check)?;
        let start = Instant::now();
        self.descheduler = Some(Descheduler::start(&self.machine.power, spec, self.host, start));
        self.begun = self.machine.power.used().map(|used| (start, used));
        Ok(start)
    }

    /// The listening end of a flow that the machine serves.
    pub(crate) fn server(&self, spec: &LabSpec, flow: usize) -> Elsewhere {
        let held = self.machine.folder().join(held_file(self.number, flow));
        Elsewhere { host: spec.hosts[self.host].clone(), held }
    }

    /// Says so to a machine that was asked: it has the last word when it knows.
    pub(crate) fn nobody_asks(&mut self, spec: &LabSpec) -> Result<(), Error> {
        if !std::mem::take(&mut self.asked) {
            return Ok(());
        }
        // What stays is removed with the folder.
        (0..spec.flows.len()).for_each(|flow| drop(fs::remove_file(self.server(spec, flow).held)));
        place(self.machine.folder(), &self.file("over"), &())
    }

    fn file(&self, what: &str) -> String {
        format!("{}.{what}", self.number)
    }

    fn wait_for(
        &mut self,
        what: &str,
        every: Duration,
        check: &dyn Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (name, begun) = (self.file(what), Instant::now());
        while take::<()>(self.machine.folder(), &name).is_none() {
            check()?;
            self.machine.is_there()?;
            if let Some(seen) = self.answer()? {
                drop(seen);
                break;
            }
            if begun.elapsed() > SETUP_TIMEOUT {
                let cause = format!("it is not {what} after {} s", SETUP_TIMEOUT.as_secs());
                let what = "the virtual machine".to_owned();
                return Err(Error::Measurement { what, cause, remedy: LOOK_AT.to_owned() });
            }
            thread::sleep(every);
        }
        Ok(())
    }

    /// Observations of the machine; `None` until its programs have ended.
    pub(crate) fn answer(&mut self) -> Result<Option<GuestReport>, Error> {
        let answer = match take::<Answer>(self.machine.folder(), &self.file("answer")) {
            Some(answer) => answer,
            None => {
                self.machine.is_there()?;
                return Ok(None);
            }
        };
        self.stopped = self.descheduler.take().map(Descheduler::end).unwrap_or_default();
        if let (Some((start, before)), Some(used)) = (self.begun, self.machine.power.used()) {
            let lasted = start.elapsed().saturating_sub(self.stopped.iter().sum());
            self.busy = used.saturating_sub(before).as_secs_f64() / lasted.as_secs_f64().max(1e-3);
        }
        match answer {
            Answer::Seen(seen) => Ok(Some(*seen)),
            Answer::Failed { kind, message } => Err(Error::Machine { kind, message }),
        }
    }
}

/// Stops and continues the machine by its host's pattern.
struct Descheduler {
    enough: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Duration>>>,
}

impl Descheduler {
    fn start(power: &Power, spec: &LabSpec, host: usize, start: Instant) -> Self {
        let (power, turns) = (power.clone(), spec.machines.duty_cycles(host, spec.duration));
        let enough = Arc::new(AtomicBool::new(false));
        let stop = enough.clone();
        let thread = thread::spawn(move || power.deschedule(start, turns, &stop));
        Self { enough, thread: Some(thread) }
    }

    fn end(mut self) -> Vec<Duration> {
        self.enough.store(true, Ordering::Relaxed);
        let thread = self.thread.take();
        thread
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .unwrap_or_default()
    }
}

impl Drop for Descheduler {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it panicked with has been printed.
            let _ = thread.join();
        }
    }
}

/// Makes a tap that stays when nobody has it open, and switches it on.
fn add_tap(at: &Netns, name: &str) -> Result<(), Error> {
    let own = name.to_owned();
    in_namespace(at, "making a tap in", move || make_tap(&own))?;
    // Its own packets would travel.
    crate::topology::no_ipv6(at)?;
    let index = at.port_index(name)?;
    in_namespace(at, "bringing up a tap of", move || Links::open()?.bring_up(index, None))
}

/// From linux/if_tun.h: types with a direction, as x86-64 and arm64 write them.
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETPERSIST: libc::c_ulong = 0x4004_54cb;

fn make_tap(name: &str) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: all bits zero are a request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: the kernel reads and writes the request, which outlives the call.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
    // SAFETY: the argument is a number.
    let kept = made == 0 && unsafe { libc::ioctl(file.as_raw_fd(), TUNSETPERSIST, 1) } == 0;
    if kept { Ok(()) } else { Err(io::Error::last_os_error()) }
}
