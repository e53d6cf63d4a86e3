//! Going on after a process that died: looks at a port of either kind and undoes what is not whole. On top of the rest:
//! nothing that it calls knows of it.

mod damage;
mod orphans;

pub(crate) use super::attachment::leftover::Found;
pub(crate) use damage::damaged;
pub use orphans::{detach_orphans, forget_gone};

use super::attachment::leftover;
use super::device::Device;
use super::error::PortError;
use super::record::Record;
use super::shared_rate;

/// Looks at a port whose record is locked, and undoes what is not whole: queues, programs or the redirection are missing,
/// or a change was under way.
pub(crate) fn settle(dev: &mut Device, record: &Record) -> Result<Found, PortError> {
    match leftover::settle(dev, record)? {
        Found::Member(content) => shared_rate::settle(dev, *content),
        other => Ok(other),
    }
}
