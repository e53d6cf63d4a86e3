//! Closing paths that an algorithm asked to close.
//!
//! A BPF program cannot close a socket. An algorithm that finds two of a connection's paths sharing a bottleneck
//! leaves an event in a ring buffer; [`Guard`] reads it and closes that subflow, whose data MPTCP sends again on
//! the paths that are left.

use crate::diag::{Diag, DiagError};
use crate::error::ControlError;
use crate::load::Loaded;
use crate::netns;
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use serde::Serialize;
use std::cell::RefCell;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Bytes of `struct mp_close_event`.
const EVENT_BYTES: usize = 48;

/// An algorithm's wish to close a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CloseRequest {
    /// Token of the MPTCP connection.
    pub token: u32,
    /// Inode number of the network namespace the connection lives in.
    pub netns: u32,
    /// Local end of the subflow to close.
    pub local: SocketAddr,
    /// Its remote end.
    pub remote: SocketAddr,
    /// Its slot in the connection's table.
    pub slot: u8,
    /// Slot of the path that is kept.
    pub peer: u8,
}

impl CloseRequest {
    /// Reads `struct mp_close_event`; `None` if the family is unknown or bytes are missing.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..EVENT_BYTES)?;
        let word = |i: usize| u32::from_ne_bytes(bytes[i..i + 4].try_into().expect("four bytes"));
        let half = |i: usize| u16::from_ne_bytes(bytes[i..i + 2].try_into().expect("two bytes"));
        let address = |i: usize| -> Option<IpAddr> {
            let raw: [u8; 16] = bytes[i..i + 16].try_into().expect("sixteen bytes");
            match i32::from(half(8)) {
                nix::libc::AF_INET => Some(Ipv4Addr::new(raw[0], raw[1], raw[2], raw[3]).into()),
                nix::libc::AF_INET6 => Some(Ipv6Addr::from(raw).into()),
                _ => None,
            }
        };
        Some(Self {
            token: word(0),
            netns: word(4),
            local: SocketAddr::new(address(16)?, half(10)),
            remote: SocketAddr::new(address(32)?, half(12)),
            slot: bytes[14],
            peer: bytes[15],
        })
    }

    /// Closes the subflow, in whatever network namespace it lives.
    ///
    /// # Errors
    /// The namespace is not reachable, or the kernel refuses. A subflow that is gone already is not an error.
    pub fn close(&self) -> Result<(), ControlError> {
        let destroy = || match Diag::open().and_then(|mut diag| diag.destroy(self.local, self.remote)) {
            Err(DiagError::NotFound { .. }) => Ok(()),
            other => other.map_err(|e| ControlError::kernel("close a path that shares a bottleneck", e)),
        };
        if inode(Path::new("/proc/thread-self/ns/net")) == Some(self.netns) {
            return destroy();
        }
        let file = find_netns(self.netns).ok_or_else(|| {
            let action = format!("close the subflow {} -> {}", self.local, self.remote);
            ControlError::kernel(action, format!("network namespace {} is not reachable", self.netns))
        })?;
        netns::within(netns::open(&file)?.as_fd(), destroy)?
    }
}

/// Reads what one algorithm asks to close.
pub struct Guard {
    ring: RingBuffer<'static>,
    found: Rc<RefCell<Vec<CloseRequest>>>,
    /// The ring buffer reads through it.
    _map: MapHandle,
}

impl Guard {
    /// A guard for a loaded algorithm; `None` if it never closes paths.
    ///
    /// # Errors
    /// The ring buffer cannot be opened.
    pub fn new(loaded: &Loaded) -> Result<Option<Self>, ControlError> {
        let Some(map) = loaded.events_map() else { return Ok(None) };
        let failed = |e| ControlError::kernel(format!("read events of {}", loaded.kernel_name()), e);
        let map = MapHandle::try_from(map).map_err(failed)?;
        let found = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&found);
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            sink.borrow_mut().extend(CloseRequest::decode(bytes));
            0
        };
        builder.add(&map, take).map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        Ok(Some(Self { ring, found, _map: map }))
    }

    /// Waits up to `timeout` for requests; an empty answer means that none came.
    ///
    /// # Errors
    /// The ring buffer cannot be read.
    pub fn requests(&self, timeout: Duration) -> Result<Vec<CloseRequest>, ControlError> {
        match self.ring.poll(timeout) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::Interrupted => {
                Err(ControlError::kernel("wait for requests to close paths", e))
            }
            _ => Ok(self.found.take()),
        }
    }

    /// Waits up to `timeout` and closes what was asked for; answers what was closed.
    ///
    /// # Errors
    /// A subflow cannot be closed; later requests of the same batch are closed nevertheless.
    pub fn step(&self, timeout: Duration) -> Result<Vec<CloseRequest>, ControlError> {
        let requests = self.requests(timeout)?;
        let failures: Vec<ControlError> = requests.iter().filter_map(|r| r.close().err()).collect();
        failures.into_iter().next().map_or(Ok(requests), Err)
    }
}

fn inode(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().and_then(|m| u32::try_from(m.ino()).ok())
}

/// A file through which namespace `wanted` can be entered: a named one, or that of a process in it.
fn find_netns(wanted: u32) -> Option<PathBuf> {
    let entries = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let named = entries("/run/netns").find(|path| inode(path) == Some(wanted));
    named.or_else(|| entries("/proc").map(|p| p.join("ns/net")).find(|path| inode(path) == Some(wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_and_garbage_is_refused() {
        let mut bytes = [0_u8; EVENT_BYTES];
        bytes[0..4].copy_from_slice(&7_u32.to_ne_bytes());
        bytes[4..8].copy_from_slice(&9_u32.to_ne_bytes());
        bytes[8..10].copy_from_slice(&2_u16.to_ne_bytes());
        bytes[10..12].copy_from_slice(&1000_u16.to_ne_bytes());
        bytes[12..14].copy_from_slice(&2000_u16.to_ne_bytes());
        (bytes[14], bytes[15]) = (1, 2);
        bytes[16..20].copy_from_slice(&[10, 0, 0, 1]);
        bytes[32..36].copy_from_slice(&[10, 0, 0, 2]);
        let expected = CloseRequest {
            token: 7,
            netns: 9,
            local: "10.0.0.1:1000".parse().unwrap(),
            remote: "10.0.0.2:2000".parse().unwrap(),
            slot: 1,
            peer: 2,
        };
        assert_eq!(CloseRequest::decode(&bytes), Some(expected));
        assert_eq!(CloseRequest::decode(&bytes[..40]), None);
        bytes[8] = 99;
        assert_eq!(CloseRequest::decode(&bytes), None);
    }

    #[test]
    fn the_own_namespace_is_found() {
        let own = inode(Path::new("/proc/thread-self/ns/net")).unwrap();
        assert!(find_netns(own).is_some());
        assert_eq!(find_netns(1), None);
    }
}
