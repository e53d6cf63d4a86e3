//! State of a port: from its program, else from its record, else from the redirection of its packets. Also the ports that
//! have any such state.

use super::device::{Device, OUR_HANDLE};
use super::error::PortError;
use super::program::{self, Program};
use super::record::{self, Content};
use super::{redirect, signed};
use vmcc_netlink::{Links, TrafficControl};

/// Recorded content of a port: from its program, else from its record, else from its redirection.
pub(crate) fn known(
    dev: &mut Device,
    program: Option<&Program>,
    recorded: Option<Content>,
) -> Result<Option<Content>, PortError> {
    match program.and_then(|program| program.note.as_ref()?.read()).or(recorded) {
        Some(content) => Ok(Some(content)),
        None => redirect::noted(dev),
    }
}

/// [`known`], for any holder of the port.
pub(crate) fn peek(dev: &mut Device) -> Result<(Option<Content>, Option<Program>), PortError> {
    let program = Program::find(signed(dev.index))?;
    let content = known(dev, program.as_ref(), record::peek(dev.index)?)?;
    Ok((content, program))
}

/// True if anything of ours is on a port, with a record or without.
pub(crate) fn has_ours(dev: &mut Device) -> Result<bool, PortError> {
    let index = signed(dev.index);
    let programs = program::is_attached(index) || program::measures(index);
    Ok(programs || dev.has_our_queues()? || redirect::is_member(dev)?)
}

/// The ports of the calling thread's network namespace that something of ours is on, or should be, by number.
pub(crate) fn ours() -> Result<Vec<u32>, PortError> {
    let failed = |e| PortError::kernel("", "list ports", e);
    let mut tc = TrafficControl::open().map_err(failed)?;
    let mut found = record::recorded()?;
    found.extend(tc.ports_with_root(OUR_HANDLE).map_err(failed)?);
    for link in Links::open().and_then(|mut links| links.list()).map_err(failed)? {
        let index = signed(link.index);
        let programs = || program::is_attached(index) || program::measures(index);
        if found.contains(&link.index) || programs() || redirect::has_redirect(&mut tc, link.index) {
            found.push(link.index);
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}
