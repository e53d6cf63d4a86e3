//! The in-kernel MPTCP path manager of one network namespace.

mod events;

pub use events::{Ends, Event, Events};

use crate::genl::{Family, nest};
use netlink_packet_core::DefaultNla;
use std::io;
use std::net::Ipv4Addr;

// Numbers from the kernel's user interface, linux/mptcp_pm.h.
const MPTCP_PM_CMD_ADD_ADDR: u8 = 1;
const MPTCP_PM_CMD_SET_LIMITS: u8 = 5;
const MPTCP_PM_ATTR_ADDR: u16 = 1;
const MPTCP_PM_ATTR_RCV_ADD_ADDRS: u16 = 2;
const MPTCP_PM_ATTR_SUBFLOWS: u16 = 3;
const MPTCP_PM_ADDR_ATTR_FAMILY: u16 = 1;
const MPTCP_PM_ADDR_ATTR_ADDR4: u16 = 3;
const MPTCP_PM_ADDR_ATTR_FLAGS: u16 = 6;
const MPTCP_PM_ADDR_FLAG_SIGNAL: u32 = 1;

/// The most additional subflows, and the most accepted addresses, that the kernel allows.
pub const MAX_LIMIT: u32 = 8;

/// A connection to the path manager of the calling thread's namespace.
pub struct PathManager(Family);

impl PathManager {
    /// `NotFound` when the kernel has no MPTCP.
    pub fn open() -> io::Result<Self> {
        Family::open("mptcp_pm").map(Self)
    }

    /// Allows `subflows` additional subflows per connection and `accepted` addresses announced by the peer.
    pub fn set_limits(&mut self, subflows: u32, accepted: u32) -> io::Result<()> {
        let attributes = vec![
            DefaultNla::new(MPTCP_PM_ATTR_RCV_ADD_ADDRS, accepted.to_ne_bytes().to_vec()),
            DefaultNla::new(MPTCP_PM_ATTR_SUBFLOWS, subflows.to_ne_bytes().to_vec()),
        ];
        self.0.execute(MPTCP_PM_CMD_SET_LIMITS, attributes)
    }

    /// Announces `address` to the peer of every connection.
    pub fn signal(&mut self, address: Ipv4Addr) -> io::Result<()> {
        let family = u16::try_from(nix::libc::AF_INET).unwrap_or_default();
        let endpoint = nest(
            MPTCP_PM_ATTR_ADDR,
            &[
                DefaultNla::new(MPTCP_PM_ADDR_ATTR_FAMILY, family.to_ne_bytes().to_vec()),
                DefaultNla::new(MPTCP_PM_ADDR_ATTR_ADDR4, address.octets().to_vec()),
                DefaultNla::new(MPTCP_PM_ADDR_ATTR_FLAGS, MPTCP_PM_ADDR_FLAG_SIGNAL.to_ne_bytes().to_vec()),
            ],
        );
        self.0.execute(MPTCP_PM_CMD_ADD_ADDR, vec![endpoint])
    }
}
