//! Loading algorithms into the kernel.
//!
//! [`Loaded::load`] registers an algorithm under its kernel name; it can then be selected by `sysctl`,
//! `setsockopt(TCP_CONGESTION)` and per network namespace, for plain TCP and for MPTCP subflows. Dropping
//! [`Loaded`] unregisters it (connections that use it keep it until they close); [`Loaded::keep`] leaves it.
//!
//! Two processes may want the same algorithm. If both have the same build of it and the same parameters they
//! share one registration, which lasts until the last of them is gone; otherwise the second gets an error.

use crate::accounts::{self, ACCOUNTS_MAP, Shortage};
use crate::counters::{COUNTERS_MAP, Counters};
use crate::error::{ControlError, LoadError};
use crate::group_table::{self, Connection};
use crate::objects::{Log, Object};
use crate::registry::{self, BPF_F_LINK, CONFIG_MAP, OPS_MAP, Registration};
use crate::shared::algorithm::{Config, MP_OPS_FLAGS, RawParams, TCP_CONG_NEEDS_ACCECN};
use crate::shared::{self, FIRST};
use libbpf_rs::btf::{Btf, types::Struct};
use libbpf_rs::{
    ErrorKind, Link, MapCore, MapFlags, MapHandle, MapType, ObjectBuilder, OpenMapMut, OpenObject,
};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;
use vmcc_cc::{Algorithm, Params};
use vmcc_system::error_chain;
use vmcc_system::netns;
use zerocopy::IntoBytes;

/// Lines of the verifier's log that an error carries.
const LOG_LINES: usize = 12;

/// Reference that keeps the registration alive.
enum Hold {
    /// A link of our own object; its drop unregisters.
    Own { link: Option<Link>, is_link: bool, _object: Box<libbpf_rs::Object> },
    /// Another process's link, kept open.
    Shared { _link: std::os::fd::OwnedFd },
}

/// An algorithm in the kernel.
pub struct Loaded {
    algorithm: Algorithm,
    hold: Hold,
    config: MapHandle,
    groups: Option<MapHandle>,
    events: Option<MapHandle>,
    counters: Option<MapHandle>,
    accounts: Option<MapHandle>,
    program_ids: Vec<u32>,
}

impl Loaded {
    /// Registers `algorithm` with these parameters, or joins the registration of another process.
    ///
    /// # Errors
    /// Missing privilege or kernel feature, a name held by somebody else, or refusal by the kernel's verifier;
    /// nothing is left behind.
    pub fn load(algorithm: Algorithm, params: &Params) -> Result<Self, LoadError> {
        let kernel_name = algorithm.info().kernel_name;
        // Not found out by trying: the kernel would log every refusal.
        if let Some(other) = registry::find(kernel_name)? {
            return Self::join(algorithm, params, other);
        }
        match Self::register(algorithm, params) {
            Err(LoadError::AlreadyRegistered { .. }) => match found_soon(kernel_name)? {
                Some(other) => Self::join(algorithm, params, other),
                None => Err(LoadError::AlreadyRegistered {
                    kernel_name,
                    holder: "something that is not vmcc".to_owned(),
                    remedy: "unload that module or program",
                }),
            },
            other => other,
        }
    }

