//! Runs recorded events through the BPF build of an algorithm, without a socket.
//!
//! The comparison of the two builds of the same C: what [`Replayer::begin`] and [`Replayer::step`] leave must equal,
//! bit for bit, what [`Algorithm::begin`] and [`Algorithm::step`] leave. Needs the privilege to load BPF.

use crate::error::{ControlError, LoadError};
use crate::objects::{self, Log};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use vmcc_cc::{Algorithm, Decision, DecisionFlags, Event, Group, Host, Params, Path, State};

const STEP_MAP: &str = ".data.step";
const LOG_LINES: usize = 12;

// struct replay_step of kernel/shared.h.
const EVENT_AT: usize = 0;
const HOST_AT: usize = 64;
const GROUP_AT: usize = 184;
const PARAMS_AT: usize = 440;
const BEGIN_AT: usize = 536;
const HAS_GROUP_AT: usize = 540;
const STEP_BYTES: usize = 544;

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

    /// As [`Algorithm::begin`].
    ///
    /// # Errors
    /// The kernel refuses to run the program.
    pub fn begin(
        &self,
        event: &Event,
        host: &mut Host,
        group: Option<&Group>,
        params: &Params,
    ) -> Result<(), ControlError> {
        self.run(true, event, host, group, params)
    }

    /// As [`Algorithm::step`].
    ///
    /// # Errors
    /// The kernel refuses to run the program.
    pub fn step(
        &self,
        event: &Event,
        host: &mut Host,
        group: Option<&Group>,
        params: &Params,
    ) -> Result<(), ControlError> {
        self.run(false, event, host, group, params)
    }

    fn run(
        &self,
        begin: bool,
        event: &Event,
        host: &mut Host,
        group: Option<&Group>,
        params: &Params,
    ) -> Result<(), ControlError> {
        let failed = |e: libbpf_rs::Error| ControlError::kernel("replay an event", e);
        let key = 0_u32.to_ne_bytes();
        let input = encode(begin, event, host, group, params);
        self.step.update(&key, &input, MapFlags::ANY).map_err(failed)?;
        let program = self.object.progs_mut().next().expect("the object defines one program");
        program.test_run(ProgramInput::default()).map_err(failed)?;
        let output = self.step.lookup(&key, MapFlags::ANY).map_err(failed)?;
        *host = output
            .as_deref()
            .and_then(|bytes| decode(bytes.get(HOST_AT..GROUP_AT)?))
            .ok_or_else(|| ControlError::kernel("replay an event", "the answer is not a path"))?;
        Ok(())
    }
}

fn encode(begin: bool, event: &Event, host: &Host, group: Option<&Group>, params: &Params) -> Vec<u8> {
    let mut bytes = vec![0; STEP_BYTES];
    bytes[EVENT_AT..HOST_AT].copy_from_slice(as_bytes(event));
    bytes[HOST_AT..GROUP_AT].copy_from_slice(as_bytes(host));
    if let Some(group) = group {
        bytes[GROUP_AT..PARAMS_AT].copy_from_slice(as_bytes(group));
    }
    bytes[PARAMS_AT..BEGIN_AT].copy_from_slice(as_bytes(params.raw()));
    bytes[BEGIN_AT..HAS_GROUP_AT].copy_from_slice(&u32::from(begin).to_ne_bytes());
    bytes[HAS_GROUP_AT..STEP_BYTES].copy_from_slice(&u32::from(group.is_some()).to_ne_bytes());
    bytes
}

/// Types of the C interface: their sizes are asserted where they are declared, and leave no room for padding.
trait Plain: Copy {}
impl Plain for Event {}
impl Plain for Host {}
impl Plain for Group {}
impl Plain for [u64; vmcc_cc::MAX_PARAMS] {}

fn as_bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `T` is plain data without padding, so every byte is initialised; the slice borrows `value`.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Reads `struct cc_host`; `None` if its state is none.
fn decode(bytes: &[u8]) -> Option<Host> {
    let word = |i: usize| Some(u32::from_ne_bytes(bytes.get(i..i + 4)?.try_into().ok()?));
    let long = |i: usize| Some(u64::from_ne_bytes(bytes.get(i..i + 8)?.try_into().ok()?));
    let mut path = Path { credit_q40: long(0)?.cast_signed(), ..Path::default() };
    for (i, slot) in path.pub_words.iter_mut().enumerate() {
        *slot = long(8 + 8 * i)?;
    }
    for (i, slot) in path.priv_words.iter_mut().enumerate() {
        *slot = long(24 + 8 * i)?;
    }
    let state = match word(104)? {
        0 => State::Open,
        1 => State::Disorder,
        2 => State::Cwr,
        3 => State::Recovery,
        4 => State::Loss,
        _ => return None,
    };
    Some(Host {
        path,
        decision: Decision {
            set: DecisionFlags(word(80)?),
            cwnd_pkt: word(84)?,
            ssthresh_pkt: word(88)?,
            peer: word(92)?,
        },
        cwnd_pkt: word(96)?,
        ssthresh_pkt: word(100)?,
        state,
        reducing: word(108)?,
        cut_end: word(112)?,
        reserved: word(116)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_the_way_through_bytes() {
        let mut host = Host::new(7);
        host.path.credit_q40 = -5;
        host.path.pub_words = [1, u64::MAX];
        host.path.priv_words = std::array::from_fn(|i| i as u64 + 10);
        host.decision = Decision { set: DecisionFlags(5), cwnd_pkt: 1, ssthresh_pkt: 2, peer: 3 };
        host.state = State::Recovery;
        host.reducing = 1;
        host.cut_end = 0xffff_fff0;
        assert_eq!(decode(as_bytes(&host)), Some(host));
    }

    #[test]
    fn a_state_that_is_none_is_refused() {
        let mut bytes = as_bytes(&Host::new(1)).to_vec();
        bytes[104] = 9;
        assert_eq!(decode(&bytes), None);
        assert_eq!(decode(&bytes[..50]), None);
    }
}
