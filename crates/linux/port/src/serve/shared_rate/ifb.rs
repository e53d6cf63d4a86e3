//! The device that all ports of a VM share: an IFB with the VM's queues and program on it.
//!
//! ```text
//! port 1 ─ redirect ─┐                  ┌─ port 1
//! port 2 ─ redirect ─┴─ IFB: the queues ┴─ port 2     each packet leaves at its own port
//! ```

use crate::serve::attachment::{Attachment, leftover};
use crate::serve::device::{Device, shared_device as device};
use crate::serve::error::PortError;
use crate::serve::redirect::members;
use crate::serve::wait::{self, Waited};
use crate::{PortConfig, PortStats, VmBudget};
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::io;
use vmcc_netlink::{Links, PortInfo, os_code};
use vmcc_system::Folder;

/// Lock for creating, joining or leaving a shared device.
const LOCK: (&str, &str, &str) = ("/run", "vmcc", "budgets.lock");
/// Drain timeout of a shared device, in milliseconds.
const MAX_POLLS: u32 = 100;

/// Nobody else makes, joins or leaves a shared device while it lives.
pub(super) struct Lock(#[allow(dead_code, reason = "unlocks when it is dropped")] Flock<File>);

impl Lock {
    pub(super) fn take() -> Result<Self, PortError> {
        let folder =
            Folder::make(LOCK.0, LOCK.1).map_err(|(path, source)| PortError::Record { path, source })?;
        let failed = |source| PortError::Record { path: folder.path(LOCK.2), source };
        let file = folder.open_or_make(LOCK.2).map_err(failed)?;
        Flock::lock(file, FlockArg::LockExclusive).map(Self).map_err(|(_, e)| failed(e.into()))
    }
}

/// The shared device of a VM, made if it is not there; the IFB's number. An existing one must have the same settings.
pub(super) fn open(_: &Lock, port: &Device, config: &PortConfig, vm: &VmBudget) -> Result<u32, PortError> {
    let name = device(&vm.name);
    if let Some(index) = joinable(port, &name, config, vm)? {
        return Ok(index);
    }
    let failed = |action: &str, e| PortError::kernel(&port.name, format!("{action} of VM `{}`", vm.name), e);
    let mut links = Links::open().map_err(|e| failed("open a netlink socket for the budget", e))?;
    links.add_ifb(&name, u32::try_from(port.facts.mtu.get()).unwrap_or(u32::MAX)).map_err(|e| match os_code(&e) {
        Some(nix::libc::EOPNOTSUPP) => PortError::Feature {
            port: port.name.clone(),
            feature: "share a budget between ports".to_owned(),
            cause: e.to_string(),
            remedy: "modprobe ifb, or boot a kernel with CONFIG_IFB; or give each port its part (`:1/2`, in a file `share = \"split\"`)"
                .to_owned(),
        },
        _ => failed("make the device for the budget", e),
    })?;
    let made = (|| {
        let index =
            find(&mut links, &name)?.ok_or_else(|| PortError::NoSuchPort { port: name.clone() })?.index;
        // For people who look at the device; nothing depends on it.
        let _ = links.set_alias(index, &format!("vmcc: budget of VM {}", vm.name));
        Attachment::begin(&name, config, leftover::clear)?.mark_kept();
        Ok(index)
    })();
    if made.is_err() {
        // The first error tells more than one about undoing it.
        let _ = remove_device(&name);
    }
    made.map_err(|e| on_behalf(e, port))
}

/// The shared device, if it is whole and has these settings. One that is not whole is removed.
fn joinable(port: &Device, name: &str, config: &PortConfig, vm: &VmBudget) -> Result<Option<u32>, PortError> {
    let shared = match Attachment::adopt(name) {
        Ok(shared) => shared,
        Err(PortError::NoSuchPort { .. }) => return Ok(None),
        Err(PortError::NotAttached { .. }) => return remove_device(name).map(|()| None),
        Err(error) => return Err(on_behalf(error, port)),
    };
    let theirs = shared.recorded().map(|content| content.config);
    if theirs.as_ref() == Some(config) {
        return Ok(Some(shared.index()));
    }
    let others = members(shared.index())?;
    if others.is_empty() {
        // Its ports are gone. It is held here already.
        shared.end()?;
        return remove_device(name).map(|()| None);
    }
    let problem = format!(
        "VM `{}` has a budget with other settings already, at {}; its ports share the queues: give the same settings, \
         or change them first with `vmcc mark {}`",
        vm.name,
        others.join(", "),
        others[0]
    );
    Err(PortError::config(&port.name, "vm", problem))
}

/// An error about the device is one about the port that asked for it.
fn on_behalf(error: PortError, port: &Device) -> PortError {
    match error {
        PortError::Config { error, .. } => PortError::Config { port: port.name.clone(), error },
        PortError::Feature { feature, cause, remedy, .. } => {
            PortError::Feature { port: port.name.clone(), feature, cause, remedy }
        }
        other => other,
    }
}

/// Changes the settings of a shared device, for all its ports.
pub(super) fn change(_: &Lock, vm: &str, config: &PortConfig) -> Result<u64, PortError> {
    let mut shared = match Attachment::adopt(&device(vm)) {
        // It was not whole.
        Err(PortError::NotAttached { .. }) => {
            Attachment::begin(&device(vm), config, leftover::clear)?.mark_kept();
            return Ok(0);
        }
        adopted => adopted?,
    };
    let changed = shared.change(config, |_| Ok(()));
    // It stays for any caller.
    shared.mark_kept();
    changed
}

/// Serves a shared device again as it was set; one whose device is gone is made by the next port that joins.
pub(super) fn repair(_: &Lock, vm: &str) -> Result<(), PortError> {
    let name = device(vm);
    let failed = |e| PortError::kernel(&name, "switch the device of a budget on", e);
    let mut links = Links::open().map_err(failed)?;
    let Some(found) = find(&mut links, &name)? else { return Ok(()) };
    if !found.up {
        links.bring_up(found.index, None).map_err(failed)?;
    }
    if Attachment::look(&name).is_ok_and(|shared| shared.differences().is_ok_and(|differ| differ.is_empty()))
    {
        return Ok(());
    }
    match Attachment::repair(&name) {
        Ok(shared) => {
            shared.mark_kept();
            Ok(())
        }
        // Nothing says what it was: recreated by the next port that joins.
        Err(PortError::NotAttached { .. }) => remove_device(&name),
        Err(error) => Err(error),
    }
}

/// The number of the shared device's device, if the shared device is there and works.
pub(super) fn served(vm: &str) -> Result<Option<u32>, PortError> {
    match Attachment::look(&device(vm)) {
        Ok(shared) => Ok(Some(shared.index())),
        Err(PortError::NoSuchPort { .. } | PortError::NotAttached { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Counters of a shared device and its ports.
pub(super) fn stats(vm: &str) -> Result<PortStats, PortError> {
    let name = device(vm);
    let shared = Attachment::look(&name)?;
    let members = members(shared.index())?;
    let mut stats = shared.stats()?;
    let mut links = Links::open().map_err(|e| PortError::kernel(&name, "open a netlink socket", e))?;
    if find(&mut links, &name)?.is_some_and(|found| !found.up) {
        stats
            .differences
            .push(format!("the device of its budget ({name}) is down: nothing leaves its ports"));
    }
    Ok(PortStats { port: vm.to_owned(), members, ..stats })
}

/// True if there is a shared device that no port uses.
pub(super) fn is_unused(_: &Lock, name: &str) -> Result<bool, PortError> {
    let mut links = Links::open().map_err(|e| PortError::kernel(name, "open a netlink socket", e))?;
    // Somebody's own device may have such a name.
    let found = find(&mut links, name)?.filter(|device| device.kind.as_deref() == Some("ifb"));
    let Some(found) = found else { return Ok(false) };
    Ok(members(found.index)?.is_empty())
}

/// Removes a shared device that no port uses.
pub(super) fn remove_if_unused(lock: &Lock, name: &str) -> Result<bool, PortError> {
    if is_unused(lock, name)? {
        return remove(name).map(|()| true);
    }
    Ok(false)
}

/// Lets what waits leave, then removes the device.
fn remove(name: &str) -> Result<(), PortError> {
    match Attachment::adopt(name) {
        Ok(shared) => shared.end()?,
        Err(PortError::NoSuchPort { .. } | PortError::NotAttached { .. }) => {}
        Err(error) => return Err(error),
    }
    remove_device(name)
}

fn remove_device(name: &str) -> Result<(), PortError> {
    let failed = |e| PortError::kernel(name, "remove the device of a budget", e);
    let mut links = Links::open().map_err(failed)?;
    match find(&mut links, name)? {
        Some(found) => {
            // What will not leave goes with the device.
            let (Waited::Done | Waited::GivenUp) =
                wait_until_empty(&mut links, found.index).map_err(failed)?;
            links.delete(found.index).map_err(failed)
        }
        None => Ok(()),
    }
}

/// Behind its queues an IFB has packets that wait for a softirq: received by it, and not sent on yet.
fn wait_until_empty(links: &mut Links, device: u32) -> io::Result<Waited> {
    wait::until(MAX_POLLS, || Ok(links.packets(device)?.is_none_or(|(received, sent)| sent >= received)))
}

fn find(links: &mut Links, name: &str) -> Result<Option<PortInfo>, PortError> {
    let all = links.list().map_err(|e| PortError::kernel(name, "list ports", e))?;
    Ok(all.into_iter().find(|link| link.name == name))
}