    fn register(algorithm: Algorithm, params: &Params) -> Result<Self, LoadError> {
        let kernel_name = algorithm.info().kernel_name;
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(LoadError::NoBtf);
        }
        room().map_err(|e| ControlError::kernel(format!("load {kernel_name}"), e))?;
        let log = Log::start();
        let refused = |error: libbpf_rs::Error| refusal(kernel_name, &error, &log);
        let (mut object, is_link) = load_object(algorithm, params).map_err(refused)?;
        // Before it is registered: from that moment on others find it.
        let ids = describe(&object, algorithm, params).map_err(refused)?;
        let link = attach(&mut object).map_err(refused)?;
        let handle = |id: u32| (id != 0).then(|| MapHandle::from_map_id(id)).transpose();
        let program_ids = object.progs().filter_map(|p| registry::program_id(&p)).collect();
        Ok(Self {
            algorithm,
            config: find_map(&object, CONFIG_MAP).map_err(refused)?,
            groups: handle(ids.groups_map_id).map_err(refused)?,
            events: handle(ids.events_map_id).map_err(refused)?,
            counters: handle(ids.counters_map_id).map_err(refused)?,
            accounts: handle(ids.accounts_map_id).map_err(refused)?,
            hold: Hold::Own { link: Some(link), is_link, _object: Box::new(object) },
            program_ids,
        })
    }

    /// The name is taken: by a vmcc like this one, with the same parameters?
    fn join(algorithm: Algorithm, params: &Params, other: Registration) -> Result<Self, LoadError> {
        let kernel_name = algorithm.info().kernel_name;
        let taken =
            |holder: String, remedy| Err(LoadError::AlreadyRegistered { kernel_name, holder, remedy });
        let pid = other.holder().unwrap_or(0);
        if other.config.build != Object::of(algorithm).build {
            let remedy = "stop it, or take it down with `vmcc down`";
            let build = if algorithm.build().is_some() {
                "another version of its file, or one that another clang compiled"
            } else {
                "another build of vmcc"
            };
            return taken(format!("{build} ({})", holder(pid)), remedy);
        }
        if other.config.params.v != *params.raw() {
            let remedy = if pid == 0 { "take it down with `vmcc down`" } else { "wait until that is done" };
            return Err(LoadError::OtherParameters { kernel_name, holder: holder(pid), remedy });
        }
        Self::share(algorithm, other).map_or_else(
            |pid| {
                // Before links (Linux 6.4) nothing can be shared: the owner's end takes it away.
                let remedy = "wait until it ends, or remove what it left with `vmcc clean` or `vmcc down`";
                taken(holder(pid), remedy)
            },
            Ok,
        )
    }

    fn share(algorithm: Algorithm, other: Registration) -> Result<Self, u32> {
        let pid = other.config.owner_pid;
        let handle = |id: u32| (id != 0).then(|| MapHandle::from_map_id(id).ok()).flatten();
        let config = MapHandle::try_from(&other.map).map_err(|_| pid)?;
        let (groups, events) = (handle(other.config.groups_map_id), handle(other.config.events_map_id));
        let counters = handle(other.config.counters_map_id);
        let accounts = handle(other.config.accounts_map_id);
        let program_ids = registry::programs_beside(&other.map).map_err(|_| pid)?;
        let hold = Hold::Shared { _link: other.into_link().ok_or(pid)? };
        Ok(Self { algorithm, hold, groups, events, counters, accounts, program_ids, config })
    }

    /// True if it was registered here, rather than by another process or earlier.
    pub fn is_own(&self) -> bool {
        matches!(self.hold, Hold::Own { .. })
    }

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The name to select it by.
    pub fn kernel_name(&self) -> &'static str {
        self.algorithm.info().kernel_name
    }

    /// True if the registration belongs to another process.
    pub fn is_shared(&self) -> bool {
        matches!(self.hold, Hold::Shared { .. })
    }

    /// Changes the parameters of everything that runs under this algorithm, from the next ACK on.
    ///
    /// # Errors
    /// Parameters of another algorithm, or the kernel refuses.
    pub fn set_params(&self, params: &Params) -> Result<(), ControlError> {
        registry::write_params(self.algorithm, &self.config, params)
    }

    /// MPTCP connections that are in the table now; `None` for an algorithm that keeps none.
    pub fn connections(&self) -> Option<usize> {
        self.groups.as_ref().map(|map| map.keys().count())
    }

    /// Counters since it was loaded.
    pub fn counters(&self) -> Counters {
        self.counters.as_ref().and_then(Counters::read).unwrap_or_default()
    }

    /// The MPTCP connections in the table and their paths; empty for an algorithm that keeps none.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn table(&self) -> Result<Vec<Connection>, ControlError> {
        self.groups.as_ref().map_or_else(|| Ok(Vec::new()), group_table::read)
    }

    /// Refusals so far, because an account or a shared resource was full.
    pub fn shortage(&self) -> Shortage {
        self.accounts.as_ref().map(accounts::shortage).unwrap_or_default()
    }

    /// Sets how many connections of one user, or of one network namespace, may be in the table.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn limit_accounts(&self, connections: u32) -> Result<(), ControlError> {
        registry::change_config(&self.config, self.kernel_name(), |config| {
            config.account_connections = connections;
        })
    }

    /// Bytes that the kernel keeps per connection in the table, key and administration included.
    pub fn bytes_per_connection(&self) -> Option<usize> {
        // struct htab_elem: list links (16), what other kinds of tables need (24), hash (4), padding; and the allocator's
        // link in front of it.
        const ELEMENT_HEAD_BYTES: usize = 48 + 8;
        let size = |map: &MapHandle| (map.key_size() + map.value_size()) as usize + ELEMENT_HEAD_BYTES;
        self.groups.as_ref().map(size)
    }

    /// Kernel identifiers of the programs behind the callbacks.
    pub fn program_ids(&self) -> &[u32] {
        &self.program_ids
    }

    pub(crate) fn groups_map(&self) -> Option<&MapHandle> {
        self.groups.as_ref()
    }

    pub(crate) fn events_map(&self) -> Option<&MapHandle> {
        self.events.as_ref()
    }

    /// Leaves the algorithm registered when this process ends; [`crate::take_down`] removes it.
    ///
    /// # Errors
    /// The BPF file system cannot be used.
    pub fn keep(mut self) -> Result<(), ControlError> {
        if let Hold::Own { link, is_link, .. } = &mut self.hold
            && let Some(link) = link.take()
        {
            let is_link = *is_link;
            registry::keep(self.kernel_name(), link, is_link, &self.config)?;
        }
        Ok(())
    }
}

