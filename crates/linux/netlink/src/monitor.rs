//! Being told when links, addresses or routes of a network namespace change.

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::os::fd::{AsRawFd, RawFd};

// Numbers from the kernel's user interface, linux/rtnetlink.h.
const RTNLGRP_LINK: u32 = 1;
const RTNLGRP_NEIGH: u32 = 3;
const RTNLGRP_IPV4_IFADDR: u32 = 5;
const RTNLGRP_IPV4_ROUTE: u32 = 7;
const RTNLGRP_IPV6_IFADDR: u32 = 9;
const RTNLGRP_IPV6_ROUTE: u32 = 11;

/// Changes of links and addresses in the network namespace of the thread that opened it. The namespace lives as long
/// as this.
pub struct Changes(Socket);

impl Changes {
    /// From now on changes are kept for [`Changes::any`].
    ///
    /// # Errors
    /// The system refuses a netlink socket.
    pub fn open() -> io::Result<Self> {
        Self::of(&[RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR])
    }

    /// Changes of the neighbour table, and of nothing else.
    ///
    /// # Errors
    /// As [`Changes::open`].
    pub fn of_neighbours() -> io::Result<Self> {
        Self::of(&[RTNLGRP_NEIGH])
    }

    /// The same with changes of routes, without which a new address may lead nowhere.
    ///
    /// # Errors
    /// As [`Changes::open`].
    pub fn with_routes() -> io::Result<Self> {
        let addresses = [RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR];
        Self::of(&[&addresses[..], &[RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE]].concat())
    }

    fn of(groups: &[u32]) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        for group in groups {
            socket.add_membership(*group)?;
        }
        Ok(Self(socket))
    }

    /// Returns true if anything has changed since the last call. The change is to be looked up: announcements may have found no
    /// room, and the state is what counts.
    pub fn any(&mut self) -> bool {
        let mut changed = false;
        loop {
            match self.0.recv_from_full() {
                Ok(_) => changed = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return changed,
                // ENOBUFS: some were lost, so something has changed. Others do not come again at once.
                Err(_) => return true,
            }
        }
    }
}

impl AsRawFd for Changes {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
