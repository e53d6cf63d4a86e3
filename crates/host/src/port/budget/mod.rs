//! One budget for all ports of a VM, shared: what leaves any of them goes through one bucket.
//!
//! A member port has two things: a filter that redirects its packets to the VM's IFB, and the program that measures
//! RTTs from the ACKs that come in. The queues, the marking program and its maps are the IFB's. The last port to
//! leave takes the bucket with it; one that vanishes is noticed by the next who looks.

mod bucket;

use super::counted::Dropped;
use super::error::PortError;
use super::frame::Frame;
use super::half::{self, Found};
use super::program::{self, Program};
use super::record::{Content, Member as MemberRecord, Record};
use super::site::Site;
use super::{hold, signed};
use bucket::Lock;
use vmcc_netlink::{TrafficControl, os_code};
use vmcc_port::{Backend, PortConfig, PortStats, VmBudget, VmShare};

/// What devices of buckets are called, with a number behind it.
const PREFIX: &str = "vmccb";
/// Where the redirecting filter sits among a port's filters: before our program, which a member does not have.
const REDIRECT: u16 = 0xc0d9;
/// Its handle says whether clsact goes with it, should the record be lost.
const FOUND_CLSACT: u32 = 1;
const MADE_CLSACT: u32 = 2;

/// A port that shares its VM's budget.
pub(crate) struct Member {
    pub(crate) name: String,
    site: Site,
    vm: String,
    /// Locked; `None` when somebody only looks.
    record: Option<Record>,
}

/// The budget that a configuration shares.
pub(crate) fn shared(config: &PortConfig) -> Option<&VmBudget> {
    config.vm.as_ref().filter(|vm| vm.share == VmShare::Shared)
}

