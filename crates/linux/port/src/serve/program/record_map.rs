//! Record of a port in the kernel: a map that belongs to the port's program, lives as long as that, and
//! goes with it. If the file is lost, the port itself still says what is ours on it.

use crate::serve::error::PortError;
use crate::serve::record::Content;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use vmcc_bpf::ControlError;

pub(super) const NAME: &str = "port_record";
/// A configuration with everything that a port can have takes some kilobytes.
const BYTES: usize = 64 << 10;
const KEY: [u8; 4] = [0; 4];

/// The record of a port, on its program.
#[derive(Debug)]
pub(crate) struct RecordMap(pub(super) MapHandle);

impl RecordMap {
    /// Makes an empty one for a program.
    pub(super) fn bind(program: BorrowedFd<'_>) -> Result<Self, PortError> {
        let failed = |e: String| ControlError::kernel("note at a port's program what serves it", e);
        let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as u64,
            ..Default::default()
        };
        let map = MapHandle::create(MapType::Array, Some(NAME), KEY.len() as u32, BYTES as u32, 1, &options);
        let map = map.map_err(|e| failed(e.to_string()))?;
        // SAFETY: both descriptors are borrowed and open; no options.
        let bound = unsafe {
            libbpf_rs::libbpf_sys::bpf_prog_bind_map(
                program.as_raw_fd(),
                map.as_fd().as_raw_fd(),
                ptr::null(),
            )
        };
        if bound != 0 {
            return Err(failed(io::Error::last_os_error().to_string()).into());
        }
        Ok(Self(map))
    }

    /// Nothing if it was never written, or somebody is writing.
    pub(crate) fn read(&self) -> Option<Content> {
        let bytes = self.0.lookup(&KEY, MapFlags::ANY).ok()??;
        // JSON has no zero bytes.
        let length = bytes.iter().position(|byte| *byte == 0)?;
        serde_json::from_slice(&bytes[..length]).ok()
    }

    pub(crate) fn write(&self, content: &Content) -> Result<(), PortError> {
        let failed = |e: String| ControlError::kernel("note at a port's program what serves it", e);
        let mut bytes = serde_json::to_vec(content).map_err(|e| failed(e.to_string()))?;
        if bytes.len() >= BYTES {
            // Names of cgroups can be that long. Nothing is better than what is no longer true.
            bytes.clear();
        }
        bytes.resize(BYTES, 0);
        Ok(self.0.update(&KEY, &bytes, MapFlags::ANY).map_err(|e| failed(e.to_string()))?)
    }
}
