//! Connections that end, or lose their last path, with an MPTCP endpoint.
//!
//! Linux (6.18) removes an endpoint together with the subflows from its address. Where a connection began at the address, that is
//! its initial subflow: the peer is sent REMOVE_ADDR for id 0, and the connection dies with its remaining endpoints. A dead endpoint
//! costs a joining peer one failed attempt, so an endpoint in use is kept.

use crate::Error;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use vmcc_netlink::{Endpoint, Links};
use vmcc_system::KernelError;
use vmcc_system::diag::{Diag, Subflow};

/// Time for which a list of connections counts. Others begin meanwhile, and a list of 10,000 takes about half of it.
const MAX_AGE: Duration = Duration::from_millis(200);

/// Dependence of connections on an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dependence {
    /// Its address is the local address of their initial subflow.
    Began,
    /// They have no other usable path.
    LastPath,
}

/// Use of an endpoint by connections that its removal would end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InUse {
    pub(crate) id: u8,
    pub(crate) connections: usize,
    pub(crate) dependence: Dependence,
}

impl fmt::Display for Dependence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Began => "began at it",
            Self::LastPath => "have no other path",
        })
    }
}

/// Subflow, as far as it matters here.
struct Path {
    token: u32,
    local: SocketAddr,
    /// Its local address has id 0.
    is_initial: bool,
    established: bool,
}

impl Path {
    fn of(subflow: &Subflow) -> Option<Self> {
        let mptcp = subflow.mptcp?;
        let local = SocketAddr::new(subflow.local.ip().to_canonical(), subflow.local.port());
        let (token, is_initial) = (mptcp.token_local, mptcp.id_local == 0);
        Some(Self { token, local, is_initial, established: subflow.established })
    }
}

/// Connections of one namespace. They are listed once for all endpoints of a round.
#[derive(Default)]
pub(crate) struct Usage(Option<(Instant, Connections)>);

impl Usage {
    /// Use of an endpoint of the calling thread's namespace by connections that depend on it.
    ///
    /// # Errors
    /// The kernel lists no sockets or addresses.
    pub(crate) fn of(&mut self, endpoint: &Endpoint) -> Result<Option<InUse>, Error> {
        self.of_listed(endpoint, Instant::now, Connections::list)
    }

    fn of_listed(
        &mut self,
        endpoint: &Endpoint,
        now: impl Fn() -> Instant,
        list: impl FnOnce() -> Result<Connections, Error>,
    ) -> Result<Option<InUse>, Error> {
        let listed = self.0.take().filter(|(since, _)| now() - *since <= MAX_AGE);
        let (_, Connections { paths, usable }) = self.0.insert(match listed {
            Some(listed) => listed,
            // From its begin on.
            None => (now(), list()?),
        });
        Ok(in_use(endpoint, paths, usable))
    }

    /// Notes that an endpoint is removed, and with it the paths from its address.
    pub(crate) fn removed(&mut self, endpoint: &Endpoint) {
        if let Some((_, connections)) = &mut self.0 {
            connections.paths.retain(|path| !is_at(path, endpoint));
        }
    }
}

/// Paths of MPTCP connections, and addresses that can carry them.
struct Connections {
    paths: Vec<Path>,
    usable: BTreeSet<IpAddr>,
}

impl Connections {
    /// Those of the calling thread's namespace.
    fn list() -> Result<Self, Error> {
        let paths = Diag::open()?.subflows()?.iter().filter_map(Path::of).collect();
        let usable = usable_addresses().map_err(|e| KernelError::new("list addresses", e))?;
        Ok(Self { paths, usable })
    }
}

/// Addresses of interfaces that are operational.
fn usable_addresses() -> std::io::Result<BTreeSet<IpAddr>> {
    let mut links = Links::open()?;
    let running: BTreeSet<u32> =
        links.list()?.into_iter().filter(|link| link.running).map(|link| link.index).collect();
    let all = links.addresses()?.into_iter();
    Ok(all.filter(|found| running.contains(&found.port)).map(|found| found.address).collect())
}

fn is_at(path: &Path, endpoint: &Endpoint) -> bool {
    path.local.ip() == endpoint.address && endpoint.port.is_none_or(|port| port == path.local.port())
}