/// Whether a port is a bucket's device, which is no port to its users.
pub(crate) fn is_bucket(name: &str) -> bool {
    let number = name.strip_prefix(PREFIX);
    number.is_some_and(|number| number.len() == 8 && number.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Whether a port's packets go through a bucket.
pub(crate) fn is_member(site: &mut Site) -> Result<bool, PortError> {
    Ok(redirect(site)?.is_some())
}

/// The same of any port, whether it can be read or not.
pub(crate) fn has_redirect(tc: &mut TrafficControl, port: u32) -> bool {
    tc.redirected(port, REDIRECT).ok().flatten().is_some()
}

/// The device that a port's packets go through, and its filter's handle.
fn redirect(site: &mut Site) -> Result<Option<(u32, u32)>, PortError> {
    let found = site.tc.redirected(site.index, REDIRECT);
    found.map_err(|e| PortError::kernel(&site.name, "read its filters", e))
}

fn redirected(site: &mut Site) -> Result<Option<u32>, PortError> {
    Ok(redirect(site)?.map(|(device, _)| device))
}

/// What a member port says itself, without a record: the filter that redirects its packets, and the bucket where they
/// go.
pub(crate) fn noted(site: &mut Site) -> Result<Option<Content>, PortError> {
    let Some((device, handle)) = redirect(site)? else { return Ok(None) };
    let bucket = Program::find(signed(device))?.and_then(|program| program.note?.read());
    Ok(bucket.and_then(|bucket| {
        let vm = bucket.config.vm.as_ref()?.name.clone();
        Some(Content {
            port: site.name.clone(),
            backend: Backend::Auto,
            queues: false,
            previous: None,
            made_clsact: handle == MADE_CLSACT,
            member: Some(MemberRecord { vm }),
            dropped: Dropped::default(),
            ..bucket
        })
    }))
}

/// How a member port is not as it was set.
pub(crate) fn differs(site: &mut Site, vm: &str) -> Result<String, PortError> {
    Ok(match redirected(site)? {
        None => format!(
            "its packets do not go through the budget of VM {vm} any more: nothing caps or marks them"
        ),
        Some(_) => {
            format!("the budget of VM {vm} is not whole, or its device is gone: nothing may leave the port")
        }
    })
}

/// Repairs the bucket of a VM, if its device is there.
pub(crate) fn repair(vm: &str) -> Result<(), PortError> {
    bucket::repair(&Lock::take()?, vm)
}

/// Takes a member off its bucket, which stays.
pub(crate) fn take_off_whole(site: &mut Site, content: &Content) -> Result<(), PortError> {
    site.made_clsact = content.made_clsact;
    let index = signed(site.index);
    part(site, index)
}

impl Member {
    /// Joins the VM's bucket. The port has nothing of ours, and its record is locked.
    pub(crate) fn begin(mut site: Site, record: Record, config: &PortConfig) -> Result<Self, PortError> {
        let Some(vm) = shared(config) else {
            return Err(PortError::config(&site.name, "vm", "there is no shared budget"));
        };
        if site.frame()? == Frame::Bare {
            let problem =
                "the ports of a shared budget are Ethernet's, and this one has no link-layer header";
            let help = "give it a part of the budget (`:1/2`, in a file `share = \"split\"`)";
            return Err(PortError::config(&site.name, "vm.share", problem).help(help));
        }
        check_whole(&site, vm)?;
        let lock = Lock::take()?;
        site.remember_clsact()?;
        let device = bucket::open(&lock, &site, config, vm)?;
        let vm = vm.name.clone();
        let joined = write(&record, &site, config, &vm)
            .and_then(|()| hold::during(&mut site, Some(device), |site, _| join(site, device)));
        let mut member = Self { name: site.name.clone(), site, vm, record: Some(record) };
        if let Err(error) = joined {
            // The first error tells more than one about undoing it.
            let _ = member.leave(&lock);
            return Err(error);
        }
        Ok(member)
    }

    /// What a record speaks of.
    pub(crate) fn open_as(mut site: Site, content: &Content, record: Option<Record>) -> Option<Self> {
        let member = content.member.as_ref()?;
        site.made_clsact = content.made_clsact;
        Some(Self { name: site.name.clone(), site, vm: member.vm.clone(), record })
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
        let dropped = bucket::change(&lock, &self.vm, config)?;
        if let Some(record) = &self.record {
            write(record, &self.site, config, &self.vm)?;
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

    /// See [`Served::mark_kept`](super::served::Served::mark_kept).
    pub(crate) fn mark_kept(&self) {
        if let Some((record, content)) =
            self.record.as_ref().and_then(|record| Some((record, record.read()?)))
        {
            // As there.
            let _ = record.write(&Content { kept: true, ..content });
        }
    }

    /// Leaves the bucket; the last takes it away.
    pub(crate) fn end(mut self) -> Result<(), PortError> {
        let lock = Lock::take()?;
        self.leave(&lock)
    }

    fn leave(&mut self, lock: &Lock) -> Result<(), PortError> {
        let index = signed(self.site.index);
        part(&mut self.site, index)?;
        bucket::remove_if_unused(lock, &bucket::device(&self.vm))?;
        if let Some(record) = self.record.take() {
            record.remove();
        }
        Ok(())
    }
}

/// Counters of a VM's bucket and its ports, in the calling thread's network namespace.
pub(crate) fn stats(vm: &str) -> Result<PortStats, PortError> {
    bucket::stats(vm)
}

/// Looks at a port that its record calls a member, and undoes what is not whole.
pub(crate) fn settle(site: &mut Site, content: Content) -> Result<Found, PortError> {
    let lock = Lock::take()?;
    let vm = content.member.as_ref().map(|member| member.vm.clone()).unwrap_or_default();
    let redirected = redirected(site)?;
    if redirected.is_some() && redirected == bucket::served(&vm)? {
        return Ok(Found::Member(Box::new(content)));
    }
    site.made_clsact = content.made_clsact;
    let index = signed(site.index);
    part(site, index)?;
    bucket::remove_if_unused(&lock, &bucket::device(&vm))?;
    Ok(Found::Undone)
}

/// The devices of shared budgets in the calling thread's network namespace whose ports are gone.
///
/// # Errors
/// The kernel refuses.
pub fn unused() -> Result<Vec<String>, PortError> {
    of_devices(bucket::is_unused)
}

/// Removes them; which.
///
/// # Errors
/// The kernel refuses.
pub fn remove_unused() -> Result<Vec<String>, PortError> {
    of_devices(bucket::remove_if_unused)
}

/// The devices of buckets of which this is so; nobody joins or leaves one meanwhile.
fn of_devices(is_so: impl Fn(&Lock, &str) -> Result<bool, PortError>) -> Result<Vec<String>, PortError> {
    let names = bucket::devices()?;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let lock = Lock::take()?;
    let chosen = names.into_iter().map(|name| Ok(is_so(&lock, &name)?.then_some(name)));
    chosen.filter_map(Result::transpose).collect()
}

/// The other ports of a VM and how they share its budget, by name. The device of a shared budget is on record too, but
/// no port to its users.
fn others(site: &Site, vm: &VmBudget) -> Result<Vec<(String, VmBudget)>, PortError> {
    let mut ports: Vec<(String, VmBudget)> = Vec::new();
    for index in super::differs::ours()?.into_iter().filter(|index| *index != site.index) {
        let Ok(name) = nix::net::if_::if_indextoname(index) else { continue };
        let name = name.to_string_lossy().into_owned();
        let Ok(mut port) = Site::open(&name) else { continue };
        let theirs = half::peek(&mut port)?.0.and_then(|content| content.config.vm);
        ports.extend(
            theirs.filter(|theirs| theirs.name == vm.name && !is_bucket(&name)).map(|theirs| (name, theirs)),
        );
    }
    ports.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(ports)
}

fn names(ports: &[(String, VmBudget)]) -> String {
    ports.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Refuses the whole budget where other ports have parts of it.
fn check_whole(site: &Site, vm: &VmBudget) -> Result<(), PortError> {
    let mut ports = others(site, vm)?;
    ports.retain(|(_, theirs)| theirs.share == VmShare::Split);
    if ports.is_empty() {
        return Ok(());
    }
    let problem = format!("VM `{}` gave parts of its budget away, at {}", vm.name, names(&ports));
    let help = "give this port a part too (`:1/2`, in a file `share = \"split\"`), or `vmcc unmark` those ports first";
    Err(PortError::config(&site.name, "vm", problem).help(help))
}

/// Refuses a part that, with the parts of the VM's other ports, is more than the whole.
pub(crate) fn check_parts(site: &Site, config: &PortConfig) -> Result<(), PortError> {
    let Some(vm) = config.vm.as_ref().filter(|vm| vm.share == VmShare::Split) else { return Ok(()) };
    let part = |vm: &VmBudget| f64::from(vm.weight) / f64::from(vm.weights.max(1));
    let ports = others(site, vm)?;
    if ports.iter().any(|(_, theirs)| theirs.share == VmShare::Shared) {
        let problem =
            format!("VM `{}` shares its whole budget at {}: no part of it is left", vm.name, names(&ports));
        let help = "share it here too (`:shared`, in a file `share = \"shared\"`), or `vmcc unmark` those ports first";
        return Err(PortError::config(&site.name, "vm.weight", problem).help(help));
    }
    let sum = ports.iter().fold(part(vm), |sum, (_, theirs)| sum + part(theirs));
    // Thirds do not sum up to one exactly.
    if sum <= 1.0 + 1e-9 {
        return Ok(());
    }
    let problem =
        format!("the parts of VM `{}` at {} and here are more than its budget", vm.name, names(&ports));
    let error = PortError::config(&site.name, "vm.weight", problem);
    Err(error.help("give each port WEIGHT/WEIGHTS that sum up to one"))
}

fn join(site: &mut Site, device: u32) -> Result<(), PortError> {
    // Before its packets go there: ACKs that come in find the flows that went out.
    program::lend_ingress(&site.name, signed(device), signed(site.index))?;
    let handle = if site.made_clsact { MADE_CLSACT } else { FOUND_CLSACT };
    let redirected = site.tc.redirect(site.index, device, REDIRECT, handle);
    redirected.map_err(|e| match os_code(&e) {
        Some(nix::libc::ENOENT) => PortError::Feature {
            port: site.name.clone(),
            feature: "send a port's packets through a shared budget".to_owned(),
            cause: e.to_string(),
            remedy: "modprobe act_mirred, or boot a kernel with CONFIG_NET_ACT_MIRRED; or give each port its part (`:1/2`, in a file `share = \"split\"`)"
                .to_owned(),
        },
        _ => PortError::kernel(&site.name, "redirect its packets to the budget of its VM", e),
    })
}

/// Takes everything of a member off the port. A port that is gone is fine.
pub(crate) fn part(site: &mut Site, index: i32) -> Result<(), PortError> {
    let device = redirected(site)?;
    hold::during(site, device, |site, _| take_off(site, index))
}

fn take_off(site: &mut Site, index: i32) -> Result<(), PortError> {
    if is_member(site)? {
        let ended = site.tc.end_redirect(site.index, REDIRECT);
        super::site::gone_is_fine(ended)
            .map_err(|e| PortError::kernel(&site.name, "end its redirection", e))?;
    }
    Program::detach(&site.name, index)?;
    site.restore_clsact()
}

fn write(record: &Record, site: &Site, config: &PortConfig, vm: &str) -> Result<(), PortError> {
    record.write(&Content {
        port: site.name.clone(),
        config: config.clone(),
        backend: Backend::Auto,
        queues: false,
        previous: None,
        made_clsact: site.made_clsact,
        kept: false,
        half: false,
        member: Some(MemberRecord { vm: vm.to_owned() }),
        dropped: Dropped::default(),
        pid: std::process::id(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_after_its_vm_and_known_by_its_name() {
        let long = bucket::device("a-name-of-31-characters-is-long");
        assert!(long.len() <= 15 && is_bucket(&long), "{long}");
        assert_ne!(bucket::device("db1"), bucket::device("db2"));
        for other in ["vmccb", "vmccb1234567", "vmccb1234567g", "vmccbridge0", "eth0"] {
            assert!(!is_bucket(other), "{other}");
        }
    }
}
