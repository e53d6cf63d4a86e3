//! Rollback of a guard's temporary changes.

use crate::action::{Action, GuardEvent, PathAction};
use crate::journal::{Journal, PendingUndo, Undo, recover};
use crate::subflow::{self, Endpoint, Reopened};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use vmcc_bpf::ControlError;
use vmcc_system::diag::{Diag, DiagError, Subflow};
use vmcc_system::{namespaces, netns};

/// Callback for events and errors.
pub type ReportFn<'a> = &'a mut dyn FnMut(Result<GuardEvent, ControlError>);

/// Sets the backup flag of a subflow, after a journal entry. `false`: the kernel manages its paths.
pub(crate) fn set_backup(journal: &mut Journal, subflow: &Subflow) -> Result<bool, ControlError> {
    let pending = PendingUndo { place: netns_cookie()?, undo: Undo::Backup { socket: subflow.cookie } };
    journal.put(pending)?;
    let done = subflow::set_backup(subflow, true);
    if !matches!(done, Ok(true)) {
        forget_backup(journal, subflow)?;
    }
    done
}

/// Clears the backup flag of a subflow. `false`: the kernel manages its paths.
pub(crate) fn clear_backup(journal: &mut Journal, subflow: &Subflow) -> Result<bool, ControlError> {
    let done = subflow::set_backup(subflow, false)?;
    forget_backup(journal, subflow)?;
    Ok(done)
}

/// Removes the pending undo of a subflow that is closed or no longer a backup.
pub(crate) fn forget_backup(journal: &mut Journal, subflow: &Subflow) -> Result<(), ControlError> {
    let backup = Undo::Backup { socket: subflow.cookie };
    journal.retain(|pending| pending.undo != backup)
}

/// Has the kernel open all paths from an address again; `subflow` stands for them. The endpoint, which is removed for that and added
/// as a backup at first, is in the journal until it is as before.
pub(crate) fn renew(
    journal: &mut Journal,
    address: IpAddr,
    subflow: &Subflow,
    all: &[Subflow],
) -> Result<Reopened, ControlError> {
    let place = netns_cookie()?;
    let reopened = subflow::renew(address, all, &mut |endpoint| {
        journal.put(PendingUndo { place, undo: endpoint_undo(endpoint, subflow) })
    })?;
    if reopened == Reopened::Requested {
        return Ok(reopened);
    }
    let same = |one: &IpAddr| one.to_canonical() == address.to_canonical();
    let is_back = |undo: &Undo| matches!(undo, Undo::Endpoint { address, .. } if same(address));
    journal.retain(|pending| pending.place != place || !is_back(&pending.undo))?;
    Ok(reopened)
}

/// Pending undo that adds an endpoint again.
fn endpoint_undo(endpoint: &Endpoint, subflow: &Subflow) -> Undo {
    let Endpoint { id, address, port, flags, device } = *endpoint;
    let token = subflow.mptcp.map_or(0, |mptcp| mptcp.token_local);
    Undo::Endpoint { id, address, port, flags, device, token, local: subflow.local, remote: subflow.remote }
}

/// True if the undo adds an endpoint again.
pub(crate) fn is_endpoint(pending: &PendingUndo) -> bool {
    matches!(pending.undo, Undo::Endpoint { .. })
}

/// Drops the pending undos of subflows that no longer exist in the calling thread's namespace.
pub(crate) fn prune(journal: &mut Journal, all: &[Subflow]) -> Result<(), ControlError> {
    if journal.pending().is_empty() {
        return Ok(());
    }
    let here = netns_cookie()?;
    let is_there = |undo: &Undo| match undo {
        Undo::Backup { socket } => all.iter().any(|s| s.cookie == *socket),
        Undo::Endpoint { .. } => true,
    };
    journal.retain(|pending| pending.place != here || is_there(&pending.undo))
}

