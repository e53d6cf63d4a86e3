//! Lookups of routes, as the kernel does them for a packet.

use crate::{Links, invalid, os_code};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;
use std::net::IpAddr;

/// The question of a lookup.
#[derive(Debug, Clone, Copy)]
pub struct RouteQuery {
    /// Destination.
    pub to: IpAddr,
    /// Source address; `None`: the kernel chooses.
    pub from: Option<IpAddr>,
    /// Index of the interface that the socket is bound to.
    pub bound_to: Option<u32>,
}

/// The answer: where packets leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteFound {
    /// Index of the interface.
    pub port: u32,
    /// Next hop; `None` on the link itself.
    pub gateway: Option<IpAddr>,
    /// Source address that the route prefers.
    pub source: Option<IpAddr>,
}

impl Links {
    /// Looks a route up, policy rules included; `None` where there is none. Bound to an interface, only entries of the tables
    /// count: the kernel otherwise takes a destination without one for a neighbour.
    ///
    /// # Errors
    /// The kernel refuses for another reason, or answers something that cannot be read.
    pub fn route(&mut self, query: &RouteQuery) -> io::Result<Option<RouteFound>> {
        match self.0.get(RouteNetlinkMessage::GetRoute(request(query))) {
            Ok(answers) => {
                let found = answers.iter().find_map(|answer| match &answer.0 {
                    RouteNetlinkMessage::NewRoute(route) => Some(route),
                    _ => None,
                });
                found.map(read).ok_or_else(|| invalid("no route in the answer to a lookup"))
            }
            Err(error) if is_unreachable(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn request(query: &RouteQuery) -> RouteMessage {
    let bits = if query.to.is_ipv4() { 32 } else { 128 };
    let mut message = RouteMessage::default();
    message.header.address_family =
        if query.to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.destination_prefix_length = bits;
    message.attributes.push(RouteAttribute::Destination(query.to.into()));
    if let Some(from) = query.from {
        message.header.source_prefix_length = bits;
        message.attributes.push(RouteAttribute::Source(from.into()));
    }
    if let Some(port) = query.bound_to {
        message.header.flags = RouteFlags::FibMatch;
        message.attributes.push(RouteAttribute::Oif(port));
    }
    message
}

/// `None` for routes that lead nowhere (`blackhole`, `unreachable`).
fn read(route: &RouteMessage) -> Option<RouteFound> {
    if !matches!(route.header.kind, RouteType::Unicast | RouteType::Local) {
        return None;
    }
    let attribute = |wanted: fn(&RouteAttribute) -> Option<IpAddr>| route.attributes.iter().find_map(wanted);
    let gateway = attribute(|a| if let RouteAttribute::Gateway(a) = a { ip(a) } else { None });
    let source = attribute(|a| if let RouteAttribute::PrefSource(a) = a { ip(a) } else { None });
    let port = route.attributes.iter().find_map(|a| match a {
        RouteAttribute::Oif(port) => Some(*port),
        _ => None,
    });
    Some(RouteFound { port: port?, gateway, source })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// Answers of a lookup that finds no way. `EINVAL` is that of a source which is not this host's, or of a blackhole.
fn is_unreachable(error: &io::Error) -> bool {
    use nix::libc::{EACCES, EHOSTUNREACH, EINVAL, ENETUNREACH, ENODEV, ESRCH};
    os_code(error)
        .is_some_and(|code| [ENETUNREACH, EHOSTUNREACH, EACCES, EINVAL, ESRCH, ENODEV].contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_reached_by_itself() {
        let to = "127.0.0.1".parse().unwrap();
        let query = RouteQuery { to, from: None, bound_to: None };
        let found = Links::open().unwrap().route(&query).unwrap().unwrap();
        assert_eq!((found.port, found.gateway), (1, None));
    }

    #[test]
    fn source_of_another_host_has_no_route() {
        let query = |from: &str| RouteQuery {
            to: "127.0.0.1".parse().unwrap(),
            from: Some(from.parse().unwrap()),
            bound_to: None,
        };
        assert_eq!(Links::open().unwrap().route(&query("192.0.2.77")).unwrap(), None);
    }
}
