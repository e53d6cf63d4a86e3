//! What a process that died in the middle left on a port, and what is there without a record.

use super::error::PortError;
use super::plan::Plan;
use super::program::{self, Program};
use super::record::{self, Content, Record};
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

/// What serves a port: as it says itself, and where it does not, as its record says.
pub(crate) fn known(
    site: &mut Site,
    program: Option<&Program>,
    recorded: Option<Content>,
) -> Result<Option<Content>, PortError> {
    match program.and_then(|program| program.note.as_ref()?.read()).or(recorded) {
        Some(content) => Ok(Some(content)),
        None => budget::noted(site),
    }
}

/// [`known`], whoever holds the port.
pub(crate) fn peek(site: &mut Site) -> Result<(Option<Content>, Option<Program>), PortError> {
    let program = Program::find(signed(site.index))?;
    let content = known(site, program.as_ref(), record::peek(site.index)?)?;
    Ok((content, program))
}

/// Whether anything of ours is on a port, with a record or without.
pub(crate) fn has_ours(site: &mut Site) -> Result<bool, PortError> {
    let index = signed(site.index);
    let programs = program::is_attached(index) || program::measures(index);
    Ok(programs || site.has_our_queues()? || budget::is_member(site)?)
}

/// Looks at a port whose record is locked, and undoes what is not whole: the queues or the programs are missing, or a
/// change was under way.
pub(crate) fn settle(site: &mut Site, record: &Record) -> Result<Found, PortError> {
    hold::remove_left(Some(site.index))
        .map_err(|e| PortError::kernel(&site.name, "remove the devices that held its packets", e))?;
    let index = signed(site.index);
    let program = Program::find(index)?;
    let content = known(site, program.as_ref(), record.read())?;
    let queues = site.has_our_queues()?;
    match (content, program) {
        (Some(content), _) if content.member.is_some() => budget::settle(site, content),
        (Some(content), Some(program)) if !content.half && content.queues == queues => {
            Ok(Found::Whole(Box::new(content), Box::new(program)))
        }
        (None, None) if !has_ours(site)? => Ok(Found::Nothing),
        (Some(content), program) => undo_recorded(site, content, program.as_ref()),
        (None, _) => undo_unrecorded(site, index),
    }
}

pub(crate) fn undo_recorded(
    site: &mut Site,
    content: Content,
    program: Option<&Program>,
) -> Result<Found, PortError> {
    let index = signed(site.index);
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

/// Without waiting for the queues to become empty: what is in them is not known. Nor is who made clsact; an empty one
/// does nothing for anybody.
fn undo_unrecorded(site: &mut Site, index: i32) -> Result<Found, PortError> {
    if site.has_our_queues()? {
        site.restore()?;
    }
    site.made_clsact = true;
    budget::part(site, index)?;
    site.previous = None;
    Ok(Found::Undone)
}