/// Performs the pending undos that `which` selects. Those that fail stay in the journal.
pub(crate) fn undo(journal: &mut Journal, which: impl Fn(&PendingUndo) -> bool, say: ReportFn<'_>) {
    let due: Vec<PendingUndo> = journal.pending().iter().filter(|pending| which(pending)).cloned().collect();
    let still = undo_all(due, say);
    if let Err(error) = journal.retain(|pending| !which(pending) || still.contains(pending)) {
        say(Err(error));
    }
}

/// Performs the pending undos of killed guards: backup flags, and endpoints that were removed to be added again.
pub fn undo_orphaned(say: ReportFn<'_>) {
    recover(|pending| undo_all(pending, say));
}

/// Performs pending undos; returns those that are still pending. Those of a namespace that is gone are dropped.
fn undo_all(mut pending: Vec<PendingUndo>, say: ReportFn<'_>) -> Vec<PendingUndo> {
    let places: BTreeSet<u64> = pending.iter().map(|one| one.place).collect();
    if places.is_empty() {
        return pending;
    }
    let mut still = Vec::new();
    let searched = namespaces::find(&places, &mut |place, fd| {
        let (here, elsewhere) = std::mem::take(&mut pending).into_iter().partition(|one| one.place == place);
        pending = elsewhere;
        still.extend(undo_in(here, fd, say));
    });
    if let Err(error) = searched {
        say(Err(failed(error)));
        still.append(&mut pending);
    }
    still
}

/// Performs the pending undos of one network namespace; returns those that failed.
fn undo_in(pending: Vec<PendingUndo>, namespace: BorrowedFd<'_>, say: ReportFn<'_>) -> Vec<PendingUndo> {
    let inode = nix::sys::stat::fstat(namespace).ok().and_then(|found| u32::try_from(found.st_ino).ok());
    let undo = || pending.iter().map(|one| undo_one(&one.undo, inode.unwrap_or(0))).collect::<Vec<_>>();
    let undone = match netns::within(namespace, undo) {
        Ok(undone) => undone,
        Err(error) => {
            say(Err(error.into()));
            return pending;
        }
    };
    let mut still = Vec::new();
    for (one, undone) in pending.into_iter().zip(undone) {
        match undone {
            Ok(path_action) => {
                path_action.into_iter().for_each(|path_action| say(Ok(GuardEvent::Action(path_action))))
            }
            Err(error) => {
                say(Err(error));
                still.push(one);
            }
        }
    }
    still
}

/// Performs an undo in the calling thread's namespace. `None` if it was done already.
fn undo_one(undo: &Undo, netns: u32) -> Result<Option<PathAction>, ControlError> {
    match *undo {
        Undo::Backup { socket } => {
            let is_it = |s: &&Subflow| s.cookie == socket && s.mptcp.is_some_and(|mptcp| mptcp.backup);
            let all =
                Diag::open().and_then(|mut diag| diag.subflows_and_attempts()).map_err(listing_failed)?;
            let Some(subflow) = all.iter().find(is_it) else { return Ok(None) };
            let reason = "the guard that made it a backup has ended";
            let done = subflow::set_backup(subflow, false)?;
            Ok(done.then(|| PathAction::to(subflow, netns, Action::Released, reason)))
        }
        Undo::Endpoint { id, address, port, flags, device, token, local, remote } => {
            let restored = subflow::restore(&Endpoint { id, address, port, flags, device })?;
            let reason = "its endpoint, which was away for that, is back".to_owned();
            Ok(restored.then_some(PathAction {
                action: Action::TriedAgain,
                reason,
                netns,
                token,
                local,
                remote,
            }))
        }
    }
}

fn netns_cookie() -> Result<u64, ControlError> {
    netns::cookie().map_err(failed)
}

pub(crate) fn listing_failed(error: DiagError) -> ControlError {
    ControlError::kernel("guard paths", error)
}

fn failed(error: std::io::Error) -> ControlError {
    ControlError::kernel("tell network namespaces apart", error)
}
