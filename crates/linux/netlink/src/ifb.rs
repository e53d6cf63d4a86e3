//! Intermediate functional blocks: devices that queue packets on behalf of other ports and hand them back.

use crate::filter::{
    CLSACT_EGRESS, ETH_P_ALL, KIND, MATCH_ALL, RTM_DELTFILTER, RTM_GETTFILTER, RTM_NEWTFILTER, TCA_BPF_ACT,
    TCA_BPF_OPS, TCA_BPF_OPS_LEN,
};
use crate::link::Links;
use crate::options::{inner, nested, word, words};
use crate::tc::{TCA_OPTIONS, Tc, TrafficControl};
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use std::io;

// Numbers from the kernel's user interface: linux/pkt_cls.h, linux/tc_act/tc_mirred.h.
const FIRST_ACTION: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_ACT_KIND: u16 = 1;
const TCA_MIRRED_PARMS: u16 = 2;
const TC_ACT_STOLEN: u32 = 4;
const TCA_EGRESS_REDIR: u32 = 1;
/// Offset of the device in `struct tc_mirred`.
const MIRRED_IFINDEX_AT: usize = 24;

impl Links {
    /// Makes an IFB with one queue and switches it on.
    ///
    /// # Errors
    /// The kernel refuses; `Unsupported` when it has no IFB.
    pub fn add_ifb(&mut self, name: &str, mtu: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        link.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Mtu(mtu),
            LinkAttribute::NumTxQueues(1),
            LinkAttribute::NumRxQueues(1),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)]),
        ];
        self.0.execute(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Says for people what a device is for.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_alias(&mut self, port: u32, alias: &str) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = port;
        link.attributes = vec![LinkAttribute::IfAlias(alias.to_owned())];
        self.0.execute(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Removes a device.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn delete(&mut self, port: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = port;
        self.0.execute(RouteNetlinkMessage::DelLink(link), 0)
    }
}

impl TrafficControl {
    /// From now on every packet that leaves `port` goes through `device` first. The port has clsact. `handle` is found
    /// again with the filter.
    ///
    /// # Errors
    /// The kernel refuses: `NotFound` when it lacks mirred.
    pub fn redirect(&mut self, port: u32, device: u32, priority: u16, handle: u32) -> io::Result<()> {
        // struct tc_mirred: index, capab, action, refcnt, bindcnt, eaction, ifindex.
        let parms = words(&[0, 0, TC_ACT_STOLEN, 0, 0, TCA_EGRESS_REDIR, device]);
        let options = crate::genl::nest(TCA_ACT_OPTIONS, &[DefaultNla::new(TCA_MIRRED_PARMS, parms)]);
        let action = crate::genl::nest(FIRST_ACTION, &[crate::genl::text(TCA_ACT_KIND, "mirred"), options]);
        let inner = [
            DefaultNla::new(TCA_BPF_OPS_LEN, 1_u16.to_ne_bytes().to_vec()),
            DefaultNla::new(TCA_BPF_OPS, MATCH_ALL.to_vec()),
            crate::genl::nest(TCA_BPF_ACT, &[action]),
        ];
        let message = filter(RTM_NEWTFILTER, port, priority, handle).kind(KIND).options(nested(&inner));
        self.0.execute(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// The device that the port's packets go through, by the filter of this priority, and that one's handle. The device
    /// is 0 when it is gone.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn redirected(&mut self, port: u32, priority: u16) -> io::Result<Option<(u32, u32)>> {
        let answers = self.0.dump(Tc::new(RTM_GETTFILTER, port, CLSACT_EGRESS, 0));
        let answers = match answers {
            // There is no clsact.
            Err(e) if matches!(crate::os_code(&e), Some(nix::libc::EINVAL | nix::libc::ENOENT)) => {
                return Ok(None);
            }
            answers => answers?,
        };
        let ours = answers.iter().filter(|a| a.port == port && a.info >> 16 == u32::from(priority));
        Ok(ours.filter_map(|answer| Some((device(answer)?, answer.handle))).next())
    }

    /// Ends [`TrafficControl::redirect`].
    ///
    /// # Errors
    /// The kernel refuses; `NotFound` or `InvalidInput` when there is no such filter.
    pub fn end_redirect(&mut self, port: u32, priority: u16) -> io::Result<()> {
        self.0.execute(filter(RTM_DELTFILTER, port, priority, 0).kind(KIND), 0)
    }
}

fn filter(message_type: u16, port: u32, priority: u16, handle: u32) -> Tc {
    let mut message = Tc::new(message_type, port, CLSACT_EGRESS, handle);
    message.info = u32::from(priority) << 16 | u32::from(ETH_P_ALL.to_be());
    message
}

fn device(answer: &Tc) -> Option<u32> {
    let mut bytes = answer.value(TCA_OPTIONS)?;
    for kind in [TCA_BPF_ACT, FIRST_ACTION, TCA_ACT_OPTIONS, TCA_MIRRED_PARMS] {
        bytes = inner(&bytes, kind)?;
    }
    word(bytes.get(MIRRED_IFINDEX_AT..)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_without_a_device_is_none() {
        for length in 0..40 {
            for byte in [0_u8, 1, 4, 8, 0xff] {
                let answer = Tc::new(RTM_NEWTFILTER, 1, CLSACT_EGRESS, 1).options(vec![byte; length]);
                assert_eq!(device(&answer), None);
            }
        }
    }
}
