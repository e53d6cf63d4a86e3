//! The MPTCP path manager of one network namespace.

mod endpoint;
mod events;
mod userspace;

pub use endpoint::Endpoint;
pub use events::{Ends, Event, Events};
pub use userspace::SubflowEnds;

use crate::genl::{Family, bytes_of, nest};
use crate::invalid;
use netlink_packet_core::DefaultNla;
use std::io;
use std::net::Ipv4Addr;
use std::thread;

// Numbers from the kernel's user interface, linux/mptcp_pm.h.
const MPTCP_PM_CMD_ADD_ADDR: u8 = 1;
const MPTCP_PM_CMD_DEL_ADDR: u8 = 2;
const MPTCP_PM_CMD_GET_ADDR: u8 = 3;
const MPTCP_PM_CMD_SET_LIMITS: u8 = 5;
const MPTCP_PM_CMD_GET_LIMITS: u8 = 6;
const MPTCP_PM_CMD_SET_FLAGS: u8 = 7;
const MPTCP_PM_ATTR_ADDR: u16 = 1;
const MPTCP_PM_ATTR_RCV_ADD_ADDRS: u16 = 2;
const MPTCP_PM_ATTR_SUBFLOWS: u16 = 3;

/// Additional subflows and accepted addresses that every kernel takes as a limit. Linux does not count the first subflow.
pub const MAX_LIMIT: u32 = 8;
/// Beyond this no kernel takes a limit: it keeps them in a byte.
pub const LIMIT_CEILING: u32 = 255;

/// The highest limit that the running kernel takes: 8, or 64 from Linux 7.2 on. It is tried, in a network namespace of a thread's
/// own, which ends with it.
///
/// # Errors
/// Not permitted to make a namespace; no MPTCP.
pub fn kernel_limit() -> io::Result<u32> {
    let tried = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)?;
        let mut manager = PathManager::open()?;
        let (mut taken, mut refused) = (0, LIMIT_CEILING + 1);
        while refused - taken > 1 {
            let middle = taken.midpoint(refused);
            match manager.set_limits(middle, 0) {
                Ok(()) => taken = middle,
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => refused = middle,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    };
    thread::spawn(tried).join().unwrap_or_else(|_| Err(io::Error::other("the thread that asks has ended")))
}

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

    /// The additional subflows per connection, and the addresses announced by the peer, that are allowed.
    pub fn limits(&mut self) -> io::Result<(u32, u32)> {
        let answer = self.0.get(MPTCP_PM_CMD_GET_LIMITS, Vec::new())?;
        let word = |kind| Some(u32::from_ne_bytes(*bytes_of(&answer, kind)?.first_chunk()?));
        let limits = word(MPTCP_PM_ATTR_SUBFLOWS).zip(word(MPTCP_PM_ATTR_RCV_ADD_ADDRS));
        limits.ok_or_else(|| invalid("mptcp_pm answered without limits"))
    }

    /// Every endpoint.
    pub fn endpoints(&mut self) -> io::Result<Vec<Endpoint>> {
        let answers = self.0.dump(MPTCP_PM_CMD_GET_ADDR)?;
        let endpoint = |answer: &Vec<DefaultNla>| Endpoint::decode(&bytes_of(answer, MPTCP_PM_ATTR_ADDR)?);
        Ok(answers.iter().filter_map(endpoint).collect())
    }

    /// Makes an endpoint; the kernel gives it a number.
    ///
    /// # Errors
    /// `AlreadyExists` when the address has one.
    pub fn add(&mut self, endpoint: &Endpoint) -> io::Result<()> {
        self.0.execute(MPTCP_PM_CMD_ADD_ADDR, vec![nest(MPTCP_PM_ATTR_ADDR, &endpoint.encode())])
    }

    /// Removes an endpoint that was listed.
    pub fn remove(&mut self, endpoint: &Endpoint) -> io::Result<()> {
        self.0.execute(MPTCP_PM_CMD_DEL_ADDR, vec![nest(MPTCP_PM_ATTR_ADDR, &endpoint.encode())])
    }

    /// Sets or clears [`Endpoint::BACKUP`] of an endpoint that was listed. Its subflows stay; the other end is notified
    /// (MP_PRIO).
    pub fn set_endpoint_backup(&mut self, listed: &Endpoint, backup: bool) -> io::Result<()> {
        let changed = listed.with_backup(backup);
        self.0.execute(MPTCP_PM_CMD_SET_FLAGS, vec![nest(MPTCP_PM_ATTR_ADDR, &changed.encode())])
    }

    /// Announces `address` to the peer of every connection.
    pub fn signal(&mut self, address: Ipv4Addr) -> io::Result<()> {
        self.add(&Endpoint { id: 0, address: address.into(), port: None, flags: Endpoint::SIGNAL, device: 0 })
    }
}
