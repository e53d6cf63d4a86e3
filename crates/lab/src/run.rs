//! One run: build, load, send, sample, measure, remove.

mod running;

use crate::algorithms::load;
use crate::clock::{micros, sleep_until_next};
use crate::guard::{RunGuard, Tally};
use crate::measure::{Descheduled, Observed};
use crate::ports::Ports;
use crate::registry::Record;
use crate::sampler::{Sampler, Samples};
use crate::spec::{Cc, Flow, Job, LabSpec, server_port};
use crate::throttle::Throttles;
use crate::topology::Topology;
use crate::vm::{GuestReport, Session, VirtualMachine};
use crate::workload::{self, End, Programs, Report};
use crate::{Error, Netns, Role, clean, cpu, energy, instructions, measure, ports};
use running::{Running, is_due};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vmcc_results::RunOutput;
use vmcc_scenario::ResolvedCase;

/// Grace period of a program beyond its time; emulated machines are slow to finish.
const GRACE_PERIOD: Duration = Duration::from_secs(20);
/// Interval of progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
const LOOK_AT: &str =
    "run the same command by hand in a namespace, and see whether the machine is overloaded";

/// Progress of a run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Time since the traffic started.
    pub elapsed: Duration,
    /// Time that the traffic takes.
    pub total: Duration,
    /// Current rate of each path, with its name.
    pub path_rates_bps: Vec<(String, f64)>,
}

/// Control of a run by its caller.
pub struct Control<'a> {
    /// Set by the caller to stop; the run ends with [`Error::Interrupted`] within a few hundred milliseconds.
    pub cancel: &'a AtomicBool,
    /// Called a few times per second.
    pub progress: &'a mut dyn FnMut(&Progress),
    /// The programs that send.
    pub programs: Programs,
    /// The virtual machine that a host is, if one is, and the case of the run, which the machine gets.
    pub machine: Option<(&'a mut VirtualMachine, &'a ResolvedCase)>,
}

impl Control<'_> {
    fn check(&self) -> Result<(), Error> {
        if self.cancel.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// Runs `spec` on this machine's kernel.
///
/// Needs root. Leftovers of killed runs are removed first.
///
/// # Errors
/// See [`Error`]; whatever was made is removed.
pub fn run(spec: &LabSpec, control: &mut Control<'_>) -> Result<RunOutput, Error> {
    spec.check()?;
    spec.flows.iter().try_for_each(|flow| workload::of(flow, &control.programs).check())?;
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::Privilege { action: "making network namespaces".to_owned() });
    }
    clean::clean()?;
    let mut record = Record::claim(spec.run_id.as_deref())?;
    let algorithms = load(spec.flows.iter().filter(|flow| needs_here(spec, flow)))?;
    control.check()?;
    let topology = Topology::build(spec, &mut record)?;
    let ports = ports::attach(spec, &topology)?;
    control.check()?;
    select(spec, &topology)?;
    let mut throttles = Throttles::prepare(spec, &topology, &mut record)?;
    let mut session = session(spec, control, &topology)?;
    let built =
        Built { topology: &topology, ports: &ports, throttles: &mut throttles, session: session.as_mut() };
    let mut guard = RunGuard::new(&algorithms, spec.min_paths)?;
    let observed = transfer(spec, control, built, (&mut guard, &mut record));
    let asked = guard.end(&algorithms);
    let observed = Observed { asked, ..observed? };
    // Nothing uses the algorithms any more: the programs have ended.
    drop((session, ports, topology, algorithms, throttles));
    measure::output(spec, &observed)
}

/// Joins the run's virtual machine to the network, if it has one.
fn session<'a>(
    spec: &LabSpec,
    control: &mut Control<'a>,
    topology: &Topology,
) -> Result<Option<Session<'a>>, Error> {
    let Some((key, host)) = spec.first_machine() else { return Ok(None) };
    let Some((machine, case)) = control.machine.take() else {
        return Err(Error::NotExpressible {
            key: key.to_owned(),
            problem: format!("{host} would be a virtual machine, and there is none for it here"),
            remedy: "use `--engine kernel` or `--engine sim`".to_owned(),
        });
    };
    machine.prepare(case, spec, topology).map(Some)
}

/// Parts of a run that a transfer uses.
struct Built<'a, 'b> {
    topology: &'a Topology,
    ports: &'a Ports,
    throttles: &'a mut Throttles,
    session: Option<&'a mut Session<'b>>,
}

/// True if a flow's congestion control runs on this kernel. That of a flow which a virtual machine sends is needed here only if its
/// receiver has to echo marks as the algorithm's receivers do.
fn needs_here(spec: &LabSpec, flow: &Flow) -> bool {
    let echoes = match &flow.cc {
        Cc::Registry(params) => params.algorithm().info().needs_ecn,
        Cc::Native(_) | Cc::Own(_) => true,
    };
    echoes || !spec.machines.hosts.contains(&flow.from)
}

