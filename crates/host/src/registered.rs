//! What of vmcc is registered in the kernel now, whoever loaded it.
//!
//! Every object of ours carries a configuration map that says which algorithm it is, which process registered it
//! and which maps belong to it; it is found by its name and shape among all BPF maps.

use crate::accounts::{self, Shortage};
use crate::config::{CONFIG_BYTES, CONFIG_MAP, Config};
use crate::counters::Counters;
use crate::error::ControlError;
use crate::load::{BPF_F_LINK, OPS_MAP};
use crate::objects::Object;
use libbpf_rs::query::{
    LinkInfo, LinkInfoIter, LinkTypeInfo, MapInfoIter, ProgInfoIter, ProgInfoQueryOptions,
};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use vmcc_cc::{Algorithm, ParamInfo, Params};

/// Where the BPF file system is mounted by convention.
const BPFFS: &str = "/sys/fs/bpf";
/// Our folder in it.
const FOLDER: &str = "vmcc";

/// One registration.
pub(crate) struct Registered {
    pub(crate) config: Config,
    pub(crate) map: MapHandle,
    pub(crate) config_map_id: u32,
    /// Open while this value lives; `None` on kernels without links.
    pub(crate) link: Option<OwnedFd>,
    ops: MapHandle,
}

/// A registration, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Name in the kernel.
    pub kernel_name: String,
    /// The process that registered it; `None` if it outlives its process.
    pub owner_pid: Option<u32>,
    /// Whether that process is gone and nothing keeps it: a leftover.
    pub orphaned: bool,
    /// Whether it is the same build as this program.
    pub same_build: bool,
    /// MPTCP connections in its table; `None` if it keeps none.
    pub connections: Option<usize>,
    /// What it has counted; `None` if it is another build.
    pub counters: Option<Counters>,
    /// What was refused because an account, or what all share, was full; `None` if it is another build.
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
    let mut all: Vec<Status> = registrations().iter().map(status).collect();
    all.sort_by(|a, b| a.kernel_name.cmp(&b.kernel_name));
    Ok(all)
}

fn status(r: &Registered) -> Status {
    let by_name = Algorithm::by_name(&r.config.kernel_name).ok();
    let groups = (r.config.groups_map_id != 0).then(|| MapHandle::from_map_id(r.config.groups_map_id).ok());
    let same_build = by_name.filter(|_| same_build(r));
    let map = |id| same_build.and_then(|_| MapHandle::from_map_id(id).ok());
    Status {
        counters: map(r.config.counters_map_id).as_ref().and_then(Counters::read),
        shortage: map(r.config.accounts_map_id).as_ref().map(accounts::shortage),
        kernel_name: r.config.kernel_name.clone(),
        owner_pid: (r.config.owner_pid != 0).then_some(r.config.owner_pid),
        orphaned: r.config.owner_pid != 0 && !alive(r.config.owner_pid),
        same_build: same_build.is_some(),
        parameters: same_build.map(|algorithm| Params::from_raw(algorithm, r.config.params)),
        connections: groups.flatten().map(|map| map.keys().count()),
    }
}

/// Whether it is the build that this program carries: the layouts of its maps are known then.
pub(crate) fn same_build(r: &Registered) -> bool {
    Algorithm::by_name(&r.config.kernel_name).is_ok_and(|a| Object::of(a).build == r.config.build)
}

/// The registration of this name.
pub(crate) fn find(kernel_name: &str) -> Option<Registered> {
    registrations().into_iter().find(|r| r.config.kernel_name == kernel_name)
}

/// Changes the parameters of an algorithm that some process (`vmcc up`, a run) has loaded.
///
/// # Errors
/// It is not loaded, or the kernel refuses.
pub fn set_params(params: &Params) -> Result<(), ControlError> {
    let algorithm = params.algorithm();
    let kernel_name = algorithm.info().kernel_name;
    let found = find(kernel_name).ok_or(ControlError::NotLoaded { kernel_name })?;
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
    change_config(map, algorithm.info().kernel_name, |config| config.params = *params.raw())
}

/// Changes the configuration of a loaded algorithm.
pub(crate) fn change_config(
    map: &MapHandle,
    kernel_name: &str,
    change: impl FnOnce(&mut Config),
) -> Result<(), ControlError> {
    let failed = |cause: String| ControlError::kernel(format!("configure {kernel_name}"), cause);
    let read = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(|e| failed(e.to_string()))?;
    let config = read.as_deref().and_then(Config::decode);
    let mut config = config.ok_or_else(|| failed("its configuration is unreadable".to_owned()))?;
    change(&mut config);
    map.update(&0_u32.to_ne_bytes(), &config.encode(), MapFlags::ANY).map_err(|e| failed(e.to_string()))
}

/// Removes what killed processes left in the kernel. (With links, Linux 6.4, the kernel does so itself.) Answers
/// the kernel names removed.
///
/// # Errors
/// Something that was left cannot be removed.
pub fn clean() -> Result<Vec<String>, ControlError> {
    remove(|found| found.config.owner_pid != 0 && found.link.is_none() && !alive(found.config.owner_pid))
}

/// Removes what [`crate::Loaded::keep`] left registered. Answers the kernel names removed; connections that run
/// under them keep them until they end.
///
/// # Errors
/// Something cannot be removed.
pub fn take_down() -> Result<Vec<String>, ControlError> {
    remove(|found| found.config.owner_pid == 0)
}

