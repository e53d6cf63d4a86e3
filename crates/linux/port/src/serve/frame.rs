//! Link-layer framing of a port's packets.

/// Position of the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Behind an Ethernet header.
    Ethernet,
    /// At the beginning: a tunnel, or a device of layer 3.
    Bare,
}

impl Frame {
    /// Of a device whose packets begin with this (`ARPHRD_...` of linux/if_arp.h); `None` if nobody here can read it.
    pub(crate) fn of(link_layer: u16) -> Option<Self> {
        match link_layer {
            // Ethernet and loopback, whose header is the same.
            1 | 772 => Some(Self::Ethernet),
            // PPP (its header is made below the queue), raw IP, IPIP, IPv6 in IPv6, SIT, GRE over IPv4 and IPv6, and
            // none at all: tun, WireGuard.
            512 | 519 | 768 | 769 | 776 | 778 | 823 | 0xfffe => Some(Self::Bare),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unparsable_frames_are_refused() {
        assert_eq!(Frame::of(1), Some(Frame::Ethernet));
        assert_eq!(Frame::of(0xfffe), Some(Frame::Bare));
        // InfiniBand, IEEE 802.11 with radiotap headers, CAN, netlink.
        for unknown in [32, 803, 280, 824] {
            assert_eq!(Frame::of(unknown), None, "{unknown}");
        }
    }
}
