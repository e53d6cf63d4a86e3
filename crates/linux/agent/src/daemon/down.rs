//! Ending an agent, or what one that was killed left.

use super::event::Event;
use super::reconcile::{ReconcileState, Reconciler};
use super::record::Record;
use super::resource::Resource;
use crate::Error;
use nix::errno::Errno;
use nix::libc;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Time that an agent may take to release its lock: it may be loading algorithms.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Result of [`roll_back`].
#[derive(Debug)]
pub struct RollbackReport {
    /// The agent that ran, and has ended.
    pub agent: Option<u32>,
    /// Events of the rollback: values that were restored, left alone, or kept for connections that use them.
    pub events: Vec<Event>,
    /// Congestion controls that are no longer up, by their names in the kernel.
    pub removed: Vec<String>,
    /// Values that could not be restored. They stay in the journal.
    pub problems: Vec<String>,
}

/// Ends the agent, if one runs, and puts back what it, or one that was killed, had changed; `None` if there is nothing on
/// record.
///
/// # Errors
/// The agent does not end, or what it left cannot be read.
pub fn roll_back() -> Result<Option<RollbackReport>, Error> {
    let agent = Record::holder()?;
    if let Some(pid) = agent {
        hand_over(pid)?;
    }
    if agent.is_none() && !Record::is_left()? {
        return Ok(None);
    }
    let mut record = Record::lock()?;
    if agent.is_none() && record.len() == 0 {
        record.close();
        return Ok(None);
    }
    let mut state = ReconcileState::default();
    let algorithm = |resource: &Resource| {
        if let Resource::Algorithm(name) = resource { Some(name.clone()) } else { None }
    };
    let had: Vec<String> = record.entries().filter_map(|entry| algorithm(&entry.resource)).collect();
    let mut reconciler = Reconciler::new(&mut record, &mut state);
    reconciler.restore();
    let (mut events, problems) = (reconciler.events, reconciler.problems.into_iter().collect());
    events.extend(reconciler.retained);
    record.close();
    let is_gone = |name: &String| {
        events.iter().any(|one| matches!(one, Event::Restored { what, to: None, .. } if what == name))
    };
    let removed = had.into_iter().filter(is_gone).collect();
    Ok(Some(RollbackReport { agent, events, removed, problems }))
}

/// Tells the agent to end and to leave everything to us.
fn hand_over(pid: u32) -> Result<(), Error> {
    let stays = |why: Errno| Error::AgentStays { pid, why: why.desc().to_owned() };
    let process = pidfd(pid).map_err(stays)?;
    // It held the lock after the descriptor was made, so it is no other process that got its number.
    if Record::holder()? == Some(pid) {
        // SAFETY: takes a descriptor, a number and no memory.
        let sent = unsafe {
            let none: *const libc::siginfo_t = std::ptr::null();
            libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), libc::SIGUSR1, none, 0)
        };
        Errno::result(sent).map(drop).map_err(stays)?;
    }
    let began = Instant::now();
    while Record::holder()? == Some(pid) {
        if began.elapsed() > RELEASE_TIMEOUT {
            return Err(Error::AgentStays { pid, why: "it still holds its lock after a minute".to_owned() });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn pidfd(pid: u32) -> Result<OwnedFd, Errno> {
    let pid = i32::try_from(pid).map_err(|_| Errno::ESRCH)?;
    // SAFETY: takes numbers and no memory.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the kernel has just made this descriptor for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).map_err(|_| Errno::EBADF)?) })
}
