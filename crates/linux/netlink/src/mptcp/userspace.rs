//! Commands for single connections, which the kernel accepts where user space manages their paths
//! (`net.mptcp.pm_type=1`): connections that it manages itself answer `InvalidInput`.

use super::{Endpoint, MPTCP_PM_ATTR_ADDR, MPTCP_PM_CMD_SET_FLAGS, PathManager};
use crate::genl::nest;
use netlink_packet_core::DefaultNla;
use std::io;
use std::net::SocketAddr;

// Numbers from the kernel's user interface, linux/mptcp_pm.h.
const MPTCP_PM_CMD_SUBFLOW_CREATE: u8 = 10;
const MPTCP_PM_ATTR_TOKEN: u16 = 4;
const MPTCP_PM_ATTR_ADDR_REMOTE: u16 = 6;

/// A subflow of a connection, as the path manager names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubflowEnds {
    /// The connection's token at this end.
    pub token: u32,
    /// Its local end.
    pub local: SocketAddr,
    /// The number of the local address.
    pub local_id: u8,
    /// Index of the interface that it is bound to; 0: none.
    pub device: u32,
    /// Its remote end.
    pub remote: SocketAddr,
}

impl SubflowEnds {
    fn attributes(&self, local: &Endpoint) -> Vec<DefaultNla> {
        let remote = end(self.remote, 0);
        vec![
            DefaultNla::new(MPTCP_PM_ATTR_TOKEN, self.token.to_ne_bytes().to_vec()),
            nest(MPTCP_PM_ATTR_ADDR, &local.encode()),
            nest(MPTCP_PM_ATTR_ADDR_REMOTE, &remote.encode()),
        ]
    }
}

fn end(at: SocketAddr, flags: u32) -> Endpoint {
    Endpoint { id: 0, address: at.ip(), port: Some(at.port()).filter(|port| *port != 0), flags, device: 0 }
}

impl PathManager {
    /// Tells the other end (MP_PRIO) that this subflow is to carry data only when no other is left, or is no longer.
    ///
    /// # Errors
    /// `InvalidInput` for a connection whose paths the kernel manages.
    pub fn set_backup(&mut self, subflow: &SubflowEnds, backup: bool) -> io::Result<()> {
        let local = end(subflow.local, if backup { Endpoint::BACKUP } else { 0 });
        self.0.execute(MPTCP_PM_CMD_SET_FLAGS, subflow.attributes(&local))
    }

    /// Opens a subflow; with port 0 the kernel chooses the local one.
    ///
    /// # Errors
    /// `InvalidInput` for a connection whose paths the kernel manages; else why it cannot be opened.
    pub fn open_subflow(&mut self, subflow: &SubflowEnds) -> io::Result<()> {
        let local = Endpoint { id: subflow.local_id, device: subflow.device, ..end(subflow.local, 0) };
        self.0.execute(MPTCP_PM_CMD_SUBFLOW_CREATE, subflow.attributes(&local))
    }
}
