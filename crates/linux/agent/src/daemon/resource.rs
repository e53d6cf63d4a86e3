//! Resource that the agent sets: reads and writes its value as a text, so that the previous value can be recorded and
//! restored.

use super::event::or_nothing;
use super::usage::{InUse, Usage};
use crate::config::{SysctlName, normal};
use crate::{Error, algorithms, ports};
use nix::net::if_::if_nametoindex;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use vmcc_bpf::reassign::Scope;
use vmcc_bpf::{cgroup, probe, reassign, upgrade};
use vmcc_cc::{Algorithm, Params};
use vmcc_netlink::{Endpoint, PathManager, kernel_limit, os_code};
use vmcc_port::PortConfig;
use vmcc_port::{PortError, Serving};

/// Resource that the agent sets. It belongs to a network namespace, but algorithms and cgroups belong to the kernel as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Resource {
    /// A congestion control of ours that is up, by its name in the kernel. Its value: its parameters.
    Algorithm(String),
    /// A cgroup, by its path. Its value: the congestion control of its connections. Of the kernel, too, as its processes may be
    /// in any network namespace.
    Cgroup(String),
    /// A cgroup, too. Its value: what becomes of the TCP sockets of its programs.
    Upgrade(String),
    /// The default congestion control, and with it that of the connections which have the one before.
    LiveDefault,
    /// A sysctl, by its file below /proc/sys.
    Sysctl(String),
    /// A limit of the MPTCP path manager.
    Limit(Limit),
    /// An endpoint of it. Its value: what for, its interface, its number.
    Endpoint(IpAddr),
    /// An endpoint with a port of its own.
    EndpointAt(SocketAddr),
    /// A port that is served. Its value: its settings.
    Port(String),
}

/// A limit of the MPTCP path manager. The kernel sets both at once; the file may name one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Limit {
    /// Additional subflows.
    Subflows,
    /// Announced addresses that are accepted.
    Accept,
}

impl Limit {
    /// This one of both, which are in the order of the kernel's interface here.
    fn of(self, (subflows, accept): (u32, u32)) -> u32 {
        match self {
            Self::Subflows => subflows,
            Self::Accept => accept,
        }
    }

    /// Both, with another value of this one.
    fn with(self, (subflows, accept): (u32, u32), limit: u32) -> (u32, u32) {
        match self {
            Self::Subflows => (limit, accept),
            Self::Accept => (subflows, limit),
        }
    }
}

/// The value of a cgroup whose TCP sockets become MPTCP sockets.
pub(crate) const UPGRADED: &str = "mptcp";

/// The value of an algorithm that another build of vmcc has loaded, for example the one before an upgrade: its parameters are unreadable.
pub(crate) const OTHER_BUILD: &str = "another build of vmcc";

/// The value of a port whose change a killed process did not finish.
pub(crate) const HALF_DONE: &str = "half done";

/// Error while a resource is read or set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResourceError {
    #[error("{error}{}", error.remedy().map_or_else(String::new, |remedy| format!("; {remedy}")))]
    Agent { error: Error },
    #[error("{file}: {source}{}", help(source))]
    File { file: String, source: io::Error },
    #[error("cannot tell what is in this network namespace: {source}{}", help(source))]
    Namespace { source: io::Error },
    #[error("cannot {action}: {source}{}", help(source))]
    Netlink { action: &'static str, source: io::Error },
    #[error(
        "this kernel has no laminar endpoints (Linux 6.18 has); it is left out: use `subflow` or `fullmesh`, or a newer kernel"
    )]
    NoLaminar,
    #[error(
        "something else on this host changes it again and again; it is set again, but ever less often: take it out of the \
         file, or out of what changes it (NetworkManager: `connection.mptcp-flags`)"
    )]
    Contended,
    #[error(
        "{without} addresses have no MPTCP endpoint, for the kernel takes no more; name fewer interfaces, or one `family`"
    )]
    NoRoom { without: usize },
    #[error(
        "its id {id} is another endpoint's: give another `id`, or remove that one when no connection uses it (`ip mptcp endpoint \
         delete id {id}`)"
    )]
    IdTaken { id: u8 },
    #[error(
        "port {port} is taken there, for up to a minute by connections that have ended; it is tried again, or give another \
         `port`"
    )]
    PortTaken { port: u16 },
    #[error("it is {now} now, and still served; rename it back, or name it so in the file")]
    Renamed { now: String },
    #[error("another program has set it: {found}; it is left alone")]
    SomebodyElse { found: String },
    #[error(
        "an earlier build of vmcc has loaded it, and it runs on unchanged; to replace it at a quiet time: `vmcc down`, then start \
         the agent again"
    )]
    OtherBuild,
    #[error(
        "Linux accepts `{name}` as the default of a network namespace only if the host's \
         net.ipv4.tcp_allowed_congestion_control lists it: add it there, beside what it has"
    )]
    Restricted { name: String },
    #[error("the kernel made `{found}` of `{desired}`; write that in the file")]
    Changed { desired: String, found: String },
    #[error(
        "after it was to be {} again it is {}; it stays on record",
        or_nothing(before.as_ref()),
        or_nothing(found.as_ref())
    )]
    NotBack { before: Option<String>, found: Option<String> },
    #[error("{} connections {}, and Linux would close them", .0.connections, .0.dependence)]
    InUse(InUse),
    #[error("what is on record of it cannot be read: {text}")]
    Unreadable { text: String },
    #[error("what was before cannot be put on record: {0}")]
    Record(#[source] io::Error),
}