fn remove(wanted: impl Fn(&Registered) -> bool) -> Result<Vec<String>, ControlError> {
    let mut removed = Vec::new();
    for found in registrations().into_iter().filter(wanted) {
        let name = found.config.kernel_name.clone();
        let pin = pin_path(&name);
        if pin.exists() {
            fs::remove_file(&pin)
                .map_err(|e| ControlError::kernel(format!("remove {}", pin.display()), e))?;
        }
        if found.link.is_none() {
            found
                .ops
                .delete(&0_u32.to_ne_bytes())
                .map_err(|e| ControlError::kernel(format!("unregister {name}"), e))?;
        }
        removed.push(name);
    }
    let folder = Path::new(BPFFS).join(FOLDER);
    match fs::remove_dir(&folder) {
        Err(e) if e.kind() != io::ErrorKind::NotFound && e.kind() != io::ErrorKind::DirectoryNotEmpty => {
            Err(ControlError::kernel(format!("remove {}", folder.display()), e))
        }
        _ => Ok(removed),
    }
}

/// Makes a registration outlive this process.
pub(crate) fn keep(
    kernel_name: &str,
    mut link: Link,
    is_link: bool,
    map: &MapHandle,
) -> Result<(), ControlError> {
    if is_link {
        let path = pin_path(kernel_name);
        let failed = |source| ControlError::Pin { name: kernel_name.to_owned(), path: path.clone(), source };
        prepare_bpffs().map_err(failed)?;
        link.pin(&path).map_err(|e| failed(io::Error::other(e.to_string())))?;
    }
    let action = || format!("keep {kernel_name}");
    let read =
        map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(|e| ControlError::kernel(action(), e))?;
    let mut config = read
        .as_deref()
        .and_then(Config::decode)
        .ok_or_else(|| ControlError::kernel(action(), "its configuration is unreadable"))?;
    config.owner_pid = 0;
    map.update(&0_u32.to_ne_bytes(), &config.encode(), MapFlags::ANY)
        .map_err(|e| ControlError::kernel(action(), e))?;
    if !is_link {
        // Its drop would unregister; that of a pinned link only closes our descriptor.
        link.disconnect();
    }
    Ok(())
}

fn pin_path(kernel_name: &str) -> PathBuf {
    Path::new(BPFFS).join(FOLDER).join(kernel_name)
}

/// Mounts the BPF file system where it belongs, unless it is there, and makes our folder.
fn prepare_bpffs() -> io::Result<()> {
    let mounted =
        nix::sys::statfs::statfs(BPFFS).is_ok_and(|s| s.filesystem_type() == nix::sys::statfs::BPF_FS_MAGIC);
    if !mounted {
        let none: Option<&str> = None;
        nix::mount::mount(Some("bpf"), BPFFS, Some("bpf"), nix::mount::MsFlags::empty(), none)?;
    }
    match fs::create_dir(Path::new(BPFFS).join(FOLDER)) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// Every registration that is in effect.
pub(crate) fn registrations() -> Vec<Registered> {
    MapInfoIter::default()
        .filter(|info| info.name == CONFIG_MAP && info.value_size as usize == CONFIG_BYTES)
        .filter_map(|info| registration(info.id))
        .collect()
}

fn registration(config_map_id: u32) -> Option<Registered> {
    let map = MapHandle::from_map_id(config_map_id).ok()?;
    let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    let config = Config::decode(&value)?;
    let ops = MapHandle::from_map_id(config.ops_map_id).ok()?;
    if ops.name() != OPS_MAP {
        return None;
    }
    let link = link_of(config.ops_map_id);
    // An unregistered object lives on while connections use it; it is no registration any more.
    (link.is_some() || in_use(&ops)).then_some(Registered { config, map, config_map_id, link, ops })
}

/// Without links, the value of the struct_ops map tells: its second word is 1 (BPF_STRUCT_OPS_STATE_INUSE).
fn in_use(ops: &MapHandle) -> bool {
    let linked = ops.info().is_ok_and(|i| i.info.map_flags & BPF_F_LINK != 0);
    let value = ops.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
    let state = value.and_then(|v| v.get(4..8).and_then(|w| w.try_into().ok()).map(u32::from_ne_bytes));
    !linked && state == Some(1)
}

fn link_of(ops_map_id: u32) -> Option<OwnedFd> {
    let ours = |info: &LinkInfo| match &info.info {
        LinkTypeInfo::StructOps(ops) => ops.map_id == ops_map_id,
        _ => false,
    };
    let id = LinkInfoIter::default().find(ours)?.id;
    // SAFETY: takes no pointer.
    let fd = unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) };
    // SAFETY: a non-negative answer is a file descriptor that nobody else owns.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The programs that use the configuration map `id`.
pub(crate) fn programs_using(id: u32) -> Vec<u32> {
    ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default().include_map_ids(true))
        .filter(|program| program.map_ids.contains(&id))
        .map(|program| program.id)
        .collect()
}

pub(crate) fn alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// The kernel's identifier of a loaded program.
pub(crate) fn program_id(program: &libbpf_rs::Program<'_>) -> Option<u32> {
    libbpf_rs::Program::id_from_fd(program.as_fd()).ok()
}
