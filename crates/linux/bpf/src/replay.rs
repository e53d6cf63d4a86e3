//! Runs recorded events through the BPF build of an algorithm, without a socket.
//!
//! The comparison of the two builds of the same C: what [`Replayer::run`] leaves must equal,
//! bit for bit, what [`Algorithm::begin`] and [`Algorithm::step`] leave. Needs the privilege to load BPF.

use crate::bench::Statistics;
use crate::error::{ControlError, LoadError};
use crate::objects::{self, Log};
use crate::shared::algorithm::{RawParams, ReplayStep};
use crate::shared::{self, FIRST};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, Program, ProgramInput};
use std::os::fd::AsFd;
use vmcc_cc::trace::{Conduct, Seeded, Walk, vary_params};
use vmcc_cc::{Algorithm, Event, Group, Host, MAX_PATHS, Params};
use zerocopy::{IntoBytes, TryFromBytes};

const STEP_MAP: &str = ".data.step";
const LOG_LINES: usize = 12;

/// The BPF build of one algorithm, ready to replay.
pub struct Replayer {
    object: Object,
    step: MapHandle,
}

impl Replayer {
    /// Loads the BPF build of `algorithm`.
    ///
    /// # Errors
    /// Missing privilege, or the kernel refuses.
    pub fn load(algorithm: Algorithm) -> Result<Self, LoadError> {
        let log = Log::start();
        let loaded = (|| {
            let object = objects::Object::of(algorithm);
            let mut builder = ObjectBuilder::default();
            let object =
                builder.name(format!("replay_{}", object.name))?.open_memory(object.replay)?.load()?;
            let map = object.maps().find(|m| m.name() == STEP_MAP).expect("the object defines it");
            let step = MapHandle::try_from(&map)?;
            Ok((object, step))
        })();
        let (object, step) = loaded.map_err(|error: libbpf_rs::Error| LoadError::Refused {
            kernel_name: algorithm.info().kernel_name,
            cause: error.to_string(),
            log: log.tail(LOG_LINES),
        })?;
        Ok(Self { object, step })
    }

    /// Mean run time of a step over `calls` calls with the same event, in nanoseconds: the kernel's BPF
    /// statistics, with their own part in it ([`Statistics::overhead_ns`]).
    ///
    /// # Errors
    /// The kernel refuses to run the program.
    pub fn step_ns(
        &self,
        _counted: &Statistics,
        (event, host, group): (&Event, &Host, Option<&Group>),
        params: &Params,
        calls: u32,
    ) -> Result<f64, ControlError> {
        let failed = |e: libbpf_rs::Error| ControlError::kernel("replay an event", e);
        shared::write(&self.step, FIRST, &step_of(false, event, host, group, params)).map_err(failed)?;
        let program = self.object.progs_mut().next().expect("the object defines one program");
        let before_ns = self.run_time_ns()?;
        for _ in 0..calls {
            program.test_run(ProgramInput::default()).map_err(failed)?;
        }
        Ok((self.run_time_ns()? - before_ns) as f64 / f64::from(calls))
    }

    fn run_time_ns(&self) -> Result<u64, ControlError> {
        let program = self.object.progs().next().expect("the object defines one program");
        let id = Program::id_from_fd(program.as_fd());
        let id = id.map_err(|e| ControlError::kernel("read a program's run time", e))?;
        let info = ProgInfoIter::default().find(|info| info.id == id);
        Ok(info.map_or(0, |info| info.run_time_ns))
    }

    /// As [`Algorithm::begin`] if `begin`, else as [`Algorithm::step`].
    ///
    /// # Errors
    /// The kernel refuses to run the program.
    pub fn run(
        &self,
        begin: bool,
        event: &Event,
        host: &mut Host,
        group: Option<&Group>,
        params: &Params,
    ) -> Result<(), ControlError> {
        let failed = |e: libbpf_rs::Error| ControlError::kernel("replay an event", e);
        shared::write(&self.step, FIRST, &step_of(begin, event, host, group, params)).map_err(failed)?;
        let program = self.object.progs_mut().next().expect("the object defines one program");
        program.test_run(ProgramInput::default()).map_err(failed)?;
        let output = self.step.lookup(FIRST.as_bytes(), MapFlags::ANY).map_err(failed)?;
        // A state that is none is refused.
        let output = output.and_then(|bytes| ReplayStep::try_read_from_bytes(&bytes).ok());
        let output =
            output.ok_or_else(|| ControlError::kernel("replay an event", "the answer is not a path"))?;
        *host = output.host;
        Ok(())
    }
}