/// Remedy where something has run out, as the end of a message; else empty.
fn help(source: &io::Error) -> String {
    vmcc_system::remedy(source).map_or_else(String::new, |remedy| format!("; {remedy}"))
}

impl ResourceError {
    /// True if the kernel has no such thing (any more), for example because its interface is gone.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::File { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Use that forbids to remove the endpoint.
    pub(crate) fn in_use(&self) -> Option<InUse> {
        if let Self::InUse(in_use) = self { Some(*in_use) } else { None }
    }

    /// Tests for a kernel that has no room for another endpoint.
    pub(crate) fn is_no_room(&self) -> bool {
        matches!(self, Self::Netlink { source, .. } if os_code(source) == Some(nix::libc::ERANGE))
    }
}

impl<E: Into<Error>> From<E> for ResourceError {
    fn from(error: E) -> Self {
        Self::Agent { error: error.into() }
    }
}

fn netlink(action: &'static str) -> impl Fn(io::Error) -> ResourceError {
    move |source| ResourceError::Netlink { action, source }
}

impl Resource {
    /// That of an endpoint: the kernel knows it by its address and port.
    pub(crate) fn endpoint(endpoint: &Endpoint) -> Self {
        let Endpoint { address, port, .. } = *endpoint;
        port.map_or(Self::Endpoint(address), |port| Self::EndpointAt(SocketAddr::new(address, port)))
    }

