//! Registrations of vmcc in the kernel now, from any process.
//!
//! Every object of ours carries a configuration map that says which algorithm it is, which process registered it
//! and which maps belong to it; it is found by its name and shape among all BPF maps.

use crate::accounts::{self, Shortage};
use crate::bpffs::{self, Pin, PinLock};
use crate::counters::Counters;
use crate::error::ControlError;
use crate::ids::{self, OpsLink};
use crate::objects::Object;
use crate::shared::algorithm::{Config, RawParams};
use crate::shared::{self, FIRST};
use libbpf_rs::query::{ProgInfoIter, ProgramInfo};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use vmcc_cc::{Algorithm, ParamInfo, Params};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The variable in cc.bpf.c, hence the map, that holds the table of callbacks.
pub(crate) const OPS_MAP: &str = "mp_ops";
/// `BPF_F_LINK`: the registration is a BPF link. Kernels before 6.4 do not know it.
pub(crate) const BPF_F_LINK: u32 = 1 << 13;
/// The data section of the configuration, hence its map.
pub(crate) const CONFIG_MAP: &str = ".data.vmcc";

/// One registration.
pub(crate) struct Registration {
    pub(crate) config: Config,
    pub(crate) map: MapHandle,
    hold: Hold,
    ops: MapHandle,
}

/// Holder of a registration, as the kernel reports it.
enum Hold {
    /// A pin of ours.
    Pinned(OwnedFd),
    /// A process, or a pin elsewhere: without one of them there would be no link.
    Held { fd: OwnedFd, link_id: u32 },
    /// A kernel without links (before 6.4): it lasts until somebody removes it.
    Lasting,
}

impl Registration {
    /// Left in the kernel on purpose.
    fn kept(&self) -> bool {
        match self.hold {
            Hold::Pinned(_) => true,
            Hold::Held { .. } => false,
            Hold::Lasting => self.config.owner_pid == 0,
        }
    }

    /// Its process is gone and nothing keeps it: a leftover, which only kernels without links have.
    fn orphaned(&self) -> bool {
        matches!(self.hold, Hold::Lasting) && !self.kept() && !self.owner_lives()
    }

    fn owner_lives(&self) -> bool {
        self.config.owner_pid != 0 && is_alive(self.config.owner_pid, self.config.owner_start)
    }

    /// The process that holds it; `None` if none does, or none that can be seen.
    pub(crate) fn holder(&self) -> Option<u32> {
        match &self.hold {
            Hold::Held { link_id, .. } if !self.owner_lives() => ids::holders(*link_id).first().copied(),
            Hold::Held { .. } => Some(self.config.owner_pid),
            Hold::Pinned(_) => None,
            Hold::Lasting => (!self.kept()).then_some(self.config.owner_pid),
        }
    }

    /// Its link; `None` on kernels without links.
    pub(crate) fn into_link(self) -> Option<OwnedFd> {
        match self.hold {
            Hold::Pinned(fd) | Hold::Held { fd, .. } => Some(fd),
            Hold::Lasting => None,
        }
    }
}

/// A registration, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Name in the kernel.
    pub kernel_name: String,
    /// True if it outlives its process: `vmcc up` left it.
    pub kept: bool,
    /// The process that holds it; `None` if it is kept, or none can be seen.
    pub owner_pid: Option<u32>,
    /// True if that process is gone and nothing keeps it: a leftover.
    pub orphaned: bool,
    /// True if it is the same build as this program.
    pub same_build: bool,
    /// MPTCP connections in its table; `None` if it keeps none.
    pub connections: Option<usize>,
    /// Counters; `None` if it is another build.
    pub counters: Option<Counters>,
    /// Refusals because an account or a shared resource was full; `None` if it is another build.
    pub shortage: Option<Shortage>,
    /// Its parameters; `None` if it is another build, which may have others.
    #[serde(serialize_with = "by_name")]
    pub parameters: Option<Params>,
}

/// Parameters as a table: numbers in their units, and words.
fn by_name<S: serde::Serializer>(params: &Option<Params>, serializer: S) -> Result<S::Ok, S::Error> {
    params.as_ref().map(parameter_table).serialize(serializer)
}

/// Every parameter by name: a number in its unit, or the word of a choice.
pub fn parameter_table(params: &Params) -> BTreeMap<&'static str, serde_json::Value> {
    let value = |info: &ParamInfo, value: f64| match info.choices {
        [] => value.into(),
        _ => info.value_text(value).into(),
    };
    params.values().map(|(info, v)| (info.name, value(info, v))).collect()
}

