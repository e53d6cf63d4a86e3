//! One rate for all ports of a VM, shared: what leaves any of them goes through one device, an IFB.
//!
//! A member port has two things: a filter that redirects its packets to the VM's IFB, and the program that measures
//! RTTs from the ACKs that come in. The queues, the marking program and its maps are the IFB's. The last port to
//! leave takes the shared device with it; one that vanishes is noticed by the next who looks.

mod ifb;

use super::attachment::leftover::Found;
use super::device::{Device, is_shared_device, shared_device};
use super::error::PortError;
use super::frame::Frame;
use super::record::{Content, Member as MemberRecord, Record};
use super::redirect::{self, join, part, redirected};
use super::statistics::Dropped;
use super::{signed, state, swap};
use crate::{Backend, PortConfig, PortStats, VmBudget, VmShare};
use ifb::Lock;

/// A port that shares its VM's budget.
pub(crate) struct Member {
    pub(crate) name: String,
    dev: Device,
    vm: String,
    /// Locked; `None` when somebody only looks.
    record: Option<Record>,
}

/// The budget that a configuration shares.
pub(crate) fn shared(config: &PortConfig) -> Option<&VmBudget> {
    config.vm.as_ref().filter(|vm| vm.share == VmShare::Shared)
}

/// Difference between a member port and its settings, as a message.
pub(crate) fn differs(dev: &mut Device, vm: &str) -> Result<String, PortError> {
    Ok(match redirected(dev)? {
        None => format!(
            "its packets do not go through the budget of VM {vm} any more: nothing caps or marks them"
        ),
        Some(_) => {
            format!("the budget of VM {vm} is not whole, or its device is gone: nothing may leave the port")
        }
    })
}

/// Repairs the shared device of a VM, if its device is there.
pub(crate) fn repair(vm: &str) -> Result<(), PortError> {
    ifb::repair(&Lock::take()?, vm)
}

/// Takes a member off its shared device, which stays.
pub(crate) fn take_off_whole(dev: &mut Device, content: &Content) -> Result<(), PortError> {
    dev.made_clsact = content.made_clsact;
    let index = signed(dev.index);
    part(dev, index)
}

impl Member {
    /// Joins the VM's shared device. The port has nothing of ours, and its record is locked.
    pub(crate) fn begin(mut dev: Device, record: Record, config: &PortConfig) -> Result<Self, PortError> {
        let Some(vm) = shared(config) else {
            return Err(PortError::config(&dev.name, "vm", "there is no shared budget"));
        };
        if dev.frame()? == Frame::Bare {
            let problem =
                "the ports of a shared budget are Ethernet's, and this one has no link-layer header";
            let help = "give it a part of the budget (`:1/2`, in a file `share = \"split\"`)";
            return Err(PortError::config(&dev.name, "vm.share", problem).help(help));
        }
        check_whole(&dev, vm)?;
        let lock = Lock::take()?;
        dev.remember_clsact()?;
        let device = ifb::open(&lock, &dev, config, vm)?;
        let vm = vm.name.clone();
        let joined = write(&record, &dev, config, &vm)
            .and_then(|()| swap::during(&mut dev, Some(device), |dev, _| join(dev, device)));
        let mut member = Self { name: dev.name.clone(), dev, vm, record: Some(record) };
        if let Err(error) = joined {
            // The first error tells more than one about undoing it.
            let _ = member.leave(&lock);
            return Err(error);
        }
        Ok(member)
    }

    /// Opens the member that a record describes.
    pub(crate) fn open_as(mut dev: Device, content: &Content, record: Option<Record>) -> Option<Self> {
        let member = content.member.as_ref()?;
        dev.made_clsact = content.made_clsact;
        Some(Self { name: dev.name.clone(), dev, vm: member.vm.clone(), record })
    }

    /// Changes the settings of all ports of the VM.
    pub(crate) fn change(&mut self, config: &PortConfig) -> Result<u64, PortError> {
        if shared(config).map(|vm| &vm.name) != Some(&self.vm) {
            let problem = format!("port {} shares the budget of VM `{}`", self.name, self.vm);
            let help = format!(
                "`vmcc unmark {}` first, then mark it again to serve it by itself, with a part of the budget, or with \
                 another VM",
                self.name
            );
            return Err(PortError::config(&self.name, "vm", problem).help(help));
        }
        let lock = Lock::take()?;
        let dropped = ifb::change(&lock, &self.vm, config)?;
        if let Some(record) = &self.record {
            write(record, &self.dev, config, &self.vm)?;
        }
        Ok(dropped)
    }

    /// The VM.
    pub(crate) fn vm(&self) -> &str {
        &self.vm
    }

    pub(crate) fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    /// See [`Attachment::mark_kept`](super::attachment::Attachment::mark_kept).
    pub(crate) fn mark_kept(&self) {
        if let Some((record, content)) =
            self.record.as_ref().and_then(|record| Some((record, record.read()?)))
        {
            // As there.
            let _ = record.write(&Content { kept: true, ..content });
        }
    }

    /// Leaves the shared device; the last takes it away.
    pub(crate) fn end(mut self) -> Result<(), PortError> {
        let lock = Lock::take()?;
        self.leave(&lock)
    }

    fn leave(&mut self, lock: &Lock) -> Result<(), PortError> {
        let index = signed(self.dev.index);
        part(&mut self.dev, index)?;
        ifb::remove_if_unused(lock, &shared_device(&self.vm))?;
        if let Some(record) = self.record.take() {
            record.remove();
        }
        Ok(())
    }
}

