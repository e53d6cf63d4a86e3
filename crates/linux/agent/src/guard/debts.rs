//! Taking back what a guard did only for a time.

use super::Did;
use super::deed::{Action, Deed};
use super::journal::{Debt, Journal, Owed, left};
use super::resting::Resting;
use super::warden::{Say, listed};
use crate::daemon::namespaces;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use vmcc_host::diag::Subflow;
use vmcc_host::guard::{self, Endpoint, Reopened};
use vmcc_host::{ControlError, netns};

/// Keeps data off a subflow, on record. `false`: the kernel manages its paths.
pub(super) fn back_up(journal: &mut Journal, subflow: &Subflow) -> Result<bool, ControlError> {
    let owed = Owed { place: place()?, debt: Debt::Backup { socket: subflow.cookie } };
    journal.put(owed)?;
    let done = guard::set_backup(subflow, true);
    if !matches!(done, Ok(true)) {
        forget(journal, subflow)?;
    }
    done
}

/// Lets data on it again. `false`: the kernel manages its paths.
pub(super) fn release(journal: &mut Journal, subflow: &Subflow) -> Result<bool, ControlError> {
    let done = guard::set_backup(subflow, false)?;
    forget(journal, subflow)?;
    Ok(done)
}

/// It is closed, or no backup any more.
pub(super) fn forget(journal: &mut Journal, subflow: &Subflow) -> Result<(), ControlError> {
    let backup = Debt::Backup { socket: subflow.cookie };
    journal.retain(|owed| owed.debt != backup)
}

/// Has the kernel open all paths from an address again; the endpoint, which has to go for that and is a backup at first, is on
/// record until it is as before.
pub(super) fn renew(
    journal: &mut Journal,
    address: IpAddr,
    paths: &[Resting],
    all: &[Subflow],
) -> Result<Reopened, ControlError> {
    let place = place()?;
    let reopened = guard::renew(address, all, &mut |endpoint| {
        // One debt; the first of the paths stands for all.
        let debt = paths.first().map(|one| away(endpoint, &one.subflow));
        debt.map_or(Ok(()), |debt| journal.put(Owed { place, debt }))
    })?;
    if reopened == Reopened::Asked {
        return Ok(reopened);
    }
    let same = |one: &IpAddr| one.to_canonical() == address.to_canonical();
    let is_back = |debt: &Debt| matches!(debt, Debt::Endpoint { address, .. } if same(address));
    journal.retain(|owed| owed.place != place || !is_back(&owed.debt))?;
    Ok(reopened)
}

fn away(endpoint: &Endpoint, subflow: &Subflow) -> Debt {
    let Endpoint { id, address, port, flags, device } = *endpoint;
    let token = subflow.mptcp.map_or(0, |mptcp| mptcp.token_local);
    Debt::Endpoint { id, address, port, flags, device, token, local: subflow.local, remote: subflow.remote }
}

pub(super) fn is_endpoint(owed: &Owed) -> bool {
    matches!(owed.debt, Debt::Endpoint { .. })
}

/// Forgets subflows of the calling thread's namespace that are not there any more.
pub(super) fn forget_gone(journal: &mut Journal, all: &[Subflow]) -> Result<(), ControlError> {
    if journal.owed().is_empty() {
        return Ok(());
    }
    let here = place()?;
    let is_there = |debt: &Debt| match debt {
        Debt::Backup { socket } => all.iter().any(|s| s.cookie == *socket),
        Debt::Endpoint { .. } => true,
    };
    journal.retain(|owed| owed.place != here || is_there(&owed.debt))
}

/// Pays those that `which` says; what cannot be paid now is owed still.
pub(super) fn pay(journal: &mut Journal, which: impl Fn(&Owed) -> bool, say: Say<'_>) {
    let due: Vec<Owed> = journal.owed().iter().filter(|owed| which(owed)).cloned().collect();
    let still = pay_all(due, say);
    if let Err(error) = journal.retain(|owed| !which(owed) || still.contains(owed)) {
        say(Err(error));
    }
}

/// Pays what guards owe that were killed.
pub(super) fn pay_left(say: Say<'_>) {
    left(|owed| pay_all(owed, say));
}

/// Performs pending undos; returns those that are still pending. Those of a namespace that is gone are dropped.
fn pay_all(mut owed: Vec<Owed>, say: Say<'_>) -> Vec<Owed> {
    let places: BTreeSet<u64> = owed.iter().map(|one| one.place).collect();
    if places.is_empty() {
        return owed;
    }
    let mut still = Vec::new();
    let looked = namespaces::find(&places, &mut |place, fd| {
        let (here, elsewhere) = std::mem::take(&mut owed).into_iter().partition(|one| one.place == place);
        owed = elsewhere;
        still.extend(pay_here(here, fd, say));
    });
    if let Err(error) = looked {
        say(Err(failed(error)));
        still.append(&mut owed);
    }
    still
}

fn pay_here(owed: Vec<Owed>, namespace: BorrowedFd<'_>, say: Say<'_>) -> Vec<Owed> {
    let inode = nix::sys::stat::fstat(namespace).ok().and_then(|found| u32::try_from(found.st_ino).ok());
    let pay = || owed.iter().map(|one| pay_one(&one.debt, inode.unwrap_or(0))).collect::<Vec<_>>();
    let paid = match netns::within(namespace, pay) {
        Ok(paid) => paid,
        Err(error) => {
            say(Err(error));
            return owed;
        }
    };
    let mut still = Vec::new();
    for (one, paid) in owed.into_iter().zip(paid) {
        match paid {
            Ok(deed) => deed.into_iter().for_each(|deed| say(Ok(Did::Deed(deed)))),
            Err(error) => {
                say(Err(error));
                still.push(one);
            }
        }
    }
    still
}

/// In the calling thread's namespace. What was taken back already is paid.
fn pay_one(debt: &Debt, netns: u32) -> Result<Option<Deed>, ControlError> {
    match *debt {
        Debt::Backup { socket } => {
            let is_it = |s: &&Subflow| s.cookie == socket && s.mptcp.is_some_and(|mptcp| mptcp.backup);
            let all = listed()?;
            let Some(subflow) = all.iter().find(is_it) else { return Ok(None) };
            let reason = "the guard that made it a backup has ended";
            let done = guard::set_backup(subflow, false)?;
            Ok(done.then(|| Deed::to(subflow, netns, Action::Released, reason)))
        }
        Debt::Endpoint { id, address, port, flags, device, token, local, remote } => {
            let anew = guard::restore(&Endpoint { id, address, port, flags, device })?;
            let reason = "its endpoint, which was away for that, is back".to_owned();
            Ok(anew.then_some(Deed { action: Action::TriedAgain, reason, netns, token, local, remote }))
        }
    }
}

fn place() -> Result<u64, ControlError> {
    netns::cookie().map_err(failed)
}

fn failed(error: std::io::Error) -> ControlError {
    ControlError::Kernel { action: "tell network namespaces apart".to_owned(), cause: error.to_string() }
}
