//! Cases on this host's kernel.

use crate::engine::{OVERHEAD, checks, fraction, off_somewhere, specs};
use crate::guest::{self, KernelImage, WorkerProgram};
use crate::spec::Flow;
use crate::vm::{VirtualMachine, cards};
use crate::{Control, Error, LabSpec, Programs, workload};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use vmcc_engine::{Engine, EngineError};
use vmcc_results::RunOutput;
use vmcc_scenario::{Plan, ResolvedCase};

/// Network namespaces, shaped links and real programs on the kernel that runs this process. A host that shall be
/// a virtual machine, or that the plan takes off its processors, is a small one.
#[derive(Debug)]
pub struct Kernel {
    machines: Option<Machines>,
    programs: Programs,
    /// Versions of the applications that run.
    versions: Vec<(String, String)>,
}

/// Resources of the plan's virtual machines.
#[derive(Debug)]
struct Machines {
    /// In every case; others are some in cases that name them.
    off: BTreeSet<String>,
    cards: usize,
    kernel: KernelImage,
    worker: WorkerProgram,
    time_limit: Duration,
    running: Mutex<Option<VirtualMachine>>,
}

impl Kernel {
    /// The kernel engine for `plan`. `worker` is what a virtual machine runs, if the plan asks for one: a program that calls
    /// [`sender`](crate::sender()) with its last argument.
    ///
    /// # Errors
    /// The lab cannot express the plan, or this host cannot run it.
    pub fn for_plan(plan: &Plan, worker: Option<WorkerProgram>) -> Result<Self, EngineError> {
        let specs = specs(plan)?;
        checks::kernel_can(plan)?;
        let flows = specs.iter().flat_map(|spec| &spec.flows);
        let programs = Programs::default();
        let versions = workload::versions(flows, &programs);
        let Some(first) = specs.iter().find(|spec| !spec.machines.hosts.is_empty()) else {
            return Ok(Self { machines: None, programs, versions });
        };
        if let Some(own) = specs.iter().flat_map(|spec| &spec.flows).find_map(Flow::external) {
            let problem = format!("a virtual machine has the registry's algorithms, and not {own}");
            return Err(Error::not_expressible(first.machines.key, problem).into());
        }
        let worker = worker.ok_or_else(|| {
            Error::not_expressible(first.machines.key, "no kernel is given for the virtual machine")
        })?;
        let most = specs.iter().flat_map(|spec| spec.machines.hosts.iter().map(|host| cards(spec, *host)));
        let durations = plan.cases.iter().map(|c| Duration::from_nanos(c.scenario.duration.get()) + OVERHEAD);
        let machines = Machines {
            off: off_somewhere(plan),
            cards: most.max().unwrap_or(0),
            kernel: guest::newest_kernel()?,
            worker,
            time_limit: durations.sum::<Duration>() * plan.runs + OVERHEAD,
            running: Mutex::new(None),
        };
        Ok(Self { machines: Some(machines), programs, versions })
    }

    /// Adds words to the command of the ends of QUIC, before their order.
    #[must_use]
    pub fn with_quic_options(mut self, words: Vec<String>) -> Self {
        self.programs.quic.extend(words);
        self
    }
}

impl From<Error> for EngineError {
    /// The text of the lab's errors has the remedy.
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

impl Engine for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn most_jobs(&self) -> Option<usize> {
        Some(1)
    }

    fn facts(&self) -> Vec<(String, String)> {
        let kernel = |machines: &Machines| ("vm_kernel".to_owned(), machines.kernel.release().to_owned());
        self.machines.iter().map(kernel).chain(self.versions.iter().cloned()).collect()
    }

    fn run(
        &self,
        case: &ResolvedCase,
        seed: u64,
        stop: &AtomicBool,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<RunOutput, EngineError> {
        let mut report = |p: &crate::Progress| progress(fraction(p));
        if let Some(machines) = &self.machines {
            return Ok(machines.run(case, seed, stop, &mut report)?);
        }
        let spec = LabSpec::try_from(case)?.with_seed(seed);
        Ok(without_machine(&spec, self.programs.clone(), (stop, &mut report))?)
    }
}

fn without_machine(
    spec: &LabSpec,
    programs: Programs,
    (cancel, progress): (&AtomicBool, &mut dyn FnMut(&crate::Progress)),
) -> Result<RunOutput, Error> {
    crate::run(spec, &mut Control { cancel, progress, programs, machine: None })
}

impl Machines {
    /// One run. A machine that had one which failed may be in any state: the next run has a new one. One that a case does not need would
    /// take processor time from it.
    fn run(
        &self,
        case: &ResolvedCase,
        seed: u64,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&crate::Progress),
    ) -> Result<RunOutput, Error> {
        let spec = LabSpec::of(case, &self.off, seed)?.with_seed(seed);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let before = running.take();
        if spec.machines.hosts.is_empty() {
            drop(before);
            return without_machine(&spec, Programs::default(), (stop, progress));
        }
        let mut machine = match before {
            Some(machine) => machine,
            None => VirtualMachine::start(&self.kernel, self.cards, &self.worker, self.time_limit)?,
        };
        let (programs, attached) = (Programs::default(), Some((&mut machine, case)));
        let mut control = Control { cancel: stop, progress, programs, machine: attached };
        let output = crate::run(&spec, &mut control)?;
        *running = Some(machine);
        Ok(output)
    }
}
