//! Receiving in a kernel thread instead of in a softirq (threaded NAPI, Linux 5.12 and newer).

use crate::{Links, ethtool};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::{fs, io, thread};

const SYSFS: &str = "/sys";

impl Links {
    /// Makes `port`, one end of a veth pair that is switched on, handle what it receives in a kernel thread of its own.
    /// Packets keep the wire's size: a veth receives through NAPI when it may merge packets, but here none may grow by that.
    ///
    /// The port is looked up by its name and number in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel refuses, has no such setting (`Unsupported`, `NotFound`), or does not let the caller mount sysfs.
    pub fn receive_in_thread(&mut self, index: u32, port: &str) -> io::Result<()> {
        self.merge_none(index)?;
        ethtool::enable_receive_merging(port)?;
        let port = port.to_owned();
        let outcome = thread::spawn(move || ask_for_thread(&port));
        outcome.join().unwrap_or_else(|_| Err(io::Error::other("the thread that mounts sysfs died")))
    }
}

/// The ports of a network namespace are seen in a sysfs that was mounted from there; this one is for the calling thread's
/// eyes alone, and goes with it.
fn ask_for_thread(port: &str) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(Some("sysfs"), SYSFS, Some("sysfs"), MsFlags::empty(), none)?;
    fs::write(format!("{SYSFS}/class/net/{port}/threaded"), "1")
}