/// Every registration of vmcc in this kernel, by kernel name.
///
/// # Errors
/// Not permitted to list BPF maps.
pub fn list() -> Result<Vec<Status>, ControlError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(ControlError::kernel("list BPF maps", "not permitted; run as root"));
    }
    let mut all: Vec<Status> = registrations()?.iter().map(status).collect();
    all.sort_by(|a, b| a.kernel_name.cmp(&b.kernel_name));
    Ok(all)
}

fn status(r: &Registration) -> Status {
    let by_name = Algorithm::by_name(r.config.kernel_name()).ok();
    let groups = (r.config.groups_map_id != 0).then(|| MapHandle::from_map_id(r.config.groups_map_id).ok());
    let same_build = by_name.filter(|_| same_build(r));
    let map = |id| same_build.and_then(|_| MapHandle::from_map_id(id).ok());
    Status {
        counters: map(r.config.counters_map_id).as_ref().and_then(Counters::read),
        shortage: map(r.config.accounts_map_id).as_ref().map(accounts::shortage),
        kernel_name: r.config.kernel_name().to_owned(),
        kept: r.kept(),
        owner_pid: r.holder(),
        orphaned: r.orphaned(),
        same_build: same_build.is_some(),
        parameters: same_build.map(|algorithm| Params::from_raw(algorithm, r.config.params.v)),
        connections: groups.flatten().map(|map| map.keys().count()),
    }
}

/// True if it is the build that this program carries: the layouts of its maps are known then.
pub(crate) fn same_build(r: &Registration) -> bool {
    let object = Algorithm::by_name(r.config.kernel_name()).ok().and_then(|a| Object::find(a.name()));
    object.is_some_and(|object| object.build == r.config.build)
}

/// The registration of this name.
pub(crate) fn find(kernel_name: &str) -> Result<Option<Registration>, ControlError> {
    Ok(registrations()?.into_iter().find(|r| r.config.kernel_name() == kernel_name))
}

/// Changes the parameters of an algorithm that some process (`vmcc up`, a run) has loaded.
///
/// # Errors
/// It is not loaded, or the kernel refuses.
pub fn set_params(params: &Params) -> Result<(), ControlError> {
    let algorithm = params.algorithm();
    let kernel_name = algorithm.info().kernel_name;
    let found = find(kernel_name)?.ok_or(ControlError::NotLoaded { kernel_name })?;
    write_params(algorithm, &found.map, params)
}

pub(crate) fn write_params(
    algorithm: Algorithm,
    map: &MapHandle,
    params: &Params,
) -> Result<(), ControlError> {
    if params.algorithm() != algorithm {
        let given = params.algorithm().name();
        return Err(ControlError::WrongAlgorithm { algorithm: algorithm.name(), given });
    }
    change_config(map, algorithm.info().kernel_name, |config| config.params = RawParams { v: *params.raw() })
}

/// Changes the configuration of a loaded algorithm.
pub(crate) fn change_config(
    map: &MapHandle,
    kernel_name: &str,
    change: impl FnOnce(&mut Config),
) -> Result<(), ControlError> {
    let failed = |cause: String| ControlError::kernel(format!("configure {kernel_name}"), cause);
    let read = map.lookup(FIRST.as_bytes(), MapFlags::ANY).map_err(|e| failed(e.to_string()))?;
    let config = read.as_deref().and_then(Config::decode);
    let mut config = config.ok_or_else(|| failed("its configuration is unreadable".to_owned()))?;
    change(&mut config);
    shared::write(map, FIRST, &config).map_err(|e| failed(e.to_string()))
}

/// Removes what killed processes left in the kernel. (With links, Linux 6.4, the kernel does so itself.) Answers
/// the kernel names removed.
///
/// # Errors
/// Something that was left cannot be removed.
pub fn clean() -> Result<Vec<String>, ControlError> {
    match PinLock::for_removal() {
        Ok(lock) => lock.clean(),
        // No pin can be seen from here, so there is none of ours to remove.
        Err(ControlError::OwnMounts) => unregister(registrations()?, Registration::orphaned),
        Err(error) => Err(error),
    }
}

/// Removes what [`crate::Loaded::keep`] left registered, and what killed processes left. Answers the kernel names
/// removed; connections that run under them keep them until they end.
///
/// # Errors
/// Something cannot be removed, or somebody holds it still.
pub fn take_down() -> Result<Vec<String>, ControlError> {
    take_down_where(|_| true)
}

/// As [`take_down`], of these kernel names alone.
///
/// # Errors
/// As [`take_down`].
pub fn take_down_of(kernel_names: &[&str]) -> Result<Vec<String>, ControlError> {
    take_down_where(|name| kernel_names.contains(&name))
}

