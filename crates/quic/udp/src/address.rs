//! Addresses of this host, and being told when they change.

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// An address of this host that packets can leave from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The address.
    pub ip: IpAddr,
    /// The interface that has it.
    pub interface: String,
}

impl Source {
    /// An address that somebody named, with its interface if `own` or a link has it.
    pub fn at(ip: IpAddr, own: &[Source]) -> Source {
        let of_link = || link_local_v6().ok()?.find(|source| source.ip == ip);
        let known = own.iter().find(|source| source.ip == ip).cloned().or_else(of_link);
        known.unwrap_or(Source { ip, interface: String::new() })
    }

    /// Its socket address, with the interface where the address is valid on that alone.
    pub fn socket_address(&self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                let index = if_nametoindex(self.interface.as_str()).unwrap_or(0);
                SocketAddrV6::new(ip, port, 0, index).into()
            }
            ip => SocketAddr::new(ip, port),
        }
    }
}

/// The addresses that paths can begin at: of interfaces that are up, not of the loopback, and valid beyond one link. Of several IPv6
/// addresses of an interface the first, because they are the same way. Where there is nothing else, link-local addresses.
///
/// # Errors
/// The system does not tell its addresses.
pub fn sources() -> io::Result<Vec<Source>> {
    let (mut found, mut near): (Vec<Source>, Vec<Source>) = Default::default();
    for source in usable()? {
        let of_link = is_link_local(source.ip);
        let list = if of_link { &mut near } else { &mut found };
        let same = |other: &Source| {
            let both_v6 = source.ip.is_ipv6() && other.ip.is_ipv6();
            // The same link-local address may be that of several interfaces.
            both_v6 && other.interface == source.interface || !of_link && other.ip == source.ip
        };
        if !list.iter().any(same) {
            list.push(source);
        }
    }
    Ok(if found.is_empty() { near } else { found })
}

/// Addresses of interfaces that are up, without those of the loopback.
fn usable() -> io::Result<impl Iterator<Item = Source>> {
    let of = |entry: InterfaceAddress| {
        let address = entry.address.as_ref()?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        let ip = v4.or_else(|| Some(address.as_sockaddr_in6()?.ip().into()))?;
        let valid = is_usable(entry.flags) && !ip.is_loopback() && !ip.is_unspecified();
        valid.then_some(Source { ip, interface: entry.interface_name })
    };
    Ok(getifaddrs()?.filter_map(of))
}

/// Up with a carrier, and not the loopback. Linux derives `IFF_RUNNING` from the operational state, which follows the carrier by up to a
/// second; `IFF_LOWER_UP` is the carrier itself.
fn is_usable(flags: InterfaceFlags) -> bool {
    let mut carrier = InterfaceFlags::IFF_RUNNING;
    #[cfg(target_os = "linux")]
    carrier.insert(InterfaceFlags::IFF_LOWER_UP);
    flags.contains(InterfaceFlags::IFF_UP)
        && flags.intersects(carrier)
        && !flags.contains(InterfaceFlags::IFF_LOOPBACK)
}

/// The IPv6 addresses of an interface that are valid on its link alone.
pub(crate) fn link_local(index: u32) -> io::Result<Vec<Source>> {
    Ok(link_local_v6()?.filter(|source| if_nametoindex(source.interface.as_str()) == Ok(index)).collect())
}

fn link_local_v6() -> io::Result<impl Iterator<Item = Source>> {
    Ok(usable()?.filter(|source| source.ip.is_ipv6() && is_link_local(source.ip)))
}

/// Returns true if an address is valid on one link alone.
pub fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// An address that another host has named. The scope of a link-local IPv6 address is that host's: here it may be on any link.
///
/// # Errors
/// The system does not tell its addresses.
pub fn on_any_link(address: SocketAddr) -> io::Result<Vec<SocketAddr>> {
    let SocketAddr::V6(to) = address else { return Ok(vec![address]) };
    if !is_link_local(address.ip()) {
        return Ok(vec![address]);
    }
    let mut links: Vec<_> = link_local_v6()?.map(|source| source.interface).collect();
    links.dedup();
    let index = |interface: String| if_nametoindex(interface.as_str()).ok();
    let at = |index| SocketAddrV6::new(*to.ip(), to.port(), 0, index).into();
    Ok(links.into_iter().filter_map(index).map(at).collect())
}

/// Tells when addresses, links or routes may have changed.
pub struct Changes(imp::Changes);

impl Changes {
    /// From now on; in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The system has no such announcements for us, or this is not within a tokio runtime.
    pub fn open() -> io::Result<Changes> {
        imp::Changes::open().map(Changes)
    }

    /// Returns after something has changed, or may have.
    pub async fn changed(&mut self) {
        self.0.changed().await;
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    pub(super) struct Changes(AsyncFd<vmcc_netlink::Changes>);

    impl Changes {
        pub(super) fn open() -> io::Result<Changes> {
            let changes = vmcc_netlink::Changes::with_routes()?;
            // SAFETY: the descriptor is that of the socket within, which is open as long as it is registered.
            let registered = unsafe { AsyncFd::register_with_interest(changes, Interest::READABLE) };
            Ok(Changes(registered.map_err(io::Error::from)?))
        }

        pub(super) async fn changed(&mut self) {
            while let Ok(mut ready) = self.0.readable_mut().await {
                ready.clear_ready();
                if ready.get_inner_mut().any() {
                    return;
                }
            }
            // The runtime ends.
            std::future::pending::<()>().await;
        }
    }
}

/// Elsewhere nobody tells: look now and then.
#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;
    use std::time::Duration;

    const INTERVAL: Duration = Duration::from_secs(2);

    pub(super) struct Changes(Vec<super::Source>);

    impl Changes {
        pub(super) fn open() -> io::Result<Changes> {
            super::sources().map(Changes)
        }

        pub(super) async fn changed(&mut self) {
            loop {
                tokio::time::sleep(INTERVAL).await;
                let now = super::sources().unwrap_or_default();
                if now != self.0 {
                    self.0 = now;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An interface that was just set up: the carrier is there, the operational state follows.
    #[cfg(target_os = "linux")]
    #[test]
    fn carrier_without_operational_state_is_usable() {
        let carrier = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_LOWER_UP;
        assert!(is_usable(carrier));
        assert!(!is_usable(InterfaceFlags::IFF_LOWER_UP));
        assert!(!is_usable(carrier | InterfaceFlags::IFF_LOOPBACK));
    }

    #[test]
    fn interface_without_carrier_is_not_usable() {
        assert!(is_usable(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING));
        assert!(!is_usable(InterfaceFlags::IFF_UP));
    }
}