fn in_use(endpoint: &Endpoint, paths: &[Path], usable: &BTreeSet<IpAddr>) -> Option<InUse> {
    let mut connections: BTreeMap<u32, Vec<&Path>> = BTreeMap::new();
    for path in paths {
        connections.entry(path.token).or_default().push(path);
    }
    let has_other = |paths: &[&Path]| {
        let other =
            |path: &&&Path| !is_at(path, endpoint) && path.established && usable.contains(&path.local.ip());
        paths.iter().any(|path| other(&path))
    };
    let (mut began, mut last) = (0, 0);
    for paths in connections.values() {
        let here: Vec<_> = paths.iter().filter(|path| is_at(path, endpoint)).collect();
        began += usize::from(here.iter().any(|path| path.is_initial));
        last += usize::from(!here.is_empty() && !has_other(paths));
    }
    let found = |connections, dependence| InUse { id: endpoint.id, connections, dependence };
    match (began, last) {
        (0, 0) => None,
        (0, last) => Some(found(last, Dependence::LastPath)),
        (began, _) => Some(found(began, Dependence::Began)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(token: u32, local: &str, is_initial: bool) -> Path {
        Path { token, local: local.parse().unwrap(), is_initial, established: true }
    }

    fn endpoint(address: &str, port: Option<u16>) -> Endpoint {
        Endpoint { id: 3, address: address.parse().unwrap(), port, flags: Endpoint::SIGNAL, device: 2 }
    }

    fn found(at: &Endpoint, paths: &[Path], usable: &[&str]) -> Option<(usize, Dependence)> {
        let usable = usable.iter().map(|address| address.parse().unwrap()).collect();
        in_use(at, paths, &usable).map(|in_use| (in_use.connections, in_use.dependence))
    }

    #[test]
    fn endpoint_of_initial_subflows_or_of_a_last_path_is_in_use() {
        let (first, second) = (endpoint("10.0.0.1", None), endpoint("10.0.1.1", None));
        let paths =
            [path(1, "10.0.0.1:80", true), path(1, "10.0.1.1:80", false), path(2, "10.0.0.1:80", true)];
        let usable = ["10.0.0.1", "10.0.1.1"];
        assert_eq!(found(&first, &paths, &usable), Some((2, Dependence::Began)));
        assert_eq!(found(&second, &paths, &usable), None, "the initial subflow remains");
        assert_eq!(
            found(&second, &paths, &["10.0.1.1"]),
            Some((1, Dependence::LastPath)),
            "no carrier there"
        );
        assert_eq!(
            found(&second, &paths[1..], &usable),
            Some((1, Dependence::LastPath)),
            "closed by the guard"
        );
        assert_eq!(found(&endpoint("10.0.2.1", None), &paths, &usable), None);
    }

    #[test]
    fn connections_are_listed_once_for_all_endpoints_of_a_round() {
        let both = || vec![path(1, "10.0.0.1:80", false), path(1, "10.0.1.1:80", false)];
        let usable = || ["10.0.0.1", "10.0.1.1"].map(|address| address.parse().unwrap()).into();
        let (first, second) = (endpoint("10.0.0.1", None), endpoint("10.0.1.1", None));
        let (began, lists) = (Instant::now(), std::cell::Cell::new(0));
        let mut usage = Usage::default();
        let of = |usage: &mut Usage, endpoint, ms| {
            let list = || {
                lists.set(lists.get() + 1);
                Ok(Connections { paths: both(), usable: usable() })
            };
            let found = usage.of_listed(endpoint, || began + Duration::from_millis(ms), list);
            found.unwrap().map(|in_use| in_use.dependence)
        };
        for _ in 0..100 {
            assert_eq!(of(&mut usage, &first, 0), None, "the other one is left");
        }
        usage.removed(&first);
        assert_eq!(of(&mut usage, &second, 200), Some(Dependence::LastPath));
        assert_eq!(lists.get(), 1);
        assert_eq!(of(&mut usage, &second, 201), None, "listed again");
        assert_eq!(lists.get(), 2);
    }

    #[test]
    fn closing_path_is_not_counted_as_another_path() {
        let closing = Path { established: false, ..path(1, "10.0.0.1:80", true) };
        let paths = [closing, path(1, "10.0.1.1:80", false)];
        let usable = ["10.0.0.1", "10.0.1.1"];
        assert_eq!(found(&endpoint("10.0.1.1", None), &paths, &usable), Some((1, Dependence::LastPath)));
    }

    #[test]
    fn endpoint_with_a_port_is_used_at_that_port_alone() {
        let paths = [path(1, "10.0.0.1:80", true)];
        assert_eq!(found(&endpoint("10.0.0.1", Some(81)), &paths, &["10.0.0.1"]), None);
        assert!(found(&endpoint("10.0.0.1", Some(80)), &paths, &["10.0.0.1"]).is_some());
    }
}