/// Makes each flow's congestion control the default of its endpoints, so that connections start with it and the
/// receiver answers in its way (the echo of marks is the receiver's work). iperf3 selects it once more per
/// connection; that alone suffices for kernel algorithms that may not be a namespace's default.
fn select(spec: &LabSpec, topology: &Topology) -> Result<(), Error> {
    for (index, flow) in spec.flows.iter().enumerate().filter(|(_, flow)| needs_here(spec, flow)) {
        let (sender, receiver) = topology.ends(index);
        for end in [sender, receiver] {
            let done = end.sysctl("net.ipv4.tcp_congestion_control", &flow.cc.kernel_name());
            match (done, &flow.cc) {
                (Ok(()), _) | (Err(Error::Privilege { .. }), Cc::Native(_) | Cc::Own(_)) => {}
                (Err(error), _) => return Err(not_selectable(flow, end, &error)),
            }
        }
    }
    Ok(())
}

fn not_selectable(flow: &Flow, end: &Netns, error: &Error) -> Error {
    Error::CongestionControl {
        name: flow.cc.kernel_name(),
        cause: format!(
            "it cannot be selected in namespace {} ({error}); `vmcc doctor` says what this kernel lacks",
            end.name()
        ),
    }
}

fn transfer(
    spec: &LabSpec,
    control: &mut Control<'_>,
    built: Built<'_, '_>,
    (guard, record): (&mut RunGuard, &mut Record),
) -> Result<Observed, Error> {
    let Built { topology, ports, throttles, mut session } = built;
    let elsewhere = session.as_ref().map(|session| session.host);
    let mut running = Vec::new();
    for (index, flow) in spec.flows.iter().enumerate() {
        let server = match &session {
            Some(session) if flow.server() == session.host => End::Elsewhere(session.server(spec, index)),
            _ => {
                let (sender, receiver) = topology.ends(index);
                let at = if flow.job.is_fetched() { sender } else { receiver };
                workload::of(flow, &control.programs).serve(at, server_port(index), record)?
            }
        };
        running.push(Running::new(index, server));
        control.check()?;
    }
    let mut sampler = Sampler::open(topology, ports, spec)?;
    let mut remaps = spec.remaps.iter().peekable();
    let mut cuts = spec.cuts.iter().peekable();
    let window = (spec.warmup.to_duration(), spec.duration.to_duration());
    let mut cpu = cpu::Window::new(window.0, window.1);
    let mut instructions = instructions::Window::new(window.0, window.1);
    let mut energy = energy::Window::new(Path::new(energy::POWERCAP), window.0, window.1);
    let start = match &mut session {
        Some(session) => {
            session.begin(spec, &files(spec, control, session.host, &running), &|| control.check())?
        }
        None => Instant::now(),
    };
    let mut absent = None;
    // A machine carries back what it saw when its programs have ended.
    let grace = if session.is_some() { 4 * GRACE_PERIOD } else { GRACE_PERIOD };
    let deadline = spec.duration.to_duration() + grace;
    let mut next_progress = Duration::ZERO;
    let mut elapsed = Duration::ZERO;
    // Where everything ends before its time, queues are still watched to the end.
    while elapsed < spec.duration.to_duration()
        || running.iter().any(|flow| flow.report.is_none())
        || session.is_some() && absent.is_none()
    {
        control.check()?;
        elapsed = start.elapsed();
        throttles.update(elapsed)?;
        while let Some(remap) = remaps.next_if(|remap| elapsed >= remap.at.to_duration()) {
            sampler.ask_now_and_then()?;
            topology.remap(spec, remap)?;
            sampler.remap(remap);
        }
        while let Some(cut) = cuts.next_if(|cut| elapsed >= cut.at.to_duration()) {
            topology.cut(cut)?;
        }
        let due: Vec<bool> = running.iter().map(|flow| is_due(spec, &running, flow)).collect();
        let here = |flow: &Running| elsewhere != Some(spec.flows[flow.flow].client());
        for (flow, is_due) in running.iter_mut().zip(due).filter(|(flow, _)| here(flow)) {
            flow.advance(spec, &control.programs, topology, record, (elapsed, is_due))?;
        }
        let asks = |flow: &Running| here(flow) && elsewhere == Some(spec.flows[flow.flow].server());
        if let Some(session) = &mut session
            && elapsed >= spec.duration.to_duration()
            && running.iter().filter(|flow| asks(flow)).all(|flow| flow.report.is_some())
        {
            session.nobody_asks(spec)?;
        }
        if absent.is_none()
            && let Some(session) = &mut session
            && let Some(seen) = session.answer()?
        {
            for flow in &mut running {
                flow.elsewhere.client = seen.clients.iter().find(|client| client.flow == flow.flow).cloned();
            }
            let stopped = std::mem::take(&mut session.stopped);
            absent = Some((seen, session.host, stopped, session.busy));
        }
        sampler.take(micros(elapsed))?;
        // Receivers know which subflows belong together, also those that are closed now.
        guard.act(|| sampler.ask_now_and_then())?;
        cpu.update(elapsed);
        energy.update(elapsed);
        instructions.update(elapsed);
        if elapsed >= next_progress {
            next_progress += PROGRESS_INTERVAL;
            sampler.ask_now_and_then()?;
            report_progress(spec, control, sampler.samples(), elapsed);
        }
        // Files may come and go between two times of asking.
        if running.iter().any(|flow| flow.is_closing(spec, elapsed)) {
            sampler.ask_now_and_then()?;
        }
        for flow in running.iter_mut().filter(|flow| !here(flow)) {
            flow.settle(spec, &control.programs, elapsed)?;
        }
        if elapsed > deadline {
            let cause = || format!("it has not ended {} s after its time", grace.as_secs());
            if let Some(late) = running.iter().find(|flow| flow.report.is_none()) {
                return Err(late.failed(cause()));
            }
            if session.is_some() && absent.is_none() {
                let (what, remedy) = ("the virtual machine".to_owned(), LOOK_AT.to_owned());
                return Err(Error::Measurement { what, cause: cause(), remedy });
            }
        }
        sleep_until_next(start, spec.sample_interval.to_duration());
    }
    let mut samples = sampler.finish();
    let absent = absent.map(|(seen, host, stopped, busy)| {
        let GuestReport { tracks, reinjected, fates, off, asked, .. } = seen;
        samples.join(tracks, &reinjected, fates);
        Descheduled { host, noticed_us: off, stopped, busy, asked }
    });
    let started_us: Vec<u64> = running.iter().map(|flow| started(spec, &samples, flow)).collect();
    for (flow, start_us) in running.iter().zip(&started_us) {
        let told = flow.report.iter().flat_map(|report| &report.paths).cloned().collect::<Vec<_>>();
        samples.tell(spec, flow.flow, &told, *start_us);
    }
    let mut reports: Vec<Report> = running.into_iter().filter_map(|flow| flow.report).collect();
    for (flow, report) in reports.iter_mut().enumerate() {
        report.complete_ports(samples.tracks.iter().filter(|track| track.flow == flow));
    }
    let (cpu_s, energy, instructions) = (cpu.busy_s(), energy.energy(), instructions.executed());
    Ok(Observed {
        samples,
        reports,
        started_us,
        ports: ports.records()?,
        cpu_s,
        energy,
        instructions,
        absent,
        asked: Tally::default(),
    })
}

