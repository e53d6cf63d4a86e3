//! A port as the kernel has it: its number, its size, the queue that was there before ours.

use super::error::PortError;
use super::frame::Frame;
use super::wait::{self, Waited};
use crate::PortConfig;
use crate::plan::{LinkFacts, Plan};
use serde::{Deserialize, Serialize};
use std::io;
use vmcc_bpf::shared::port::PORT_ROOT_MAJOR;
use vmcc_netlink::{Links, QueueInfo, ROOT, TrafficControl, os_code};
use vmcc_units::{BitsPerSec, Bytes};

/// Queues that take their settings back as they give them, and have nothing below them that could be lost.
const RESTORABLE: [&str; 6] = ["pfifo", "bfifo", "tbf", "fq_codel", "fq", "pfifo_fast"];
/// A root with a queue below it for each of the device's own.
const MANY_QUEUES: &str = "mq";
/// The handle of our root queues.
pub(crate) const OUR_HANDLE: u32 = PORT_ROOT_MAJOR << 16;
/// The place for filters of both directions.
const CLSACT: &str = "clsact";
/// The handle of clsact and ingress, which are not in the way.
const INGRESS: u32 = 0xffff_0000;

/// Name prefix of the devices of shared rates; a number follows.
const PREFIX: &str = "vmccb";

/// A root queue that can be put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Previous {
    kind: String,
    handle: u32,
    options: Vec<u8>,
    /// Absent in records of earlier versions.
    #[serde(default)]
    stab: Vec<u8>,
}

/// One port, in the network namespace of the thread that opened it.
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) ethernet: bool,
    /// Link-layer type, `ARPHRD_...`.
    link_layer: u16,
    /// The driver, if it is only software.
    kind: Option<String>,
    pub(crate) facts: LinkFacts,
    pub(crate) tc: TrafficControl,
    /// Root queue that [`Device::restore`] puts back; `None`: the kernel's default.
    pub(crate) previous: Option<Previous>,
    /// True if clsact was added with ours, so that it is removed with ours.
    pub(crate) made_clsact: bool,
}

impl Device {
    pub(crate) fn open(port: &str) -> Result<Self, PortError> {
        let failed = |e| PortError::kernel(port, "open a netlink socket", e);
        let mut links = Links::open().map_err(failed)?;
        let found = links.find(port).map_err(|e| PortError::kernel(port, "list ports", e))?;
        let link = found.ok_or_else(|| PortError::NoSuchPort { port: port.to_owned() })?;
        let tc = TrafficControl::open().map_err(failed)?;
        // A kernel that does not tell leaves a check out, no more.
        let speed = if link.on_bus { vmcc_netlink::link_speed(&link.name).ok().flatten() } else { None };
        let facts = LinkFacts { mtu: Bytes::new(link.mtu.into()), speed: speed.map(BitsPerSec::new) };
        Ok(Self {
            name: link.name,
            index: link.index,
            ethernet: link.ethernet,
            link_layer: link.link_layer,
            kind: link.kind,
            facts,
            tc,
            previous: None,
            made_clsact: false,
        })
    }

    /// Resolves a configuration for this port.
    pub(crate) fn plan(&self, config: &PortConfig) -> Result<Plan, PortError> {
        let refused = |error| PortError::Config { port: self.name.clone(), error: Box::new(error) };
        config.plan(&self.facts).map_err(refused)
    }

    /// Link-layer framing of its packets; refused if the program could not read them.
    pub(crate) fn frame(&self) -> Result<Frame, PortError> {
        let unknown = || PortError::LinkLayer { port: self.name.clone(), number: self.link_layer };
        Frame::of(self.link_layer).ok_or_else(unknown)
    }

    /// True if it is a tap or tun with several queues, whose driver assigns packets to queues by its own rules.
    pub(crate) fn picks_queues(&mut self) -> Result<bool, PortError> {
        let tun = self.kind.as_deref() == Some("tun");
        Ok(tun && self.root()?.is_some_and(|root| root.kind == MANY_QUEUES))
    }

    /// The queue at the root, if somebody or something has put one there.
    pub(crate) fn root(&mut self) -> Result<Option<QueueInfo>, PortError> {
        let root = self.tc.root(self.index);
        root.map_err(|e| PortError::kernel(&self.name, "read its queues", e))
    }

    /// Waits until the root queue is empty, for this many milliseconds at most.
    pub(crate) fn wait_until_empty(&mut self, steps: u32) -> Result<Waited, PortError> {
        wait::until(steps, || Ok(self.root()?.is_none_or(|root| root.counters.backlog_pkt == 0)))
    }

    fn queues(&mut self) -> Result<Vec<QueueInfo>, PortError> {
        let queues = self.tc.queues(self.index);
        queues.map_err(|e| PortError::kernel(&self.name, "read its queues", e))
    }