/// Tells that open files run out before libbpf does, which takes some failures of its own for other ones.
///
/// # Errors
/// No more files can be opened.
pub fn room() -> io::Result<()> {
    // An object has fewer programs and maps.
    const FILES: usize = 32;
    (0..FILES).map(|_| File::open("/dev/null")).collect::<io::Result<Vec<_>>>().map(drop)
}

/// The registration that the kernel speaks of: its link is listed a moment after its name is taken.
fn found_soon(kernel_name: &str) -> Result<Option<Registration>, ControlError> {
    const MAX_POLLS: u32 = 20;
    for _ in 0..MAX_POLLS {
        if let Some(found) = registry::find(kernel_name)? {
            return Ok(Some(found));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(None)
}

/// Loads and forgets: nothing is registered.
pub(crate) fn try_load(algorithm: Algorithm) -> Result<(), LoadError> {
    let kernel_name = algorithm.info().kernel_name;
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(LoadError::NoBtf);
    }
    let log = Log::start();
    load_object(algorithm, &Params::defaults(algorithm)).map(drop).map_err(|e| refusal(kernel_name, &e, &log))
}

/// Loads, for registration by a link if the kernel has them; the answer says which.
fn load_object(algorithm: Algorithm, params: &Params) -> libbpf_rs::Result<(libbpf_rs::Object, bool)> {
    // Without links the kernel refuses the flag on the map; what else is wrong shows again.
    let with_link = open(algorithm, params, true).and_then(OpenObject::load);
    with_link.map(|object| (object, true)).or_else(|_| {
        let without = open(algorithm, params, false).and_then(OpenObject::load);
        without.map(|object| (object, false))
    })
}

fn refusal(kernel_name: &'static str, error: &libbpf_rs::Error, log: &Log) -> LoadError {
    match error.kind() {
        ErrorKind::PermissionDenied if !nix::unistd::geteuid().is_root() => {
            LoadError::NotPermitted { kernel_name }
        }
        ErrorKind::AlreadyExists => {
            LoadError::AlreadyRegistered { kernel_name, holder: "something else".to_owned(), remedy: "" }
        }
        _ => LoadError::Refused { kernel_name, cause: error_chain(error), log: log.tail(LOG_LINES) },
    }
}

/// Name of a process in messages.
pub(crate) fn holder(pid: u32) -> String {
    if pid == 0 { "`vmcc up`".to_owned() } else { format!("vmcc, process {pid}") }
}

fn open(algorithm: Algorithm, params: &Params, link: bool) -> libbpf_rs::Result<OpenObject> {
    let object = Object::of(algorithm);
    let mut open =
        ObjectBuilder::default().name(format!("vmcc_{}", object.name))?.open_memory(object.program)?;
    for mut map in open.maps_mut() {
        if map.name() == OPS_MAP && !link {
            let flags = map.map_flags() & !BPF_F_LINK;
            map.set_map_flags(flags)?;
        }
        if map.name() == OPS_MAP && algorithm.info().needs_ecn && kernel_has_accecn() {
            request_accecn(&mut map)?;
        }
        if map.name() == CONFIG_MAP {
            let initial = map.initial_value().and_then(Config::decode);
            let mut config = initial.ok_or_else(|| libbpf_rs::Error::from_raw_os_error(nix::libc::EINVAL))?;
            config.build = object.build;
            config.owner_pid = std::process::id();
            config.owner_start = registry::start_time(config.owner_pid).unwrap_or(0);
            config.initial_netns = netns::initial().unwrap_or(0);
            config.params = RawParams { v: *params.raw() };
            map.set_initial_value(config.as_bytes())?;
        }
    }
    Ok(open)
}

/// Tests whether this kernel has AccECN (RFC 9768). The flag that requests it is not in the kernel's type information;
/// `tcpi_ecn_mode`, of the same series, is.
fn kernel_has_accecn() -> bool {
    static HAS_ACCECN: LazyLock<bool> = LazyLock::new(|| {
        Btf::from_vmlinux().is_ok_and(|btf| {
            let info = btf.type_by_name::<Struct<'_>>("tcp_info");
            info.is_some_and(|info| info.iter().any(|member| member.name == Some("tcpi_ecn_mode".as_ref())))
        })
    });
    *HAS_ACCECN
}

/// Requests AccECN on connections that this host opens and accepts it at listeners; a peer without it falls back to
/// RFC 3168.
fn request_accecn(ops: &mut OpenMapMut<'_>) -> libbpf_rs::Result<()> {
    let flags = ops.initial_value_mut().and_then(|value| value.get_mut(MP_OPS_FLAGS as usize..));
    let flags = flags.and_then(|rest| rest.first_chunk_mut::<4>());
    let flags = flags.ok_or_else(|| libbpf_rs::Error::from_raw_os_error(nix::libc::EINVAL))?;
    *flags = (u32::from_ne_bytes(*flags) | TCP_CONG_NEEDS_ACCECN).to_ne_bytes();
    Ok(())
}

fn attach(object: &mut libbpf_rs::Object) -> libbpf_rs::Result<Link> {
    let ops = object.maps_mut().find(|m| m.map_type() == MapType::StructOps);
    ops.ok_or_else(|| libbpf_rs::Error::from_raw_os_error(nix::libc::ENOENT))?.attach_struct_ops()
}

/// Writes into the configuration which maps belong together, for other processes to find.
fn describe(object: &libbpf_rs::Object, algorithm: Algorithm, params: &Params) -> libbpf_rs::Result<Config> {
    let id = |name: &str| find_map(object, name).and_then(|m| Ok(m.info()?.info.id)).unwrap_or(0);
    let config_map = find_map(object, CONFIG_MAP)?;
    let initial = config_map.lookup(FIRST.as_bytes(), MapFlags::ANY)?.as_deref().and_then(Config::decode);
    let initial = initial.ok_or_else(|| libbpf_rs::Error::from_raw_os_error(nix::libc::EINVAL))?;
    let owner_pid = std::process::id();
    let config = Config {
        accounts_map_id: id(ACCOUNTS_MAP),
        owner_pid,
        owner_start: registry::start_time(owner_pid).unwrap_or(0),
        ops_map_id: id(OPS_MAP),
        groups_map_id: id("mp_groups"),
        events_map_id: id("mp_events"),
        counters_map_id: id(COUNTERS_MAP),
        build: Object::of(algorithm).build,
        name: shared::algorithm::name(algorithm.info().kernel_name),
        params: RawParams { v: *params.raw() },
        ..initial
    };
    shared::write(&config_map, FIRST, &config)?;
    Ok(config)
}

fn find_map(object: &libbpf_rs::Object, name: &str) -> libbpf_rs::Result<MapHandle> {
    let found = object.maps().find(|m| m.name() == name);
    MapHandle::try_from(&found.ok_or_else(|| libbpf_rs::Error::from_raw_os_error(nix::libc::ENOENT))?)
}
