//! Watches windows from outside, under any congestion control: what tests and comparisons measure by.
//!
//! The records come from the kernel's own tracepoints, not from the algorithms' programs, so that both sides of a
//! comparison (ours, and the kernel's modules) are seen by the same instrument.

use crate::error::ControlError;
use crate::objects::{self, Log};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ObjectBuilder, RingBufferBuilder};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const CONFIG_MAP: &str = ".data.observe";
const RECORDS_MAP: &str = "observe_records";
// struct observe_config and struct observe_record of kernel/observe_shared.h.
const CONFIG_BYTES: usize = 8;
const LOST_AT: usize = 4;
const RECORD_BYTES: usize = 64;

/// A socket's window at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Tells sockets apart.
    pub socket: u64,
    /// The recovery state that is being entered, or in which a segment has arrived (`TCP_CA_...`).
    pub state: u32,
    /// Whether the state is being entered; the answer to a reduction shows at the next segment.
    pub entered: bool,
    /// Port of the peer.
    pub remote_port: u16,
    /// Own port.
    pub local_port: u16,
    /// Congestion window in packets.
    pub cwnd_pkt: u32,
    /// The window from which the last reduction started.
    pub prior_cwnd_pkt: u32,
    /// Slow-start threshold in packets.
    pub ssthresh_pkt: u32,
    /// Packets believed lost.
    pub lost_pkt: u32,
    /// The beginning of what the algorithm keeps in the socket.
    pub private: [u64; 3],
}

/// Watches the sockets of one network namespace until it is dropped.
pub struct Observer {
    _links: Vec<Link>,
    _object: libbpf_rs::Object,
    records: MapHandle,
    config: MapHandle,
}

impl Observer {
    /// Watches the namespace whose file this is (`/run/netns/NAME`, `/proc/self/ns/net`).
    ///
    /// # Errors
    /// Not permitted, or the kernel lacks the tracepoints (`tcp_probe`, `tcp_cong_state_set`).
    pub fn start(namespace: &Path) -> Result<Self, ControlError> {
        let failed = |e: String| ControlError::kernel("watch congestion windows", e);
        let metadata =
            std::fs::metadata(namespace).map_err(|e| failed(format!("{}: {e}", namespace.display())))?;
        let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
        let inode = u32::try_from(inode).map_err(|e| failed(e.to_string()))?;
        let log = Log::start();
        Self::load(inode).map_err(|e| failed(format!("{e}: {}", log.tail(6))))
    }

    fn load(netns: u32) -> libbpf_rs::Result<Self> {
        let mut open = ObjectBuilder::default().name("vmcc_observe")?.open_memory(objects::OBSERVE)?;
        let mut initial = [0; CONFIG_BYTES];
        initial[..LOST_AT].copy_from_slice(&netns.to_ne_bytes());
        for mut map in open.maps_mut().filter(|map| map.name() == CONFIG_MAP) {
            map.set_initial_value(&initial)?;
        }
        let object = open.load()?;
        let links = object.progs_mut().map(|program| program.attach()).collect::<Result<_, _>>()?;
        let find = |name: &str| {
            let map = object.maps().find(|map| map.name() == name).expect("the object defines it");
            MapHandle::try_from(&map)
        };
        Ok(Self { records: find(RECORDS_MAP)?, config: find(CONFIG_MAP)?, _links: links, _object: object })
    }

    /// Reads for this long.
    ///
    /// # Errors
    /// The kernel refuses, or more was recorded than it keeps.
    pub fn watch(&self, duration: Duration) -> Result<Vec<Record>, ControlError> {
        let failed = |e: libbpf_rs::Error| ControlError::kernel("read congestion windows", e);
        let found = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&found);
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            sink.borrow_mut().extend(decode(bytes));
            0
        };
        builder.add(&self.records, take).map_err(failed)?;
        let buffer = builder.build().map_err(failed)?;
        let end = std::time::Instant::now() + duration;
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            buffer.poll(left.min(Duration::from_millis(100))).map_err(failed)?;
            if left.is_zero() {
                break;
            }
        }
        drop(buffer);
        match self.lost().map_err(failed)? {
            0 => Ok(found.take()),
            lost => Err(ControlError::kernel("read congestion windows", format!("{lost} were not kept"))),
        }
    }

    fn lost(&self) -> libbpf_rs::Result<u32> {
        let bytes = self.config.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)?;
        let word = bytes.as_deref().and_then(|b| b.get(LOST_AT..CONFIG_BYTES)?.try_into().ok());
        Ok(word.map_or(0, u32::from_ne_bytes))
    }
}

fn decode(bytes: &[u8]) -> Option<Record> {
    let bytes: &[u8; RECORD_BYTES] = bytes.try_into().ok()?;
    let half = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"));
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    Some(Record {
        socket: long(0),
        entered: word(8) != 0,
        state: word(12),
        remote_port: half(16),
        local_port: half(18),
        cwnd_pkt: word(20),
        prior_cwnd_pkt: word(24),
        ssthresh_pkt: word(28),
        lost_pkt: word(32),
        private: [long(40), long(48), long(56)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_field_by_field() {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&7_u64.to_ne_bytes());
        for (at, value) in [(8, 1), (12, 2), (20, 40), (24, 41), (28, 20), (32, 3)] {
            bytes[at..at + 4].copy_from_slice(&u32::to_ne_bytes(value));
        }
        bytes[16..18].copy_from_slice(&5201_u16.to_ne_bytes());
        bytes[56..64].copy_from_slice(&9_u64.to_ne_bytes());
        let record = decode(&bytes).unwrap();
        assert!(record.entered && record.socket == 7 && record.state == 2 && record.remote_port == 5201);
        assert_eq!((record.cwnd_pkt, record.prior_cwnd_pkt, record.ssthresh_pkt), (40, 41, 20));
        assert_eq!((record.lost_pkt, record.private), (3, [0, 0, 9]));
        assert_eq!(decode(&bytes[1..]), None);
    }
}
