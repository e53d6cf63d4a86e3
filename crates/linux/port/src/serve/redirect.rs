//! The redirection of a port that shares the rate of its VM: a filter that sends its packets to the VM's IFB, and the
//! program that measures RTTs from the ACKs that come in.

use super::device::{self, Device, is_shared_device};
use super::error::PortError;
use super::program::{self, Program};
use super::record::{Content, Member};
use super::statistics::Dropped;
use super::{signed, swap};
use crate::Backend;
use vmcc_netlink::{Links, TrafficControl, os_code};

/// Priority of the redirecting filter among a port's filters: before our program, which a member does not have.
const REDIRECT: u16 = 0xc0d9;
/// Its handle says whether clsact goes with it, should the record be lost.
const FOUND_CLSACT: u32 = 1;
const MADE_CLSACT: u32 = 2;

/// True if a port's packets go through the IFB of a VM.
pub(crate) fn is_member(dev: &mut Device) -> Result<bool, PortError> {
    Ok(redirect(dev)?.is_some())
}

/// The same of any port, whether it can be read or not.
pub(crate) fn has_redirect(tc: &mut TrafficControl, port: u32) -> bool {
    tc.redirected(port, REDIRECT).ok().flatten().is_some()
}

/// The device that a port's packets go through, and its filter's handle.
fn redirect(dev: &mut Device) -> Result<Option<(u32, u32)>, PortError> {
    let found = dev.tc.redirected(dev.index, REDIRECT);
    found.map_err(|e| PortError::kernel(&dev.name, "read its filters", e))
}

pub(crate) fn redirected(dev: &mut Device) -> Result<Option<u32>, PortError> {
    Ok(redirect(dev)?.map(|(device, _)| device))
}

/// State of a member port without a record: from the filter that redirects its packets, and the shared device where
/// they go.
pub(crate) fn noted(dev: &mut Device) -> Result<Option<Content>, PortError> {
    let Some((device, handle)) = redirect(dev)? else { return Ok(None) };
    let shared = Program::find(signed(device))?.and_then(|program| program.note?.read());
    Ok(shared.and_then(|shared| {
        let vm = shared.config.vm.as_ref()?.name.clone();
        Some(Content {
            port: dev.name.clone(),
            backend: Backend::Auto,
            queues: false,
            previous: None,
            made_clsact: handle == MADE_CLSACT,
            member: Some(Member { vm }),
            dropped: Dropped::default(),
            ..shared
        })
    }))
}

pub(crate) fn join(dev: &mut Device, device: u32) -> Result<(), PortError> {
    // Before its packets go there: ACKs that come in find the flows that went out.
    program::lend_ingress(&dev.name, signed(device), signed(dev.index))?;
    let handle = if dev.made_clsact { MADE_CLSACT } else { FOUND_CLSACT };
    let redirected = dev.tc.redirect(dev.index, device, REDIRECT, handle);
    redirected.map_err(|e| match os_code(&e) {
        Some(nix::libc::ENOENT) => PortError::Feature {
            port: dev.name.clone(),
            feature: "send a port's packets through a shared budget".to_owned(),
            cause: e.to_string(),
            remedy: "modprobe act_mirred, or boot a kernel with CONFIG_NET_ACT_MIRRED; or give each port its part (`:1/2`, in a file `share = \"split\"`)"
                .to_owned(),
        },
        _ => PortError::kernel(&dev.name, "redirect its packets to the budget of its VM", e),
    })
}

/// Takes everything of a member off the port. A port that is gone is fine.
pub(crate) fn part(dev: &mut Device, index: i32) -> Result<(), PortError> {
    let device = redirected(dev)?;
    swap::during(dev, device, |dev, _| take_off(dev, index))
}

fn take_off(dev: &mut Device, index: i32) -> Result<(), PortError> {
    if is_member(dev)? {
        let ended = dev.tc.end_redirect(dev.index, REDIRECT);
        device::gone_is_fine(ended).map_err(|e| PortError::kernel(&dev.name, "end its redirection", e))?;
    }
    Program::detach(&dev.name, index)?;
    dev.restore_clsact()
}

/// The names of the ports whose packets go through a device.
pub(crate) fn members(device: u32) -> Result<Vec<String>, PortError> {
    let failed = |e| PortError::kernel("", "list the ports of a budget", e);
    let mut links = Links::open().map_err(failed)?;
    let mut tc = TrafficControl::open().map_err(failed)?;
    let mut names = Vec::new();
    for link in links.list().map_err(failed)? {
        // A port that is gone in the meantime is none.
        if link.index != device
            && tc.redirected(link.index, REDIRECT).ok().flatten().is_some_and(|(to, _)| to == device)
        {
            names.push(link.name);
        }
    }
    names.sort();
    Ok(names)
}

/// The devices of shared rates in this network namespace.
pub(crate) fn devices() -> Result<Vec<String>, PortError> {
    let failed = |e| PortError::kernel("", "list ports", e);
    let all = Links::open().and_then(|mut links| links.list()).map_err(failed)?;
    Ok(all.into_iter().map(|link| link.name).filter(|name| is_shared_device(name)).collect())
}
