//! What a process that died in the middle left on a port.

use super::error::PortError;
use super::plan::Plan;
use super::program::Program;
use super::record::{Content, Record};
use super::served::{queues_of, undo};
use super::site::Site;
use super::{budget, hold, signed};

/// What was found on a port.
pub(crate) enum Found {
    /// Nothing of ours.
    Nothing,
    /// Something that was not whole; it is gone now.
    Undone,
    /// Everything that the record speaks of.
    Whole(Box<Content>, Box<Program>),
    /// A port that shares the budget of its VM, as the record says.
    Member(Box<Content>),
}

/// Looks at a port whose record is locked, and undoes what is not whole: the queues or the programs are missing, or a
/// change was under way.
pub(crate) fn settle(site: &mut Site, record: &Record) -> Result<Found, PortError> {
    hold::remove_left(Some(site.index))
        .map_err(|e| PortError::kernel(&site.name, "remove the devices that held its packets", e))?;
    let index = signed(site.index);
    let (content, program) = (record.read(), Program::find(index)?);
    let queues = site.has_our_queues()?;
    match (content, program) {
        (Some(content), _) if content.member.is_some() => budget::settle(site, content),
        (Some(content), Some(program)) if !content.half && content.queues == queues => {
            Ok(Found::Whole(Box::new(content), Box::new(program)))
        }
        (None, None) if !queues && !budget::is_member(site)? => Ok(Found::Nothing),
        (Some(content), program) => undo_recorded(site, index, content, program.as_ref()),
        (None, _) => undo_unrecorded(site, index),
    }
}

fn undo_recorded(
    site: &mut Site,
    index: i32,
    content: Content,
    program: Option<&Program>,
) -> Result<Found, PortError> {
    site.previous = content.previous.clone();
    site.made_clsact = content.made_clsact;
    // Of a version with other rules, or the port is another one now.
    let Ok(plan) = Plan::new(&site.name, &content.config, site.facts) else {
        return undo_unrecorded(site, index);
    };
    // The queues may be what is missing.
    let mut queues = queues_of(&content, program).or_else(|_| queues_of(&content, None))?;
    undo(site, index, &plan, queues.as_mut())?;
    site.previous = None;
    Ok(Found::Undone)
}

/// Without waiting for the queues to become empty: what is in them is not known.
fn undo_unrecorded(site: &mut Site, index: i32) -> Result<Found, PortError> {
    if site.has_our_queues()? {
        site.restore()?;
    }
    budget::part(site, index)?;
    site.previous = None;
    Ok(Found::Undone)
}
