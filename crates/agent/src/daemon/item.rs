//! One thing that the agent sets: how it is read and written, always as a text, so that what was there before can be put
//! on record and put back.

use super::news::or_nothing;
use crate::config::{SysctlName, normal};
use crate::{Error, algorithms, ports};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use vmcc_cc::{Algorithm, Params};
use vmcc_host::port::{self, Serving};
use vmcc_host::{cgroup, live, upgrade};
use vmcc_netlink::{Endpoint, PathManager};
use vmcc_port::PortConfig;

/// What is set; of a network namespace, but for algorithms, which are one for the kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Item {
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
    /// An endpoint of it. Its value: what for, and its interface.
    Endpoint(IpAddr),
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

/// The value of a port whose change a killed process did not finish.
pub(crate) const HALF_DONE: &str = "half done";

/// Why something cannot be read or set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("{error}{}", error.remedy().map_or_else(String::new, |remedy| format!("; {remedy}")))]
    Agent { error: Error },
    #[error("{file}: {source}{}", help(source))]
    File { file: String, source: io::Error },
    #[error("cannot tell what is in this network namespace: {source}{}", help(source))]
    Namespace { source: io::Error },
    #[error("cannot {action}: {source}{}", help(source))]
    Netlink { action: &'static str, source: io::Error },
    #[error("somebody else has set it: {found}; it is left alone")]
    SomebodyElse { found: String },
    #[error("the kernel made `{found}` of `{wanted}`; write that in the file")]
    Changed { wanted: String, found: String },
    #[error(
        "after it was to be {} again it is {}; it stays on record",
        or_nothing(before.as_ref()),
        or_nothing(found.as_ref())
    )]
    NotBack { before: Option<String>, found: Option<String> },
    #[error("what is on record of it cannot be read: {text}")]
    Unreadable { text: String },
    #[error("what was before cannot be put on record: {0}")]
    Record(#[source] io::Error),
}

/// What helps where something has run out.
fn help(source: &io::Error) -> String {
    vmcc_host::remedy(source).map_or_else(String::new, |remedy| format!("; {remedy}"))
}

impl Fault {
    /// Whether the kernel has no such thing (any more), as when its interface is gone.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::File { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl<E: Into<Error>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::Agent { error: error.into() }
    }
}

fn netlink(action: &'static str) -> impl Fn(io::Error) -> Fault {
    move |source| Fault::Netlink { action, source }
}

impl Item {
    /// Whether it is somebody's alone: what is there already is not changed.
    pub(crate) fn is_exclusive(&self) -> bool {
        matches!(self, Self::Endpoint(_) | Self::Port(_))
    }