fn take_down_where(wanted: impl Fn(&str) -> bool) -> Result<Vec<String>, ControlError> {
    let lock = PinLock::for_removal()?;
    let pins = lock.pins()?;
    let mut removed = remove_pins(pins.iter().filter(|pin| pin.link.is_some() && wanted(&pin.name)))?;
    // The link goes with its last reference.
    drop(pins);
    let wanted = |r: &Registration| wanted(r.config.kernel_name());
    removed.extend(unregister(registrations()?, |r| wanted(r) && (r.kept() || r.orphaned()))?);
    removed.sort();
    removed.dedup();
    let left = still_registered(&removed, wanted)?;
    // Last: removing the folder releases the lock, and its next owner must not meet registrations that are being removed.
    lock.remove_folder()?;
    match left {
        Some((name, holder)) => Err(ControlError::StillHeld { name, holder }),
        None => Ok(removed),
    }
}

/// A registration that was to be removed and is there nevertheless, or that nobody who can be seen holds, which was
/// kept elsewhere; and its holder.
fn still_registered(
    removed: &[String],
    wanted: impl Fn(&Registration) -> bool,
) -> Result<Option<(String, Option<u32>)>, ControlError> {
    let mut left = None;
    // Some kernels release a pinned object a moment after its pin was removed.
    for _ in 0..20 {
        let of_ours = |r: &Registration| removed.iter().any(|name| name == r.config.kernel_name());
        let unseen = |r: &Registration| wanted(r) && !r.kept() && r.holder().is_none();
        let found = registrations()?.into_iter().find(|r| of_ours(r) || unseen(r));
        left = found.map(|r| (r.config.kernel_name().to_owned(), r.holder()));
        if left.is_none() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Ok(left)
}

impl PinLock {
    /// As [`clean`], for a process that holds the lock already.
    ///
    /// # Errors
    /// As [`clean`].
    pub fn clean(&self) -> Result<Vec<String>, ControlError> {
        let dead = |pin: &&Pin| pin.link.as_ref().is_some_and(|link| link.map_id.is_none());
        let mut removed = remove_pins(self.pins()?.iter().filter(dead))?;
        removed.extend(unregister(registrations()?, Registration::orphaned)?);
        Ok(removed)
    }
}

fn remove_pins<'a>(pins: impl Iterator<Item = &'a Pin>) -> Result<Vec<String>, ControlError> {
    let mut removed = Vec::new();
    for pin in pins {
        let failed = |e| ControlError::kernel(format!("remove {}", bpffs::shown(&pin.path).display()), e);
        fs::remove_file(&pin.path).map_err(failed)?;
        removed.push(pin.name.clone());
    }
    Ok(removed)
}

/// Takes out of the kernel what no link keeps.
fn unregister(
    all: Vec<Registration>,
    wanted: impl Fn(&Registration) -> bool,
) -> Result<Vec<String>, ControlError> {
    let lasting = |r: &Registration| matches!(r.hold, Hold::Lasting);
    let mut removed = Vec::new();
    for found in all.into_iter().filter(|r| lasting(r) && wanted(r)) {
        let name = found.config.kernel_name().to_owned();
        let deleted = found.ops.delete(FIRST.as_bytes());
        deleted.map_err(|e| ControlError::kernel(format!("unregister {name}"), e))?;
        removed.push(name);
    }
    Ok(removed)
}

/// Makes a registration outlive this process: by its pin, where there are links, and nothing else says so.
pub(crate) fn keep(
    kernel_name: &str,
    mut link: Link,
    is_link: bool,
    map: &MapHandle,
) -> Result<(), ControlError> {
    if is_link {
        return bpffs::keep_at(kernel_name, |path| {
            link.pin(path)
                .map_err(|e| vmcc_system::os_error(&e).unwrap_or_else(|| io::Error::other(e.to_string())))
        });
    }
    change_config(map, kernel_name, |config| config.owner_pid = 0)?;
    // Its drop would unregister.
    link.disconnect();
    Ok(())
}

/// Every registration that is in effect.
pub(crate) fn registrations() -> Result<Vec<Registration>, ControlError> {
    let pins = bpffs::pins()?.unwrap_or_default();
    let pinned: Vec<u32> = pins.iter().filter_map(|pin| pin.link.as_ref()?.map_id).collect();
    drop(pins);
    let mut links = ids::ops_links()?;
    ids::maps(|_, map| read_registration(map, &mut links, &pinned))
}

/// Sockets and namespaces' defaults that refer to an algorithm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct References {
    /// To registrations in effect.
    pub(crate) registered: usize,
    /// To those that were taken down.
    pub(crate) taken_down: usize,
}

