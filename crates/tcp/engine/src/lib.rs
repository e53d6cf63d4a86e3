//! Multipath sessions over plain TCP: streams striped over several ordered byte pipes (*carriers*), with all signalling in the payload.
//!
//! For networks that block UDP and strip MPTCP's option but pass TCP. Nothing here reads a clock, opens a socket or draws random
//! numbers. The caller of a [`Session`] brings bytes per carrier, the time and a snapshot of each carrier's `TCP_INFO`, and writes
//! the records that the session hands out:
//!
//! ```
//! # use vmcc_tcp::{Binding, Config, Secrets, Session};
//! # use vmcc_units::time::Time;
//! # let now = Time::ZERO;
//! let mut client = Session::connect(now, Config::default(), Secrets([7; 32]));
//! let carrier = client.add_carrier(now, Binding::PLAIN).expect("the first one");
//! let mut records = Vec::new();
//! while let Some(carrier) = client.poll_transmit(now, &mut records) {
//!     // Write `records` to the carrier's socket.
//!     records.clear();
//! }
//! while let Some(event) = client.poll_event() {
//!     // Read and write streams; dial more carriers once connected.
//! }
//! let wake_up = client.poll_timeout(); // then: client.handle_timeout(now)
//! ```
//!
//! * **Acknowledgment.** A carrier is ordered, so the cumulative number of its records is all that there is to acknowledge. Ranges of
//!   streams return to the streams when their carrier falls silent or dies, and leave on another. The receiver discards duplicates.
//! * **Joining.** A further carrier shows the session's token, a number that was never used, and a MAC under a key that only both
//!   ends have. The MAC covers the carrier's [`Binding`] (an exporter of its TLS), so a recorded JOIN is useless elsewhere.
//! * **Head-of-line blocking.** At most a congestion window and [`Config::unsent_limit`] is written into a carrier.
//!
//! Not here: hand-over of a raw connection to framing, coupled congestion control, 0-RTT data.

#![forbid(unsafe_code)]

mod accept;
mod carrier;
mod config;
mod error;
mod event;
mod keys;
mod record;
mod session;
pub mod tls;
mod wire;

pub use accept::{Acceptor, Greeting};
pub use carrier::CarrierInfo;
pub use config::Config;
pub use error::{CarrierError, JoinError, Refusal, SessionError};
pub use event::{CarrierId, Event};
pub use keys::{Binding, Secrets, Token};
pub use record::MAX_RECORD;
pub use session::{CarrierStats, Session, Stats};
pub use vmcc_streams::{Dir, StreamError};
pub use wire::{Hello, Join, refusal};