    /// Its value in the calling thread's network namespace; `None` if it is not there.
    pub(crate) fn read(&self) -> Result<Option<String>, Fault> {
        match self {
            Self::Algorithm(name) => read_algorithm(name),
            Self::Cgroup(path) => Ok(cgroup::congestion_control(&cgroup::root()?, path)?),
            Self::Upgrade(path) => Ok(upgrade::is_set(&cgroup::root()?, path)?.then(|| UPGRADED.to_owned())),
            Self::LiveDefault => default().read(),
            Self::Sysctl(name) => {
                let file = sysctl(name)?.file();
                let text = fs::read_to_string(&file);
                text.map(|text| Some(normal(&text)))
                    .map_err(|source| Fault::File { file: show(&file), source })
            }
            Self::Limit(which) => {
                let limits = PathManager::open().and_then(|mut manager| manager.limits());
                Ok(Some(which.of(limits.map_err(netlink("read the limits of MPTCP"))?).to_string()))
            }
            Self::Endpoint(address) => {
                Ok(find(*address)?.map(|(_, found)| endpoint_text(found.flags, found.device)))
            }
            Self::Port(name) => match port::settings(name) {
                Ok(Serving::Nothing) => Ok(None),
                Ok(Serving::HalfDone) => Ok(Some(HALF_DONE.to_owned())),
                Ok(Serving::As(config)) => Ok(Some(port_text(&config))),
                Err(port::PortError::NoSuchPort { .. }) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Gives it a value, or removes it.
    pub(crate) fn write(&self, value: Option<&str>) -> Result<(), Fault> {
        match (self, value) {
            (Self::Algorithm(name), Some(text)) => {
                let params = params(name, text)?;
                let request =
                    algorithms::Request { algorithms: &[params], restricted: false, guarded: false };
                drop(algorithms::up(request)?);
                Ok(())
            }
            (Self::Algorithm(name), None) => {
                vmcc_host::take_down_of(&[name])?;
                Ok(())
            }
            (Self::Cgroup(path), Some(name)) => Ok(cgroup::set(&cgroup::root()?, path, name)?),
            (Self::Cgroup(path), None) => Ok(cgroup::unset(path)?),
            (Self::Upgrade(path), Some(_)) => Ok(upgrade::set(&cgroup::root()?, path)?),
            (Self::Upgrade(path), None) => Ok(upgrade::unset(path)?),
            (Self::LiveDefault, Some(name)) => {
                let before = self.read()?;
                // First, so that whoever comes after us when we are killed does it again.
                let changed = follow(before.as_deref(), name);
                default().write(value)?;
                changed.and_then(|()| follow(before.as_deref(), name))
            }
            (Self::LiveDefault, None) => Err(unreadable(None)),
            (Self::Sysctl(name), value) => {
                let file = sysctl(name)?.file();
                fs::write(&file, line(value)).map_err(|source| Fault::File { file: show(&file), source })
            }
            (Self::Limit(which), value) => {
                let limit = value.and_then(|text| text.parse().ok()).ok_or_else(|| unreadable(value))?;
                set_limit(*which, limit).map_err(netlink("set a limit of MPTCP"))
            }
            (Self::Endpoint(address), value) => write_endpoint(*address, value),
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
    pub(crate) fn settle(&self) -> Result<(), Fault> {
        let name = match self {
            // It may be gone, and what it was given is there still.
            Self::Cgroup(path) => return Ok(cgroup::unset(path)?),
            Self::Upgrade(path) => return Ok(upgrade::unset(path)?),
            Self::Port(name) => name,
            _ => return Ok(()),
        };
        // While queues are exchanged there are devices beside the port; whoever ends its service looks for them.
        match ports::unmark(name) {
            Err(Error::Port(port::PortError::NoSuchPort { .. })) => Ok(()),
            settled => settled.map(drop).map_err(Fault::from),
        }
    }
}

fn default() -> Item {
    Item::Sysctl(SysctlName::congestion_control().as_str().to_owned())
}

/// Has the connections of the calling thread's namespace that have one congestion control have another one.
pub(crate) fn follow(from: Option<&str>, to: &str) -> Result<(), Fault> {
    match from {
        Some(from) if from != to => Ok(live::change(from, to).map(drop)?),
        _ => Ok(()),
    }
}

fn unreadable(value: Option<&str>) -> Fault {
    Fault::Unreadable { text: value.unwrap_or("nothing").to_owned() }
}

fn sysctl(name: &str) -> Result<SysctlName, Fault> {
    // A record could say anything; only what a configuration may name is ever written.
    SysctlName::parse(name).map_err(|text| Fault::Unreadable { text })
}

fn show(file: &std::path::Path) -> String {
    file.display().to_string()
}

fn read_algorithm(name: &str) -> Result<Option<String>, Fault> {
    let found = vmcc_host::list()?.into_iter().find(|status| status.kernel_name == name);
    let Some(status) = found.filter(|status| status.kept) else { return Ok(None) };
    let somebody = || Fault::SomebodyElse { found: "another build of vmcc".to_owned() };
    Ok(Some(params_text(&status.parameters.ok_or_else(somebody)?)))
}

/// `up g=0.0625 theta=5`: with every parameter, as [`Params::set`] reads it.
pub(crate) fn params_text(params: &Params) -> String {
    let pairs = params.values().map(|(info, value)| match info.choices {
        [] => format!("{}={value}", info.name),
        _ => format!("{}={}", info.name, info.value_text(value)),
    });
    ["up".to_owned()].into_iter().chain(pairs).collect::<Vec<_>>().join(" ")
}

fn params(kernel_name: &str, text: &str) -> Result<Params, Fault> {
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
    manager.set_limits(subflows, accept)
}

/// What a sysctl's file is given. A write of nothing at all is none, so an empty value is an empty line.
fn line(value: Option<&str>) -> String {
    format!("{}\n", value.unwrap_or_default())
}

pub(crate) fn port_text(config: &PortConfig) -> String {
    serde_json::to_string(config).unwrap_or_default()
}

const FLAGS: [(u32, &str); 4] = [
    (Endpoint::SIGNAL, "signal"),
    (Endpoint::SUBFLOW, "subflow"),
    (Endpoint::BACKUP, "backup"),
    (Endpoint::FULLMESH, "fullmesh"),
];

/// `signal,backup dev 5`
pub(crate) fn endpoint_text(flags: u32, device: u32) -> String {
    let names: Vec<&str> = FLAGS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
    format!("{} dev {device}", names.join(","))
}

fn endpoint(address: IpAddr, text: &str) -> Option<Endpoint> {
    let (names, device) = text.split_once(" dev ")?;
    let bit = |name: &str| FLAGS.iter().find(|(_, known)| *known == name).map(|(bit, _)| *bit);
    let flags = names.split(',').filter(|n| !n.is_empty()).map(bit).sum::<Option<u32>>()?;
    Some(Endpoint { id: 0, address, port: None, flags, device: device.parse().ok()? })
}

/// Value of an endpoint while its subflows join: a backup. `None` if it is one anyway.
pub(crate) fn settling_text(address: IpAddr, text: &str) -> Option<String> {
    let wanted = endpoint(address, text)?;
    let settling = wanted.with_backup(true);
    (settling != wanted).then(|| endpoint_text(settling.flags, settling.device))
}

/// The endpoint of an address; what the kernel made by itself makes way for one.
fn find(address: IpAddr) -> Result<Option<(PathManager, Endpoint)>, Fault> {
    let failed = netlink("list the endpoints of MPTCP");
    let mut manager = PathManager::open().map_err(&failed)?;
    let ours = |e: &Endpoint| e.address == address && e.port.is_none() && e.flags & Endpoint::IMPLICIT == 0;
    let found = manager.endpoints().map_err(&failed)?.into_iter().find(ours);
    Ok(found.map(|found| (manager, found)))
}

fn write_endpoint(address: IpAddr, value: Option<&str>) -> Result<(), Fault> {
    let wanted = value.map(|text| endpoint(address, text).ok_or_else(|| unreadable(value))).transpose()?;
    if let Some((mut manager, found)) = find(address)? {
        let found_text = endpoint_text(found.flags, found.device);
        if value.is_some_and(|text| settling_text(address, text).as_deref() == Some(found_text.as_str())) {
            let cleared = manager.set_endpoint_backup(&found, false);
            return cleared.map_err(netlink("clear the backup flag of an endpoint of MPTCP"));
        }
        manager.remove(&found).map_err(netlink("remove an endpoint of MPTCP"))?;
    }
    match wanted {
        None => Ok(()),
        Some(wanted) => {
            let added = PathManager::open().and_then(|mut manager| manager.add(&wanted));
            added.map_err(netlink("add an endpoint of MPTCP"))
        }
    }
}

impl fmt::Display for Item {
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
            Self::Port(name) => write!(f, "port {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settling_endpoint_is_a_backup() {
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let settling = |text| settling_text(address, text);
        assert_eq!(settling("signal dev 3").as_deref(), Some("signal,backup dev 3"));
        assert_eq!(settling("subflow,fullmesh dev 0").as_deref(), Some("subflow,backup,fullmesh dev 0"));
        assert_eq!((settling("signal,backup dev 3"), settling("nothing")), (None, None));
    }

    #[test]
    fn values_are_read_as_they_are_written() {
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        for (flags, device) in [(1, 0), (Endpoint::SUBFLOW | Endpoint::FULLMESH | Endpoint::BACKUP, 7)] {
            let text = endpoint_text(flags, device);
            let read = endpoint(address, &text).unwrap();
            assert_eq!((read.flags, read.device, read.address), (flags, device, address), "{text}");
        }
        for bad in ["", "signal", "nothing dev 1", "signal dev x"] {
            assert_eq!(endpoint(address, bad), None, "{bad}");
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
    fn a_limit_that_is_set_leaves_the_other_as_it_is() {
        for (which, both) in [(Limit::Subflows, (5, 8)), (Limit::Accept, (2, 5))] {
            assert_eq!(which.with((2, 8), 5), both);
            assert_eq!(which.of(both), 5);
        }
    }

    #[test]
    fn an_empty_value_is_written_too() {
        assert_eq!(
            (line(Some("")), line(Some("1-3")), line(None)),
            ("\n".into(), "1-3\n".into(), "\n".into())
        );
    }

    #[test]
    fn a_record_makes_nobody_write_elsewhere() {
        for name in ["kernel/panic", "net/../kernel/panic", "/etc/passwd"] {
            let refused = Item::Sysctl(name.to_owned()).write(Some("1"));
            assert!(matches!(refused, Err(Fault::Unreadable { .. })), "{name}: {refused:?}");
        }
    }
}
