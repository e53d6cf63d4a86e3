//! Addresses of this host, and being told when they change.

use nix::ifaddrs::getifaddrs;
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
    /// An address that somebody named, with its interface if `own` has it.
    pub fn at(ip: IpAddr, own: &[Source]) -> Source {
        let interface = own.iter().find(|source| source.ip == ip).map(|source| source.interface.clone());
        Source { ip, interface: interface.unwrap_or_default() }
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
/// addresses of an interface the first, because they are the same way. Where there is nothing else, link-local addresses of IPv4.
///
/// # Errors
/// The system does not tell its addresses.
pub fn sources() -> io::Result<Vec<Source>> {
    let (mut found, mut near): (Vec<Source>, Vec<Source>) = Default::default();
    for entry in getifaddrs()? {
        let up = is_usable(entry.flags);
        let storage = entry.address.as_ref();
        let v4 = storage.and_then(|a| a.as_sockaddr_in()).map(|a| IpAddr::V4(a.ip()));
        let v6 = storage.and_then(|a| a.as_sockaddr_in6()).map(|a| IpAddr::V6(a.ip()));
        let Some(ip) = v4.or(v6).filter(|_| up) else { continue };
        if !is_routable(ip) {
            let link_local = matches!(ip, IpAddr::V4(ip) if ip.is_link_local());
            near.extend(link_local.then_some(Source { ip, interface: entry.interface_name }));
            continue;
        }
        let twin =
            |other: &Source| ip.is_ipv6() && other.ip.is_ipv6() && other.interface == entry.interface_name;
        if !found.iter().any(|other| other.ip == ip || twin(other)) {
            found.push(Source { ip, interface: entry.interface_name });
        }
    }
    Ok(if found.is_empty() { near } else { found })
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
    let of = |entry: nix::ifaddrs::InterfaceAddress| {
        let ip = entry.address.as_ref()?.as_sockaddr_in6()?.ip();
        let own = if_nametoindex(entry.interface_name.as_str()) == Ok(index);
        (own && ip.is_unicast_link_local())
            .then_some(Source { ip: ip.into(), interface: entry.interface_name })
    };
    Ok(getifaddrs()?.filter_map(of).collect())
}

fn is_routable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_link_local() && !ip.is_loopback() && !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local() && !ip.is_loopback() && !ip.is_unspecified(),
    }
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
