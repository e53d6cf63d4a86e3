//! An address that the in-kernel path manager uses.

use crate::genl::{bytes_of, inside};
use netlink_packet_core::DefaultNla;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

// Numbers from the kernel's user interface, linux/mptcp_pm.h.
const MPTCP_PM_ADDR_ATTR_FAMILY: u16 = 1;
const MPTCP_PM_ADDR_ATTR_ID: u16 = 2;
const MPTCP_PM_ADDR_ATTR_ADDR4: u16 = 3;
const MPTCP_PM_ADDR_ATTR_ADDR6: u16 = 4;
const MPTCP_PM_ADDR_ATTR_PORT: u16 = 5;
const MPTCP_PM_ADDR_ATTR_FLAGS: u16 = 6;
const MPTCP_PM_ADDR_ATTR_IF_IDX: u16 = 7;

/// An endpoint of the path manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Its number; 0: the kernel chooses.
    pub id: u8,
    /// Its address.
    pub address: IpAddr,
    /// The port that is announced with it.
    pub port: Option<u16>,
    /// Sum of [`Endpoint::SIGNAL`] and its like.
    pub flags: u32,
    /// Index of the interface that its subflows are bound to; 0: none.
    pub device: u32,
}

impl Endpoint {
    /// Announced to the other end.
    pub const SIGNAL: u32 = 1;
    /// Subflows are opened from it.
    pub const SUBFLOW: u32 = 1 << 1;
    /// Its subflows carry data only when no other is left. An endpoint that running connections join by should begin so
    /// and lose the flag later: Linux 6.18 delivers wrong bytes where data follows a join at once
    /// (`docs/reference/kernels.md`).
    pub const BACKUP: u32 = 1 << 2;
    /// A subflow is opened from it to every address of the other end.
    pub const FULLMESH: u32 = 1 << 3;
    /// The kernel made it for a subflow whose address has none.
    pub const IMPLICIT: u32 = 1 << 4;
    /// Subflows to announced addresses are opened from it, one each; from Linux 6.18 on.
    pub const LAMINAR: u32 = 1 << 5;

    /// The same endpoint with [`Endpoint::BACKUP`] set or cleared.
    #[must_use]
    pub fn with_backup(self, backup: bool) -> Self {
        let others = self.flags & !Self::BACKUP;
        Self { flags: if backup { others | Self::BACKUP } else { others }, ..self }
    }

    pub(super) fn encode(&self) -> Vec<DefaultNla> {
        let (family, kind, address) = match self.address {
            IpAddr::V4(address) => (nix::libc::AF_INET, MPTCP_PM_ADDR_ATTR_ADDR4, address.octets().to_vec()),
            IpAddr::V6(address) => (nix::libc::AF_INET6, MPTCP_PM_ADDR_ATTR_ADDR6, address.octets().to_vec()),
        };
        let family = u16::try_from(family).unwrap_or_default();
        let mut attributes = vec![
            DefaultNla::new(MPTCP_PM_ADDR_ATTR_FAMILY, family.to_ne_bytes().to_vec()),
            DefaultNla::new(kind, address),
            DefaultNla::new(MPTCP_PM_ADDR_ATTR_FLAGS, self.flags.to_ne_bytes().to_vec()),
        ];
        if self.id != 0 {
            attributes.push(DefaultNla::new(MPTCP_PM_ADDR_ATTR_ID, vec![self.id]));
        }
        if let Some(port) = self.port {
            attributes.push(DefaultNla::new(MPTCP_PM_ADDR_ATTR_PORT, port.to_ne_bytes().to_vec()));
        }
        if self.device != 0 {
            attributes.push(DefaultNla::new(MPTCP_PM_ADDR_ATTR_IF_IDX, self.device.to_ne_bytes().to_vec()));
        }
        attributes
    }

    /// `None` for one that has no address that can be read.
    pub(super) fn decode(nest: &[u8]) -> Option<Self> {
        let attributes = inside(nest).ok()?;
        let value = |kind| bytes_of(&attributes, kind);
        let word = |kind| Some(u32::from_ne_bytes(*value(kind)?.first_chunk()?));
        let address = || {
            let four =
                value(MPTCP_PM_ADDR_ATTR_ADDR4).and_then(|v| Some(Ipv4Addr::from(*v.first_chunk::<4>()?)));
            let six = || Some(Ipv6Addr::from(*value(MPTCP_PM_ADDR_ATTR_ADDR6)?.first_chunk::<16>()?).into());
            four.map(IpAddr::from).or_else(six)
        };
        let port = value(MPTCP_PM_ADDR_ATTR_PORT).and_then(|v| Some(u16::from_ne_bytes(*v.first_chunk()?)));
        Some(Self {
            id: value(MPTCP_PM_ADDR_ATTR_ID)?.first().copied()?,
            address: address()?,
            port: port.filter(|port| *port != 0),
            flags: word(MPTCP_PM_ADDR_ATTR_FLAGS).unwrap_or(0),
            device: word(MPTCP_PM_ADDR_ATTR_IF_IDX).unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::genl::nest;

    /// As it stands in an answer of the kernel.
    fn bytes(endpoint: &Endpoint) -> Vec<u8> {
        bytes_of(&[nest(1, &endpoint.encode())], 1).unwrap()
    }

    #[test]
    fn endpoint_round_trips() {
        let four = Endpoint {
            id: 3,
            address: "10.0.0.1".parse().unwrap(),
            port: Some(5201),
            flags: Endpoint::SIGNAL | Endpoint::BACKUP,
            device: 7,
        };
        let six = Endpoint { id: 9, address: "fd00::1".parse().unwrap(), port: None, flags: 2, device: 0 };
        for endpoint in [four, six] {
            assert_eq!(Endpoint::decode(&bytes(&endpoint)), Some(endpoint));
        }
        let whole = bytes(&four);
        for cut in 0..16 {
            assert_eq!(Endpoint::decode(&whole[..cut]), None, "{cut}");
        }
    }
}