    /// Remembers whether clsact is there already, or refuses where something else has its place.
    pub(crate) fn remember_clsact(&mut self) -> Result<(), PortError> {
        let found = self.tc.place_of_filters(self.index);
        let found = found.map_err(|e| PortError::kernel(&self.name, "read its queues", e))?;
        if found.as_ref().is_some_and(|kind| kind != CLSACT) {
            return Err(PortError::Ingress { port: self.name.clone() });
        }
        self.made_clsact = found.is_none();
        Ok(())
    }

    /// Removes clsact if it came with us and nobody else's filter sits there. A port that is gone is fine.
    pub(crate) fn restore_clsact(&mut self) -> Result<(), PortError> {
        if !self.made_clsact {
            return Ok(());
        }
        let removed = match self.tc.has_filters(self.index) {
            Ok(true) => Ok(()),
            Ok(false) => self.tc.delete_clsact(self.index),
            Err(e) => Err(e),
        };
        gone_is_fine(removed).map_err(|e| PortError::kernel(&self.name, "remove its clsact", e))
    }

    /// Root queue in place of ours, and the consequence, as a message.
    pub(crate) fn other_root(&mut self) -> Result<String, PortError> {
        let found = match self.root()? {
            Some(root) if root.handle != 0 => {
                format!("the root queue is {} {:x}:", root.kind, root.handle >> 16)
            }
            Some(root) => format!("the root queue is the kernel's own ({})", root.kind),
            None => "there is no root queue".to_owned(),
        };
        Ok(format!(
            "its queues are gone, {found}: nothing caps or schedules what leaves, and nothing is marked"
        ))
    }

    /// True if the root queue is one of ours.
    pub(crate) fn has_our_queues(&mut self) -> Result<bool, PortError> {
        Ok(self.root()?.is_some_and(|root| root.handle == OUR_HANDLE))
    }

    /// Remembers the root queue, or refuses when it could not be put back.
    pub(crate) fn remember(&mut self) -> Result<(), PortError> {
        let queues = self.queues()?;
        let Some(root) = queues.iter().find(|queue| queue.parent == ROOT) else { return Ok(()) };
        if root.handle == 0 {
            // The kernel's own choice comes back by itself.
            return Ok(());
        }
        let tree = queues.iter().any(|q| q.parent != ROOT && q.parent & INGRESS != INGRESS && q.handle != 0);
        let table = if root.has_size_table() { " with a table of sizes (`stab`)" } else { "" };
        if tree || !table.is_empty() || !RESTORABLE.contains(&root.kind.as_str()) {
            return Err(PortError::ForeignQueue {
                port: self.name.clone(),
                queue: format!("{} {:x}:{table}", root.kind, root.handle >> 16),
            });
        }
        let QueueInfo { kind, handle, options, stab, .. } = root.clone();
        self.previous = Some(Previous { kind, handle, options, stab });
        Ok(())
    }

    /// Puts the remembered root queue in the place of ours. A port that is gone is fine.
    pub(crate) fn restore(&mut self) -> Result<(), PortError> {
        let deleted = self.tc.delete_root(self.index);
        gone_is_fine(deleted).map_err(|e| PortError::kernel(&self.name, "remove its queues", e))?;
        self.restore_missing()
    }

    /// Puts the remembered root queue back where none has been put: ours was removed, perhaps by a process that died
    /// before it came this far. Another one that somebody put there stays.
    pub(crate) fn restore_missing(&mut self) -> Result<(), PortError> {
        if self.root()?.is_none_or(|root| root.handle != 0) {
            return Ok(());
        }
        let Some(Previous { kind, handle, options, stab }) = self.previous.clone() else { return Ok(()) };
        let restored = self.tc.add_root(
            self.index,
            &QueueInfo { kind: kind.clone(), handle, options, stab, ..QueueInfo::default() },
        );
        gone_is_fine(restored)
            .map_err(|e| PortError::kernel(&self.name, format!("put back its {kind} queue"), e))
    }
}

pub(crate) fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if matches!(os_code(&e), Some(nix::libc::ENOENT | nix::libc::ENODEV | nix::libc::EINVAL)) => {
            Ok(())
        }
        other => other,
    }
}

/// True if a port is the device of a shared rate, which is no port to its users.
pub(crate) fn is_shared_device(name: &str) -> bool {
    let number = name.strip_prefix(PREFIX);
    number.is_some_and(|number| number.len() == 8 && number.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// The device of a VM's shared rate: names of VMs are longer than those of devices may be.
pub(crate) fn shared_device(vm: &str) -> String {
    // FNV-1a.
    let hash =
        vm.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{PREFIX}{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_name_identifies_its_vm() {
        let long = shared_device("a-name-of-31-characters-is-long");
        assert!(long.len() <= 15 && is_shared_device(&long), "{long}");
        assert_ne!(shared_device("db1"), shared_device("db2"));
        for other in ["vmccb", "vmccb1234567", "vmccb1234567g", "vmccbridge0", "eth0"] {
            assert!(!is_shared_device(other), "{other}");
        }
    }
}