/// Files that a host's flows send, by flow.
fn files(spec: &LabSpec, control: &Control<'_>, host: usize, running: &[Running]) -> Vec<(usize, PathBuf)> {
    let own = running.iter().filter(|flow| spec.flows[flow.flow].client() == host);
    let file = |flow: &Running| Some((flow.flow, flow.data(spec, &control.programs)?));
    own.filter_map(file).collect()
}

fn report_progress(spec: &LabSpec, control: &mut Control<'_>, samples: &Samples, elapsed: Duration) {
    let now = micros(elapsed);
    let from = now.saturating_sub(1_000_000);
    let rate = |path: usize| {
        let tracks = samples.tracks.iter().filter(|track| track.path == path);
        let measured = tracks.filter(|track| spec.flows[track.flow].role == Role::Measured);
        let bytes: f64 = measured.map(|track| track.acked_within(from, now)).sum();
        bytes * 8e6 / (now - from).max(1) as f64
    };
    let path_rates_bps =
        spec.paths.iter().enumerate().map(|(i, path)| (path.name.clone(), rate(i))).collect();
    let total = spec.duration.to_duration();
    (control.progress)(&Progress { elapsed: elapsed.min(total), total, path_rates_bps });
}

/// Origin of the times in a flow's report, in microseconds after the run's start. iperf3 exchanges parameters before data, and its report
/// counts from the data. Other reports count from the start of their programs.
fn started(spec: &LabSpec, samples: &Samples, flow: &Running) -> u64 {
    match &spec.flows[flow.flow].job {
        Job::Bulk { .. } if flow.counts_from_start() => 0,
        Job::Bulk { .. } if spec.flows[flow.flow].quic().is_none() => first_byte(samples, flow.flow),
        _ => micros(flow.sent),
    }
}

/// Start of a flow's data, from which its report counts.
fn first_byte(samples: &Samples, flow: usize) -> u64 {
    let tracks = samples.tracks.iter().filter(|track| track.flow == flow);
    let busiest = tracks.max_by_key(|track| track.points.last().map_or(0, |point| point.bytes_acked));
    busiest.and_then(|track| track.points.first()).map_or(0, |point| point.t_us)
}
