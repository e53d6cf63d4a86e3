//! What later kernels append to `struct tcp_info`, behind the part that the netlink library reads.

use super::subflow::attributes;
use netlink_packet_sock_diag::inet::nlas::TcpInfoBuffer;

/// From <linux/inet_diag.h>: the attribute that carries `struct tcp_info`, of MPTCP's sockets `struct mptcp_info`.
pub(super) const INET_DIAG_INFO: u16 = 2;
/// `struct inet_diag_msg`, which the attributes follow: 4 bytes, the socket's identity (48), five words.
pub(super) const INET_DIAG_MSG_BYTES: usize = 4 + 48 + 5 * 4;

/// Counters that not every kernel has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Later {
    /// Retransmission timeouts (Linux 6.7).
    pub(super) timeouts: Option<u32>,
    /// Packets that arrived with congestion experienced (Linux 6.18).
    pub(super) received_ce_pkt: Option<u32>,
}

impl Later {
    /// Reads an answer to a listing.
    pub(super) fn of_answer(payload: &[u8]) -> Self {
        let nest = payload.get(INET_DIAG_MSG_BYTES..).unwrap_or_default();
        let info = attributes(nest).find(|(kind, _)| *kind == INET_DIAG_INFO);
        info.and_then(|(_, info)| info.get(size_of::<TcpInfoBuffer>()..))
            .map_or_else(Self::default, Self::read)
    }

    /// The fields in the order of <linux/tcp.h>, after `tcpi_snd_wnd`.
    fn read(mut rest: &[u8]) -> Self {
        let mut word = || {
            let (word, behind) = rest.split_first_chunk::<4>()?;
            rest = behind;
            Some(*word)
        };
        let _receive_window = word();
        let _rehash = word();
        // Two halves: timeouts, and the recoveries that they began.
        let timeouts = word().map(|[low, high, ..]| u32::from(u16::from_ne_bytes([low, high])));
        let _time_in_timeouts = word();
        let received_ce_pkt = word().map(u32::from_ne_bytes);
        Self { timeouts, received_ce_pkt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_a_kernel_does_not_have_are_absent() {
        let words: Vec<u8> = [7_u32, 8].into_iter().flat_map(u32::to_ne_bytes).collect();
        let mut info = words.clone();
        assert_eq!(Later::read(&info), Later::default(), "6.1");
        info.extend([3_u16, 2].into_iter().flat_map(u16::to_ne_bytes));
        info.extend(9_u32.to_ne_bytes());
        assert_eq!(Later::read(&info), Later { timeouts: Some(3), received_ce_pkt: None }, "6.12");
        info.extend([11_u32, 12].into_iter().flat_map(u32::to_ne_bytes));
        assert_eq!(Later::read(&info), Later { timeouts: Some(3), received_ce_pkt: Some(11) }, "6.18");
        assert_eq!(Later::of_answer(&info), Later::default(), "no answer at all");
    }
}