/// References to every algorithm of ours in the kernel, by kernel name.
pub(crate) fn references() -> Result<BTreeMap<String, References>, ControlError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(ControlError::kernel("list BPF maps", "not permitted; run as root"));
    }
    let links = ids::ops_links()?;
    let mut found: BTreeMap<String, References> = BTreeMap::new();
    for (config, ops) in ids::maps(|_, map| table_of(&map))? {
        let Some(value) = ops_value(&ops) else { continue };
        let references = value.references as usize;
        let of_name = found.entry(config.kernel_name().to_owned()).or_default();
        if links.iter().any(|link| link.map_id == Some(config.ops_map_id)) || in_use(&ops, &value) {
            // The registration itself is one.
            of_name.registered += references.saturating_sub(1);
        } else {
            of_name.taken_down += references;
        }
    }
    Ok(found)
}

/// The configuration in a map, and its algorithm's table of callbacks; `None` if it is none of ours.
fn table_of(map: &MapHandle) -> Option<(Config, MapHandle)> {
    if map.name() != CONFIG_MAP || map.value_size() as usize != size_of::<Config>() {
        return None;
    }
    let value = map.lookup(FIRST.as_bytes(), MapFlags::ANY).ok()??;
    let config = Config::decode(&value)?;
    let ops = MapHandle::from_map_id(config.ops_map_id).ok()?;
    (ops.name() == OPS_MAP).then_some((config, ops))
}

fn read_registration(map: MapHandle, links: &mut Vec<OpsLink>, pinned: &[u32]) -> Option<Registration> {
    let (config, ops) = table_of(&map)?;
    let link = links.iter().position(|link| link.map_id == Some(config.ops_map_id));
    let hold = match link.map(|at| links.swap_remove(at)) {
        Some(OpsLink { fd, .. }) if pinned.contains(&config.ops_map_id) => Hold::Pinned(fd),
        Some(OpsLink { fd, id, .. }) => Hold::Held { fd, link_id: id },
        None if ops_value(&ops).is_some_and(|value| in_use(&ops, &value)) => Hold::Lasting,
        // An unregistered object lives on while connections use it; it is no registration any more.
        None => return None,
    };
    Some(Registration { config, map, hold, ops })
}

/// Header of a struct_ops map's value: the kernel's `struct bpf_struct_ops_common_value`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct OpsValue {
    references: u32,
    state: u32,
}

/// `BPF_STRUCT_OPS_STATE_INUSE`.
const OPS_IN_USE: u32 = 1;

/// Without links, the value of the struct_ops map tells.
fn in_use(ops: &MapHandle, value: &OpsValue) -> bool {
    let linked = ops.info().is_ok_and(|i| i.info.map_flags & BPF_F_LINK != 0);
    !linked && value.state == OPS_IN_USE
}

fn ops_value(ops: &MapHandle) -> Option<OpsValue> {
    let bytes = ops.lookup(FIRST.as_bytes(), MapFlags::ANY).ok()??;
    Some(OpsValue::read_from_prefix(&bytes).ok()?.0)
}

/// The programs of the object that `map` belongs to. They share its type information; not every one of them uses the map.
pub(crate) fn programs_beside(map: &MapHandle) -> libbpf_rs::Result<Vec<u32>> {
    let types = map.info()?.info.btf_id;
    let beside = |program: &ProgramInfo| types != 0 && program.btf_id == types;
    Ok(ProgInfoIter::default().filter(beside).map(|program| program.id).collect())
}

/// True if the process with this number and start time is alive; another may have the number by now.
pub(crate) fn is_alive(pid: u32, start: u32) -> bool {
    match start_time(pid) {
        // What an earlier build registered does not say when its process started.
        Some(now) => start == 0 || now == start,
        None => false,
    }
}

/// Start time of a process, in clock ticks since the machine's start, in its low 32 bits; `None` if there is none.
pub(crate) fn start_time(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, a name in parentheses, may contain anything. The time is field 22.
    let ticks: u64 = text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    Some((ticks & u64::from(u32::MAX)) as u32)
}

/// The kernel's identifier of a loaded program.
pub(crate) fn program_id(program: &libbpf_rs::Program<'_>) -> Option<u32> {
    libbpf_rs::Program::id_from_fd(program.as_fd()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_pid_is_another_process() {
        let own = std::process::id();
        let start = start_time(own).unwrap();
        assert!(is_alive(own, start) && is_alive(own, 0));
        assert!(!is_alive(own, start.wrapping_add(1)));
        assert!(!is_alive(u32::MAX, start));
    }
}
