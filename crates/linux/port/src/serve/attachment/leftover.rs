//! Attachment left by an earlier process: whole, or undone.

use super::undo::{queues_of, undo};
use crate::serve::device::Device;
use crate::serve::error::PortError;
use crate::serve::program::Program;
use crate::serve::record::{Content, Record};
use crate::serve::state::{has_ours, known};
use crate::serve::{redirect, signed, swap};

/// State found on a port.
pub(crate) enum Found {
    /// Nothing of ours.
    Nothing,
    /// Something that was not whole; it is gone now.
    Undone,
    /// Everything that the record speaks of.
    Whole(Box<Content>, Box<Program>),
    /// A port that shares the rate of its VM, as the record says; nobody has looked whether it does.
    Member(Box<Content>),
}

/// Looks at a port whose record is locked, and undoes what is not whole: the queues or the programs are missing, or a
/// change was under way.
pub(crate) fn settle(dev: &mut Device, record: &Record) -> Result<Found, PortError> {
    swap::remove_left(Some(dev.index))
        .map_err(|e| PortError::kernel(&dev.name, "remove the devices that held its packets", e))?;
    let index = signed(dev.index);
    let program = Program::find(index)?;
    let content = known(dev, program.as_ref(), record.read())?;
    let queues = dev.has_our_queues()?;
    match (content, program) {
        (Some(content), _) if content.member.is_some() => Ok(Found::Member(Box::new(content))),
        (Some(content), Some(program))
            if !content.changing && content.queues == queues && program.is_of_this_build() =>
        {
            Ok(Found::Whole(Box::new(content), Box::new(program)))
        }
        (None, None) if !has_ours(dev)? => Ok(Found::Nothing),
        (Some(content), program) => undo_recorded(dev, content, program.as_ref()),
        (None, _) => undo_unrecorded(dev, index),
    }
}

pub(crate) fn undo_recorded(
    dev: &mut Device,
    content: Content,
    program: Option<&Program>,
) -> Result<Found, PortError> {
    let index = signed(dev.index);
    dev.previous = content.previous.clone();
    dev.made_clsact = content.made_clsact;
    // Of a version with other rules, or the port is another one now.
    let Ok(plan) = dev.plan(&content.config) else {
        return undo_unrecorded(dev, index);
    };
    // The queues may be what is missing.
    let mut queues = queues_of(&content, program).or_else(|_| queues_of(&content, None))?;
    undo(dev, index, &plan, queues.as_mut())?;
    dev.previous = None;
    Ok(Found::Undone)
}

/// Without waiting for the queues to become empty: what is in them is not known. Nor is who made clsact; an empty one
/// does nothing for anybody.
fn undo_unrecorded(dev: &mut Device, index: i32) -> Result<Found, PortError> {
    if dev.has_our_queues()? {
        dev.restore()?;
    }
    dev.made_clsact = true;
    redirect::part(dev, index)?;
    dev.previous = None;
    Ok(Found::Undone)
}

/// [`settle`], for who is about to attach: refused if something is attached already.
pub(crate) fn clear(dev: &mut Device, record: &Record) -> Result<(), PortError> {
    match settle(dev, record)? {
        Found::Whole(..) | Found::Member(_) => Err(PortError::AlreadyAttached { port: dev.name.clone() }),
        Found::Nothing | Found::Undone => Ok(()),
    }
}
