//! Reassigns running connections to another congestion control.
//!
//! Changed sockets are marked in a pinned map, so that a later process tells them from those whose program chose the algorithm.

use crate::bpffs;
use crate::cgroup;
use crate::error::ControlError;
use crate::objects::{self, Log};
use crate::shared::algorithm;
use crate::shared::live::Settings;
use crate::states;
use libbpf_rs::{MapCore, MapHandle, Object, ObjectBuilder};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;
use vmcc_system::error_chain;
use zerocopy::IntoBytes;

/// In the BPF file system, beside that of the algorithms.
const FOLDER: &str = "vmcc-live";
const MARKS: &str = "marks";
/// In the program.
const MARKS_MAP: &str = "live_marks";

/// Connections that [`change`] covers, of those with the congestion control that is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    All,
    /// Not those whose program chose it (`TCP_CONGESTION`): those with the default of their namespace, or changed before.
    SpareChosen,
}

/// Tests whether the kernel supports it; the result is cached.
///
/// # Errors
/// The kernel does not; the error holds the cause.
pub fn check_support() -> Result<(), ControlError> {
    static ANSWER: OnceLock<Result<(), String>> = OnceLock::new();
    let answer = ANSWER.get_or_init(|| load("", "", Scope::All, None).map(drop));
    answer.clone().map_err(failed)
}

/// Gives the connections of the calling thread's network namespace that have the congestion control `from` the one `to`;
/// how many have it now. The state of an algorithm restarts.
///
/// # Errors
/// The kernel cannot.
pub fn change(from: &str, to: &str, scope: Scope) -> Result<usize, ControlError> {
    let marks = bpffs::in_folder(FOLDER, false, pinned)?;
    let object = load(from, to, scope, marks.as_ref()).map_err(failed)?;
    if marks.is_none() {
        pin(&object)?;
    }
    let link = object.progs_mut().next().expect("the object has one").attach().map_err(failed)?;
    let mut file = states::iterate(link.as_fd()).map_err(failed)?;
    let mut changed = Vec::new();
    loop {
        match file.read_to_end(&mut changed) {
            Ok(_) => return Ok(changed.len()),
            // It has passed a million of others.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Removes the marks, once nothing is to be changed back.
///
/// # Errors
/// The BPF file system cannot be changed.
pub fn forget() -> Result<(), ControlError> {
    bpffs::in_folder(FOLDER, false, |folder| {
        cgroup::remove(&folder.join(MARKS))?;
        cgroup::remove_empty(folder)
    })
}

fn pinned(folder: &Path) -> io::Result<Option<MapHandle>> {
    match MapHandle::from_pinned_path(folder.join(MARKS)) {
        Err(e) if e.kind() == libbpf_rs::ErrorKind::NotFound => Ok(None),
        marks => marks.map(Some).map_err(other),
    }
}

fn pin(object: &Object) -> Result<(), ControlError> {
    let marks = object.maps().find(|map| map.name() == MARKS_MAP).expect("the object has it");
    let mut marks = MapHandle::try_from(&marks).map_err(failed)?;
    bpffs::in_folder(FOLDER, true, |folder| marks.pin(folder.join(MARKS)).map_err(other))
}

fn other(error: libbpf_rs::Error) -> io::Error {
    io::Error::other(error_chain(&error))
}

fn load(from: &str, to: &str, scope: Scope, marks: Option<&MapHandle>) -> Result<Object, String> {
    let log = Log::start();
    let spare_chosen = u32::from(scope == Scope::SpareChosen);
    let settings = Settings { from: algorithm::name(from), to: algorithm::name(to), spare_chosen };
    let loaded = || -> libbpf_rs::Result<Object> {
        let mut open = ObjectBuilder::default().name("vmcc_live")?.open_memory(objects::LIVE)?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                map.set_initial_value(settings.as_bytes())?;
            } else if let Some(marks) = marks.filter(|_| map.name() == MARKS_MAP) {
                map.reuse_fd(marks.as_fd())?;
            }
        }
        open.load()
    };
    loaded().map_err(|e| format!("{}: {}", error_chain(&e), log.tail(4)))
}

fn failed(cause: impl std::fmt::Display) -> ControlError {
    ControlError::kernel("change the congestion control of connections that run", cause)
}
