//! The congestion-control algorithms, compiled natively, behind a safe wrapper.
//!
//! The algorithms are the C files of `algorithms/src`; the same files run in the kernel as BPF. This
//! crate contains no equation: it compiles them, describes them ([`Algorithm::info`]) and calls them.
//! `algorithms/include/cc.h` says what each hook means and which fields a host must fill in.
//!
//! ```
//! use vmcc_cc::{Algorithm, Event, EventFlags, Params, Path};
//!
//! let reno = Algorithm::by_name("reno")?;
//! let params = Params::defaults(reno);
//! let mut path = Path::default();
//! let mut event = Event {
//!     now_us: 1, cwnd_pkt: 10, ssthresh_pkt: 5, srtt_8us: 800, acked_pkt: 10,
//!     flags: EventFlags::CWND_LIMITED, ..Event::default()
//! };
//! reno.init(&event, &mut path, None, &params);
//! event.now_us = 101;
//! let decision = reno.on_grow(&event, &mut path, None, &params);
//! assert_eq!(decision.cwnd(), Some(11));
//! # Ok::<(), vmcc_cc::UnknownAlgorithm>(())
//! ```
//!
//! Every hook costs one indirect call and allocates nothing. [`Algorithm::register`] adds an algorithm that was compiled elsewhere
//! (`vmcc-external`).

mod abi;
mod algorithm;
mod hooks;
mod params;
mod pool;
pub mod trace;
pub mod vectors;

pub use abi::{
    Cause, Decision, DecisionFlags, Event, EventFlags, Group, History, Host, Path, Sharing, Slot, SlotFlags,
    State,
};
pub use algorithm::{Algorithm, AlgorithmInfo, NameTaken, ParamInfo, UnknownAlgorithm};
pub use params::{ParamError, ParamValue, Params};
pub use pool::{Pool, PoolMember};

include!(concat!(env!("OUT_DIR"), "/limits.rs"));
/// Largest window of the validity range, in packets: `CC_MAX_CWND_PKT`.
pub const MAX_CWND_PKT: u32 = 1 << 20;
/// Largest smoothed round-trip time of the validity range, in 1/8 microsecond (10 s).
pub const MAX_SRTT_8US: u32 = 80_000_000;
/// `ssthresh` of a path that was never reduced: `CC_SSTHRESH_INFINITE`.
pub const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;
