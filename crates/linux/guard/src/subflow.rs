//! Operations on a subflow besides closing it, in the calling thread's network namespace.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use vmcc_bpf::ControlError;
pub(crate) use vmcc_netlink::Endpoint;
use vmcc_netlink::{PathManager, SubflowEnds};
use vmcc_system::diag::Subflow;

/// Outcome of reopening a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reopened {
    /// The path manager accepted the request.
    Requested,
    /// The kernel manages the paths, and has no endpoint of this address for new subflows.
    NoEndpoint,
    /// The kernel manages the paths, and asking it again would close other subflows from this address.
    InUse,
}

fn ends(subflow: &Subflow) -> Option<SubflowEnds> {
    let mptcp = subflow.mptcp?;
    Some(SubflowEnds {
        token: mptcp.token_local,
        local: subflow.local,
        local_id: mptcp.id_local,
        device: subflow.interface,
        remote: subflow.remote,
    })
}

fn failed(action: &str, subflow: &Subflow, cause: impl std::fmt::Display) -> ControlError {
    ControlError::kernel(format!("{action} {} -> {}", subflow.local, subflow.remote), cause)
}

/// Keeps data off a subflow while others are left (MP_PRIO), or lets it on again. `false`: the kernel manages the
/// connection's paths, and does so for all connections at once or for none.
///
/// # Errors
/// The path manager cannot be asked.
pub(crate) fn set_backup(subflow: &Subflow, backup: bool) -> Result<bool, ControlError> {
    let Some(ends) = ends(subflow) else { return Ok(false) };
    let asked = PathManager::open().and_then(|mut manager| manager.set_backup(&ends, backup));
    allowed(asked).map_err(|e| failed("set the priority of", subflow, e))
}

/// True if the kernel lets user space manage the paths of this connection.
fn allowed(asked: io::Result<()>) -> io::Result<bool> {
    match asked {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(false),
        asked => asked.map(|()| true),
    }
}

/// An IPv6 socket that speaks IPv4 writes addresses in another way.
fn is_same(one: IpAddr, other: IpAddr) -> bool {
    one.to_canonical() == other.to_canonical()
}

/// Opens a subflow between the addresses of one that was closed. `false`: the kernel manages the connection's paths, see
/// [`renew`].
///
/// # Errors
/// The path manager refuses.
pub(crate) fn reopen(subflow: &Subflow) -> Result<bool, ControlError> {
    let Some(mut ends) = ends(subflow) else { return Ok(false) };
    ends.local.set_port(0);
    let asked = PathManager::open().and_then(|mut manager| manager.open_subflow(&ends));
    allowed(asked).map_err(|e| failed("open again", subflow, e))
}

/// Has the kernel, which manages the paths, open a subflow from an address for each connection that has none; `all` are those
/// that are there.
///
/// It opens one only for an endpoint that it has not used for the connection: the endpoint is recreated, which closes what
/// other subflows it has. So only if there are none. `going` is called before the removal. It comes back as a backup, so that
/// its subflows have joined before they carry data (see [`Endpoint::BACKUP`]); [`restore`] clears that.
///
/// # Errors
/// The path manager refuses, or `going` does.
pub(crate) fn renew(
    address: IpAddr,
    all: &[Subflow],
    going: &mut dyn FnMut(&Endpoint) -> Result<(), ControlError>,
) -> Result<Reopened, ControlError> {
    let refused = |e: io::Error| ControlError::kernel(format!("recreate the endpoint {address}"), e);
    let mut manager = PathManager::open().map_err(refused)?;
    let of_address = |e: &Endpoint| is_same(e.address, address) && e.flags & Endpoint::IMPLICIT == 0;
    let Some(endpoint) = manager.endpoints().map_err(refused)?.into_iter().find(of_address) else {
        return Ok(Reopened::NoEndpoint);
    };
    if all.iter().any(|other| other.mptcp.is_some() && is_same(other.local.ip(), address)) {
        return Ok(Reopened::InUse);
    }
    going(&endpoint)?;
    let settling = endpoint.with_backup(true);
    manager.remove(&endpoint).and_then(|()| manager.add(&settling)).map_err(refused)?;
    Ok(Reopened::Requested)
}

/// Adds an endpoint that was there, if there is none of its address now; `false` if there is one. One that [`renew`] added
/// has its own flags again.
///
/// # Errors
/// The path manager refuses.
pub(crate) fn restore(endpoint: &Endpoint) -> Result<bool, ControlError> {
    let refused =
        |e: io::Error| ControlError::kernel(format!("add the endpoint {} again", endpoint.address), e);
    let mut manager = PathManager::open().map_err(refused)?;
    let is_it = |e: &Endpoint| e.address == endpoint.address && e.flags & Endpoint::IMPLICIT == 0;
    if let Some(there) = manager.endpoints().map_err(refused)?.into_iter().find(is_it) {
        if there.flags != endpoint.flags && there.flags == endpoint.with_backup(true).flags {
            manager.set_endpoint_backup(&there, false).map_err(refused)?;
        }
        return Ok(false);
    }
    // Its number may be another one's by now.
    let any_id = Endpoint { id: 0, ..*endpoint };
    manager.add(endpoint).or_else(|_| manager.add(&any_id)).map_err(refused)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_and_plain_ipv4_addresses_match() {
        let is = |one: &str, other: &str| is_same(one.parse().unwrap(), other.parse().unwrap());
        assert!(
            is("::ffff:10.0.0.1", "10.0.0.1")
                && is("10.0.0.1", "::ffff:10.0.0.1")
                && is("fd00::1", "fd00::1")
        );
        assert!(!is("::ffff:10.0.0.1", "10.0.0.2") && !is("::10.0.0.1", "10.0.0.1"));
    }
}