    /// The address of an endpoint.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Endpoint(address) => Some(*address),
            Self::EndpointAt(at) => Some(at.ip()),
            _ => None,
        }
    }

    /// True if the resource has a single owner: one that exists already is not changed.
    pub(crate) fn is_exclusive(&self) -> bool {
        matches!(self, Self::Endpoint(_) | Self::EndpointAt(_) | Self::Port(_))
    }

    /// Number of the object that holds the value: a cgroup or an interface made again under the same name has another one.
    /// 0 where there is but one, or none now.
    pub(crate) fn object(&self) -> u64 {
        let interface = |name: &str| if_nametoindex(name).map_or(0, u64::from);
        match self {
            Self::Cgroup(path) | Self::Upgrade(path) => {
                cgroup::root().ok().and_then(|root| cgroup::id(&root.join(path))).unwrap_or(0)
            }
            Self::Port(name) => interface(name),
            Self::Sysctl(name) => {
                sysctl(name).ok().and_then(|name| name.interface().map(interface)).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Its value in the calling thread's network namespace; `None` if it is not there.
    pub(crate) fn read(&self) -> Result<Option<String>, ResourceError> {
        match self {
            Self::Algorithm(name) => read_algorithm(name),
            Self::Cgroup(path) => Ok(cgroup::congestion_control(&cgroup::root()?, path)?),
            Self::Upgrade(path) => Ok(upgrade::is_set(&cgroup::root()?, path)?.then(|| UPGRADED.to_owned())),
            Self::LiveDefault => default().read(),
            Self::Sysctl(name) => {
                let file = sysctl(name)?.file();
                let text = fs::read_to_string(&file);
                text.map(|text| Some(normal(&text)))
                    .map_err(|source| ResourceError::File { file: show(&file), source })
            }
            Self::Limit(which) => {
                let limits = PathManager::open().and_then(|mut manager| manager.limits());
                Ok(Some(which.of(limits.map_err(netlink("read the limits of MPTCP"))?).to_string()))
            }
            Self::Endpoint(address) => read_endpoint(*address, None),
            Self::EndpointAt(at) => read_endpoint(at.ip(), Some(at.port())),
            Self::Port(name) => match vmcc_port::settings(name) {
                Ok(Serving::Nothing) => Ok(None),
                Ok(Serving::HalfDone) => Ok(Some(HALF_DONE.to_owned())),
                Ok(Serving::As(config)) => Ok(Some(port_text(&config))),
                Err(PortError::NoSuchPort { .. }) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Gives it a value, or removes it. `usage`: that of the calling thread's namespace.
    pub(crate) fn write(&self, value: Option<&str>, usage: &mut Usage) -> Result<(), ResourceError> {
        match (self, value) {
            (Self::Algorithm(name), Some(text)) => {
                let params = params(name, text)?;
                let request =
                    algorithms::Request { algorithms: &[params], restricted: false, guarded: false };
                drop(algorithms::up(request)?);
                Ok(())
            }
            (Self::Algorithm(name), None) => {
                vmcc_bpf::take_down_of(&[name])?;
                Ok(())
            }
            (Self::Cgroup(path), Some(name)) => Ok(cgroup::set(&cgroup::root()?, path, name)?),
            (Self::Cgroup(path), None) => Ok(cgroup::unset(path)?),
            (Self::Upgrade(path), Some(_)) => Ok(upgrade::set(&cgroup::root()?, path)?),
            (Self::Upgrade(path), None) => Ok(upgrade::unset(path)?),
            (Self::LiveDefault, Some(name)) => {
                let before = self.read()?;
                // First, so that the next agent repeats it if this one is killed.
                // Programs that chose the value that goes keep it; the reconciler covers those that chose the one before.
                let changed = follow(before.as_deref(), name, Scope::SpareChosen);
                if let Err(error) = default().write(value, usage) {
                    follow(Some(name), before.as_deref().unwrap_or(name), Scope::SpareChosen)?;
                    return Err(error);
                }
                changed.and_then(|()| follow(before.as_deref(), name, Scope::SpareChosen))
            }
            (Self::LiveDefault, None) => Err(unreadable(None)),
            (Self::Sysctl(name), value) => {
                let sysctl = sysctl(name)?;
                let failed = |source: io::Error| match value {
                    Some(name) if is_restricted(&sysctl, &source) => {
                        ResourceError::Restricted { name: name.to_owned() }
                    }
                    _ => ResourceError::File { file: show(&sysctl.file()), source },
                };
                fs::write(sysctl.file(), line(value)).map_err(failed)
            }
            (Self::Limit(which), value) => {
                let limit = value.and_then(|text| text.parse().ok()).ok_or_else(|| unreadable(value))?;
                set_limit(*which, limit).map_err(netlink("set a limit of MPTCP"))
            }
            (Self::Endpoint(address), value) => write_endpoint(*address, None, value, usage),
            (Self::EndpointAt(at), value) => write_endpoint(at.ip(), Some(at.port()), value, usage),
            (Self::Port(name), Some(text)) => {
                let config: PortConfig = serde_json::from_str(text).map_err(|_| unreadable(value))?;
                ports::serve(name, &config, false)?.keep();
                Ok(())
            }
            (Self::Port(name), None) => {
                ports::unmark(name)?;
                Ok(())
            }
        }
    }

    /// Removes what a process that was killed may have left of a thing that is not there.
    pub(crate) fn settle(&self) -> Result<(), ResourceError> {
        let name = match self {
            // It may be gone, and what it was given is there still.
            Self::Cgroup(path) => return Ok(cgroup::unset(path)?),
            Self::Upgrade(path) => return Ok(upgrade::unset(path)?),
            Self::Port(name) => name,
            _ => return Ok(()),
        };
        // While queues are exchanged there are devices beside the port; the release of its service finds them.
        match ports::unmark(name) {
            Err(Error::Port(PortError::NoSuchPort { .. })) => Ok(()),
            settled => settled.map(drop).map_err(ResourceError::from),
        }
    }
}

fn default() -> Resource {
    Resource::Sysctl(SysctlName::congestion_control().as_str().to_owned())
}

/// Has the connections of the calling thread's namespace that have one congestion control have another one.
pub(crate) fn follow(from: Option<&str>, to: &str, scope: Scope) -> Result<(), ResourceError> {
    match from {
        Some(from) if from != to => Ok(reassign::change(from, to, scope).map(drop)?),
        _ => Ok(()),
    }
}

/// True if Linux refused a default of a network namespace other than the initial one.
fn is_restricted(sysctl: &SysctlName, source: &io::Error) -> bool {
    *sysctl == SysctlName::congestion_control() && os_code(source) == Some(nix::libc::EPERM)
}

fn unreadable(value: Option<&str>) -> ResourceError {
    ResourceError::Unreadable { text: value.unwrap_or("nothing").to_owned() }
}

fn sysctl(name: &str) -> Result<SysctlName, ResourceError> {
    // A record could say anything; only what a configuration may name is ever written.
    SysctlName::parse(name).map_err(|text| ResourceError::Unreadable { text })
}

fn show(file: &std::path::Path) -> String {
    file.display().to_string()
}

fn read_algorithm(name: &str) -> Result<Option<String>, ResourceError> {
    let found = vmcc_bpf::list()?.into_iter().find(|status| status.kernel_name == name);
    let Some(status) = found.filter(|status| status.kept) else { return Ok(None) };
    Ok(Some(status.parameters.as_ref().map_or_else(|| OTHER_BUILD.to_owned(), params_text)))
}

/// `up g=0.0625 theta=5`: with every parameter, as [`Params::set`] reads it.
pub(crate) fn params_text(params: &Params) -> String {
    let pairs = params.values().map(|(info, value)| match info.choices {
        [] => format!("{}={value}", info.name),
        _ => format!("{}={}", info.name, info.value_text(value)),
    });
    ["up".to_owned()].into_iter().chain(pairs).collect::<Vec<_>>().join(" ")
}

fn params(kernel_name: &str, text: &str) -> Result<Params, ResourceError> {
    let bad = |_| unreadable(Some(text));
    let mut params =
        Params::defaults(Algorithm::by_name(kernel_name).map_err(|_| unreadable(Some(kernel_name)))?);
    for (name, value) in text.split_whitespace().filter_map(|pair| pair.split_once('=')) {
        params.set(name, value).map_err(bad)?;
    }
    Ok(params)
}

fn set_limit(which: Limit, limit: u32) -> io::Result<()> {
    let mut manager = PathManager::open()?;
    let (subflows, accept) = which.with(manager.limits()?, limit);
    manager.set_limits(subflows, accept).map_err(|refused| match kernel_limit() {
        Ok(most) if limit > most => {
            let cause =
                format!("{limit} is above the {most} that the running kernel takes; write {most} or less");
            io::Error::new(refused.kind(), cause)
        }
        _ => refused,
    })
}

/// Text that is written to a sysctl's file. An empty write has no effect, so an empty value becomes an empty line.
fn line(value: Option<&str>) -> String {
    format!("{}\n", value.unwrap_or_default())
}

pub(crate) fn port_text(config: &PortConfig) -> String {
    serde_json::to_string(config).unwrap_or_default()
}

const FLAGS: [(u32, &str); 5] = [
    (Endpoint::SIGNAL, "signal"),
    (Endpoint::SUBFLOW, "subflow"),
    (Endpoint::BACKUP, "backup"),
    (Endpoint::FULLMESH, "fullmesh"),
    (Endpoint::LAMINAR, "laminar"),
];
const ID: &str = " id ";

/// `signal,backup dev 5 id 2`
pub(crate) fn endpoint_text(endpoint: &Endpoint) -> String {
    let named = FLAGS.iter().filter(|(bit, _)| endpoint.flags & bit != 0);
    let names: Vec<&str> = named.map(|(_, name)| *name).collect();
    format!("{} dev {}{ID}{}", names.join(","), endpoint.device, endpoint.id)
}

/// Compares an endpoint's value with a recorded one, also with that of a version that kept no number.
pub(crate) fn is_same_value(recorded: &str, value: &str) -> bool {
    value == recorded || value.strip_prefix(recorded).is_some_and(|rest| rest.starts_with(ID))
}

fn endpoint(address: IpAddr, port: Option<u16>, text: &str) -> Option<Endpoint> {
    let (names, rest) = text.split_once(" dev ")?;
    let (device, id) = rest.split_once(ID).unwrap_or((rest, "0"));
    let bit = |name: &str| FLAGS.iter().find(|(_, known)| *known == name).map(|(bit, _)| *bit);
    let flags = names.split(',').filter(|n| !n.is_empty()).map(bit).sum::<Option<u32>>()?;
    Some(Endpoint { id: id.parse().ok()?, address, port, flags, device: device.parse().ok()? })
}

/// The endpoint that a value describes, without its port.
pub(crate) fn endpoint_of(resource: &Resource, text: &str) -> Option<Endpoint> {
    endpoint(resource.address()?, None, text)
}

/// Value of an endpoint while its subflows join: a backup. `None` if it is one anyway.
pub(crate) fn settling_text(resource: &Resource, text: &str) -> Option<String> {
    let desired = endpoint_of(resource, text)?;
    let settling = desired.with_backup(true);
    (settling != desired).then(|| endpoint_text(&settling))
}

/// Every endpoint of the calling thread's namespace, those too that the kernel made by itself.
pub(crate) fn all_endpoints() -> Result<(PathManager, Vec<Endpoint>), ResourceError> {
    let failed = netlink("list the endpoints of MPTCP");
    let mut manager = PathManager::open().map_err(&failed)?;
    let all = manager.endpoints().map_err(failed)?;
    Ok((manager, all))
}

/// Tests for an endpoint that the kernel made by itself; one of the same address may take its place.
pub(crate) fn is_implicit(endpoint: &Endpoint) -> bool {
    endpoint.flags & Endpoint::IMPLICIT != 0
}

/// Tests for an id that an endpoint of another address or port has.
fn is_id_of_another(desired: &Endpoint, there: &[Endpoint]) -> bool {
    let key = |one: &Endpoint| (one.address, one.port);
    desired.id != 0 && there.iter().any(|one| one.id == desired.id && key(one) != key(desired))
}

/// Tests the value of an endpoint that Linux uses only when the peer announces an address: recreating it opens no path.
pub(crate) fn waits_for_announcements(resource: &Resource, text: &str) -> bool {
    endpoint_of(resource, text).is_some_and(|one| one.flags & !(Endpoint::LAMINAR | Endpoint::BACKUP) == 0)
}

fn read_endpoint(address: IpAddr, port: Option<u16>) -> Result<Option<String>, ResourceError> {
    let is_it = |e: &&Endpoint| (e.address, e.port) == (address, port) && !is_implicit(e);
    Ok(all_endpoints()?.1.iter().find(is_it).map(endpoint_text))
}

fn write_endpoint(
    address: IpAddr,
    port: Option<u16>,
    value: Option<&str>,
    usage: &mut Usage,
) -> Result<(), ResourceError> {
    let read = |text| endpoint(address, port, text).ok_or_else(|| unreadable(value));
    let desired = value.map(read).transpose()?;
    if desired.is_some_and(|desired| desired.flags & Endpoint::LAMINAR != 0)
        && !probe::has_laminar_endpoints()
    {
        return Err(ResourceError::NoLaminar);
    }
    let (mut manager, there) = all_endpoints()?;
    let found = there.iter().find(|e| (e.address, e.port) == (address, port));
    if let Some(found) = found.filter(|found| !is_implicit(found)) {
        if desired.is_some_and(|desired| desired != *found && desired.with_backup(true) == *found) {
            let cleared = manager.set_endpoint_backup(found, false);
            return cleared.map_err(netlink("clear the backup flag of an endpoint of MPTCP"));
        }
        if let Some(in_use) = usage.of(found)? {
            return Err(ResourceError::InUse(in_use));
        }
        // Before the endpoint is removed: one with its old id is better than none.
        if let Some(desired) = desired.filter(|desired| is_id_of_another(desired, &there)) {
            return Err(ResourceError::IdTaken { id: desired.id });
        }
        manager.remove(found).map_err(netlink("remove an endpoint of MPTCP"))?;
        usage.removed(found);
    }
    let Some(mut desired) = desired else { return Ok(()) };
    // One that takes the place of the kernel's own keeps its number, and may not name any.
    if found.is_some_and(is_implicit) {
        desired.id = 0;
    }
    manager.add(&desired).map_err(|source| match (os_code(&source), port) {
        (Some(nix::libc::EBUSY), _) if desired.id != 0 => ResourceError::IdTaken { id: desired.id },
        (Some(nix::libc::EADDRINUSE), Some(port)) => ResourceError::PortTaken { port },
        _ => netlink("add an endpoint of MPTCP")(source),
    })
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Algorithm(name) => write!(f, "{name}"),
            Self::Cgroup(path) => write!(f, "cgroup {path}"),
            Self::Upgrade(path) => write!(f, "TCP of cgroup {path}"),
            Self::LiveDefault => write!(f, "{}, also of connections that run", default()),
            Self::Sysctl(name) => write!(f, "{name}"),
            Self::Limit(Limit::Subflows) => write!(f, "MPTCP limit subflows"),
            Self::Limit(Limit::Accept) => write!(f, "MPTCP limit accept"),
            Self::Endpoint(address) => write!(f, "MPTCP endpoint {address}"),
            Self::EndpointAt(at) => write!(f, "MPTCP endpoint {at}"),
            Self::Port(name) => write!(f, "port {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settling_endpoint_is_a_backup() {
        let resource = Resource::Endpoint("10.0.0.1".parse().unwrap());
        let settling = |text| settling_text(&resource, text);
        assert_eq!(settling("signal dev 3 id 7").as_deref(), Some("signal,backup dev 3 id 7"));
        assert_eq!(
            settling("subflow,fullmesh dev 0 id 1").as_deref(),
            Some("subflow,backup,fullmesh dev 0 id 1")
        );
        assert_eq!((settling("signal,backup dev 3 id 1"), settling("nothing")), (None, None));
    }

    #[test]
    fn values_round_trip_through_text() {
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let many = Endpoint::SUBFLOW | Endpoint::FULLMESH | Endpoint::BACKUP;
        for (flags, device, id, port) in
            [(1, 0, 1, None), (many, 7, 255, None), (Endpoint::LAMINAR, 1, 2, Some(9))]
        {
            let one = Endpoint { id, address, port, flags, device };
            assert_eq!(endpoint(address, port, &endpoint_text(&one)), Some(one));
        }
        let old = endpoint(address, None, "signal dev 3").unwrap();
        assert_eq!((old.flags, old.device, old.id), (1, 3, 0));
        assert!(is_same_value("signal dev 3", "signal dev 3 id 7") && is_same_value("a", "a"));
        assert!(!is_same_value("signal dev 3", "signal dev 33 id 7") && !is_same_value("a", "ab"));
        for bad in ["", "signal", "nothing dev 1", "signal dev x", "signal dev 1 id x", "signal dev 1 id 256"]
        {
            assert_eq!(endpoint(address, None, bad), None, "{bad}");
        }
        for algorithm in Algorithm::all() {
            let mut params = Params::defaults(algorithm);
            if algorithm.name() == "vmcc" {
                params.set("theta", "5").unwrap();
            }
            let name = algorithm.info().kernel_name;
            assert_eq!(super::params(name, &params_text(&params)).unwrap(), params, "{name}");
        }
    }

    #[test]
    fn setting_one_limit_keeps_the_other() {
        for (which, both) in [(Limit::Subflows, (5, 8)), (Limit::Accept, (2, 5))] {
            assert_eq!(which.with((2, 8), 5), both);
            assert_eq!(which.of(both), 5);
        }
    }

    #[test]
    fn empty_value_is_written_as_an_empty_line() {
        assert_eq!(
            (line(Some("")), line(Some("1-3")), line(None)),
            ("\n".into(), "1-3\n".into(), "\n".into())
        );
    }

    #[test]
    fn record_cannot_write_outside_net_sysctls() {
        for name in ["kernel/panic", "net/../kernel/panic", "/etc/passwd"] {
            let refused = Resource::Sysctl(name.to_owned()).write(Some("1"), &mut Usage::default());
            assert!(matches!(refused, Err(ResourceError::Unreadable { .. })), "{name}: {refused:?}");
        }
    }
}