/// Counters of a VM's shared device and its ports, in the calling thread's network namespace.
pub(crate) fn stats(vm: &str) -> Result<PortStats, PortError> {
    ifb::stats(vm)
}

/// The devices of shared budgets in the calling thread's network namespace whose ports are gone.
///
/// # Errors
/// The kernel refuses.
pub fn unused() -> Result<Vec<String>, PortError> {
    of_devices(ifb::is_unused)
}

/// Removes them; which.
///
/// # Errors
/// The kernel refuses.
pub fn remove_unused() -> Result<Vec<String>, PortError> {
    of_devices(ifb::remove_if_unused)
}

/// The shared devices of which this is so; nobody joins or leaves one meanwhile.
fn of_devices(is_so: impl Fn(&Lock, &str) -> Result<bool, PortError>) -> Result<Vec<String>, PortError> {
    let names = redirect::devices()?;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let lock = Lock::take()?;
    let chosen = names.into_iter().map(|name| Ok(is_so(&lock, &name)?.then_some(name)));
    chosen.filter_map(Result::transpose).collect()
}

/// True if a member's packets go through its VM's current device; one that was made again has another number.
pub(crate) fn is_joined(dev: &mut Device, content: &Content) -> Result<bool, PortError> {
    let Some(member) = &content.member else { return Ok(false) };
    let redirected = redirected(dev)?;
    Ok(redirected.is_some() && redirected == ifb::served(&member.vm)?)
}

/// Looks at a port that its record calls a member, and undoes what is not whole.
pub(crate) fn settle(dev: &mut Device, content: Content) -> Result<Found, PortError> {
    let lock = Lock::take()?;
    let vm = content.member.as_ref().map(|member| member.vm.clone()).unwrap_or_default();
    if is_joined(dev, &content)? {
        return Ok(Found::Member(Box::new(content)));
    }
    dev.made_clsact = content.made_clsact;
    let index = signed(dev.index);
    part(dev, index)?;
    ifb::remove_if_unused(&lock, &shared_device(&vm))?;
    Ok(Found::Undone)
}

/// The other ports of a VM and how they share its budget, by name. The device of a shared budget is on record too, but
/// no port to its users.
fn others(dev: &Device, vm: &VmBudget) -> Result<Vec<(String, VmBudget)>, PortError> {
    let mut ports: Vec<(String, VmBudget)> = Vec::new();
    for index in state::ours()?.into_iter().filter(|index| *index != dev.index) {
        let Ok(name) = nix::net::if_::if_indextoname(index) else { continue };
        let name = name.to_string_lossy().into_owned();
        let Ok(mut port) = Device::open(&name) else { continue };
        let theirs = state::peek(&mut port)?.0.and_then(|content| content.config.vm);
        ports.extend(
            theirs
                .filter(|theirs| theirs.name == vm.name && !is_shared_device(&name))
                .map(|theirs| (name, theirs)),
        );
    }
    ports.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(ports)
}

fn names(ports: &[(String, VmBudget)]) -> String {
    ports.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Refuses the whole budget where other ports have parts of it.
fn check_whole(dev: &Device, vm: &VmBudget) -> Result<(), PortError> {
    let mut ports = others(dev, vm)?;
    ports.retain(|(_, theirs)| theirs.share == VmShare::Split);
    if ports.is_empty() {
        return Ok(());
    }
    let problem = format!("VM `{}` gave parts of its budget away, at {}", vm.name, names(&ports));
    let help = "give this port a part too (`:1/2`, in a file `share = \"split\"`), or `vmcc unmark` those ports first";
    Err(PortError::config(&dev.name, "vm", problem).help(help))
}

/// Refuses a part that, with the parts of the VM's other ports, is more than the whole.
pub(crate) fn check_parts(dev: &Device, config: &PortConfig) -> Result<(), PortError> {
    let Some(vm) = config.vm.as_ref().filter(|vm| vm.share == VmShare::Split) else { return Ok(()) };
    let part = |vm: &VmBudget| f64::from(vm.weight) / f64::from(vm.weights.max(1));
    let ports = others(dev, vm)?;
    if ports.iter().any(|(_, theirs)| theirs.share == VmShare::Shared) {
        let problem =
            format!("VM `{}` shares its whole budget at {}: no part of it is left", vm.name, names(&ports));
        let help = "share it here too (`:shared`, in a file `share = \"shared\"`), or `vmcc unmark` those ports first";
        return Err(PortError::config(&dev.name, "vm.weight", problem).help(help));
    }
    let sum = ports.iter().fold(part(vm), |sum, (_, theirs)| sum + part(theirs));
    // Thirds do not sum up to one exactly.
    if sum <= 1.0 + 1e-9 {
        return Ok(());
    }
    let problem =
        format!("the parts of VM `{}` at {} and here are more than its budget", vm.name, names(&ports));
    let error = PortError::config(&dev.name, "vm.weight", problem);
    Err(error.help("give each port WEIGHT/WEIGHTS that sum up to one"))
}

fn write(record: &Record, dev: &Device, config: &PortConfig, vm: &str) -> Result<(), PortError> {
    record.write(&Content {
        port: dev.name.clone(),
        config: config.clone(),
        backend: Backend::Auto,
        queues: false,
        previous: None,
        made_clsact: dev.made_clsact,
        kept: false,
        changing: false,
        member: Some(MemberRecord { vm: vm.to_owned() }),
        dropped: Dropped::default(),
        pid: std::process::id(),
    })
}
