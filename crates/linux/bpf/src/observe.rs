//! Watches windows from outside, under any congestion control: what tests and comparisons measure by.
//!
//! The records come from the kernel's own tracepoints, not from the algorithms' programs, so that both sides of a
//! comparison (ours, and the kernel's modules) are seen by the same instrument.

use crate::error::ControlError;
use crate::objects::{self, Log};
use crate::shared::observe::{Config, RawRecord};
use crate::shared::{self, FIRST};
use libbpf_rs::{Link, MapCore, MapHandle, ObjectBuilder, RingBufferBuilder};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

const CONFIG_MAP: &str = ".data.observe";
const RECORDS_MAP: &str = "observe_records";

/// A socket's window at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Tells sockets apart.
    pub socket: u64,
    /// The recovery state that is being entered, or in which a segment has arrived (`TCP_CA_...`).
    pub state: u32,
    /// True if the state is being entered; the response to a reduction shows at the next segment.
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
    /// Packets declared lost.
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
        let initial = Config { netns, lost: 0 };
        for mut map in open.maps_mut().filter(|map| map.name() == CONFIG_MAP) {
            map.set_initial_value(initial.as_bytes())?;
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
        Ok(shared::read::<Config>(&self.config, FIRST)?.map_or(0, |config| config.lost))
    }
}

fn decode(bytes: &[u8]) -> Option<Record> {
    let raw = RawRecord::read_from_bytes(bytes).ok()?;
    Some(Record {
        socket: raw.socket,
        entered: raw.entered != 0,
        state: raw.state,
        remote_port: raw.remote_port,
        local_port: raw.local_port,
        cwnd_pkt: raw.cwnd_pkt,
        prior_cwnd_pkt: raw.prior_cwnd_pkt,
        ssthresh_pkt: raw.ssthresh_pkt,
        lost_pkt: raw.lost_pkt,
        private: raw.private,
    })
}
