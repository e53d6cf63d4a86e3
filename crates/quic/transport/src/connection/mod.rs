//! One connection: parts that own their state, and what happens between them.
//!
//! A part knows nothing of the others.
//!
//! | part | owns |
//! |---|---|
//! | `handshake`, `level`, `keys`, `protection` | TLS, levels of encryption, keys and their update, transport parameters |
//! | `cids` | connection ids of both ends, stateless reset tokens |
//! | `lifecycle`, `idle` | handshaking, established, closing, draining, closed; the idle timeout |
//! | `pending` | control frames that wait to be sent |
//! | `crate::paths::PathSet` | paths with their recovery, validation and limits |
//! | `crate::congestion::Windows` | windows of paths and the algorithm that drives them |
//! | `vmcc_streams`, `crate::datagrams` | application data |
//!
//! `state` composes them to a [`Connection`]. The other modules are what it does:
//!
//! | module | does |
//! |---|---|
//! | `establish` | effects of the handshake, Retry, Version Negotiation |
//! | `receive`, `frames` | packets and frames that come |
//! | `acks` | effects of acknowledgments and losses |
//! | `send`, `content`, `packet` | which packet leaves where, and its contents |
//! | `timers` | loss, probe, keep-alive and idle timers; suspect paths |
//! | `multipath` | paths opened, validated, migrated, abandoned; their connection ids |
//! | `close` | the end |
//! | `api`, `report` | calls of applications, types of figures |

mod acks;
mod api;
mod cids;
mod close;
mod content;
mod establish;
mod frames;
mod handshake;
mod idle;
mod keys;
mod level;
mod lifecycle;
mod multipath;
mod packet;
mod pending;
mod protection;
mod receive;
mod report;
mod send;
mod state;
mod timers;

pub(crate) use cids::{EndpointEvent, LOCAL_CID_LEN, random_cid};
pub use multipath::PathError;
pub use packet::Transmit;
pub(crate) use receive::Arrival;
pub use report::{PathReport, Stats};
pub use state::Connection;
pub(crate) use state::ConnectionInit;
