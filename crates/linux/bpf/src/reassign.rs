//! Reassigns running connections to another congestion control.

use crate::error::ControlError;
use crate::objects::{self, Log};
use crate::shared::algorithm;
use crate::shared::live::Settings;
use crate::states;
use libbpf_rs::{Link, ObjectBuilder};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use vmcc_system::error_chain;
use zerocopy::IntoBytes;

/// Tests whether the kernel supports it; the result is cached.
///
/// # Errors
/// The kernel does not; the error holds the cause.
pub fn check_support() -> Result<(), ControlError> {
    static ANSWER: OnceLock<Result<(), String>> = OnceLock::new();
    let answer = ANSWER.get_or_init(|| load("", "").map(drop));
    answer.clone().map_err(failed)
}

/// Gives the connections of the calling thread's network namespace that have the congestion control `from` the one `to`;
/// how many have it now. What one keeps of a connection begins anew.
///
/// # Errors
/// The kernel cannot.
pub fn change(from: &str, to: &str) -> Result<usize, ControlError> {
    let link = load(from, to).map_err(failed)?;
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

fn load(from: &str, to: &str) -> Result<Link, String> {
    let log = Log::start();
    let settings = Settings { from: algorithm::name(from), to: algorithm::name(to) };
    let attached = || -> libbpf_rs::Result<Link> {
        let mut open = ObjectBuilder::default().name("vmcc_live")?.open_memory(objects::LIVE)?;
        for mut map in open.maps_mut().filter(|map| map.name().to_string_lossy().ends_with(".rodata")) {
            map.set_initial_value(settings.as_bytes())?;
        }
        let object = open.load()?;
        object.progs_mut().next().expect("the object has one").attach()
    };
    attached().map_err(|e| format!("{}: {}", error_chain(&e), log.tail(4)))
}

fn failed(cause: impl std::fmt::Display) -> ControlError {
    ControlError::kernel("change the congestion control of connections that run", cause)
}