/// Error of comparing the two builds of an algorithm.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// This host does not load BPF, not even the registry's.
    #[error("this host does not load algorithms: {0}")]
    Host(#[source] LoadError),
    /// The kernel refuses the algorithm.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A step cannot be run.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The builds do different things.
    #[error(
        "{algorithm}: the kernel's build leaves {kernel:?} where the native one leaves {native:?}, after {event:?}"
    )]
    Differs {
        /// The algorithm.
        algorithm: Algorithm,
        /// The event.
        event: Box<Event>,
        /// Result of the native build.
        native: Box<Host>,
        /// Result of the kernel's build.
        kernel: Box<Host>,
    },
}

/// Compares the two builds of an algorithm on connections of some numbers of paths; returns the number of steps.
///
/// # Errors
/// They differ, the kernel refuses the algorithm, or this host loads none.
pub fn compare(algorithm: Algorithm) -> Result<usize, CompareError> {
    const PATHS: [usize; 5] = [1, 2, 3, 8, MAX_PATHS];
    const STEPS: usize = 300;
    let known = Algorithm::by_name("reno").expect("in the registry");
    Replayer::load(known).map_err(CompareError::Host)?;
    let replayer = Replayer::load(algorithm)?;
    let mut count = 0;
    for (paths, conduct) in
        PATHS.iter().flat_map(|paths| [(*paths, Conduct::Lawful), (*paths, Conduct::Wild)])
    {
        let mut numbers = Seeded(paths as u64);
        let mut params = Params::defaults(algorithm);
        vary_params(&mut params, &mut numbers).expect("endless");
        let mut walk = Walk::new(algorithm, params, paths, conduct, numbers).expect("endless");
        for _ in 0..STEPS {
            let step = walk.advance().expect("endless");
            let mut kernel = step.before;
            let group = (step.grouped != 0).then_some(&step.group);
            replayer.run(step.begin != 0, &step.event, &mut kernel, group, &params)?;
            if kernel != step.after {
                let (event, native) = (Box::new(step.event), Box::new(step.after));
                return Err(CompareError::Differs { algorithm, event, native, kernel: Box::new(kernel) });
            }
            count += 1;
        }
    }
    Ok(count)
}

fn step_of(begin: bool, event: &Event, host: &Host, group: Option<&Group>, params: &Params) -> ReplayStep {
    ReplayStep {
        event: *event,
        host: *host,
        group: group.copied().unwrap_or_default(),
        params: RawParams { v: *params.raw() },
        begin: u32::from(begin),
        has_group: u32::from(group.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use vmcc_cc::{Decision, DecisionFlags, State};

    fn host() -> Host {
        let mut host = Host::new(7);
        host.path.credit_q40 = -5;
        host.path.pub_words = [1, u64::MAX];
        host.path.priv_words = std::array::from_fn(|i| i as u64 + 10);
        host.decision = Decision { set: DecisionFlags(5), cwnd_pkt: 1, ssthresh_pkt: 2, peer: 3, gap_us: 4 };
        host.state = State::Recovery;
        host.reducing = 1;
        host.cut_end = 0xffff_fff0;
        host
    }

    #[test]
    fn path_state_round_trips_through_bytes() {
        assert_eq!(Host::try_read_from_bytes(host().as_bytes()), Ok(host()));
    }

    #[test]
    fn invalid_state_is_refused() {
        let mut bytes = host().as_bytes().to_vec();
        bytes[offset_of!(Host, state)] = 9;
        assert!(Host::try_read_from_bytes(&bytes).is_err());
        assert!(Host::try_read_from_bytes(&bytes[..50]).is_err());
    }
}
