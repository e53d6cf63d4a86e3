//! Fields that later kernels append to `struct tcp_info`, behind the part that the netlink library reads.

use super::attributes::attributes;
use netlink_packet_sock_diag::inet::nlas::TcpInfoBuffer;

/// From <linux/inet_diag.h>: the attribute that carries `struct tcp_info`, of MPTCP's sockets `struct mptcp_info`.
pub(super) const INET_DIAG_INFO: u16 = 2;
/// `struct inet_diag_msg`, which the attributes follow: 4 bytes, the socket's identity (48), five words.
pub(super) const INET_DIAG_MSG_BYTES: usize = 4 + 48 + 5 * 4;

/// From <linux/tcp.h>: the lowest bits of the last word.
const TCPI_ECN_MODE_MASK: u32 = 3;
const TCPI_ECN_MODE_ACCECN: u32 = 2;

/// Fields that not every kernel has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TcpInfoTail {
    /// Retransmission timeouts (Linux 6.7).
    pub(super) timeouts: Option<u32>,
    /// Packets that arrived with congestion experienced (Linux 6.18).
    pub(super) received_ce_pkt: Option<u32>,
    /// AccECN was negotiated (`tcpi_ecn_mode`, Linux 7.0). Linux 6.18 has its count of failures there, which stays zero
    /// as it cannot negotiate AccECN.
    pub(super) accecn: bool,
}

impl TcpInfoTail {
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
        // Bytes delivered and received, by ECN field.
        let mode = (0..6).try_for_each(|_| word().map(drop)).and_then(|()| word()).map(u32::from_ne_bytes);
        let accecn = mode.is_some_and(|mode| mode & TCPI_ECN_MODE_MASK == TCPI_ECN_MODE_ACCECN);
        Self { timeouts, received_ce_pkt, accecn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_missing_from_a_kernel_are_absent() {
        let words: Vec<u8> = [7_u32, 8].into_iter().flat_map(u32::to_ne_bytes).collect();
        let mut info = words.clone();
        assert_eq!(TcpInfoTail::read(&info), TcpInfoTail::default(), "6.1");
        info.extend([3_u16, 2].into_iter().flat_map(u16::to_ne_bytes));
        info.extend(9_u32.to_ne_bytes());
        assert_eq!(
            TcpInfoTail::read(&info),
            TcpInfoTail { timeouts: Some(3), ..TcpInfoTail::default() },
            "6.12"
        );
        info.extend([11_u32, 12].into_iter().flat_map(u32::to_ne_bytes));
        let counted = TcpInfoTail { timeouts: Some(3), received_ce_pkt: Some(11), accecn: false };
        assert_eq!(TcpInfoTail::read(&info), counted, "6.18");
        // The first of six counters is there already.
        info.extend([u32::MAX; 5].into_iter().flat_map(u32::to_ne_bytes));
        for (mode, accecn) in [(0, false), (1, false), (2, true), (3, false), (0xffff_fffe, true)] {
            let info = [info.clone(), u32::to_ne_bytes(mode).to_vec()].concat();
            assert_eq!(TcpInfoTail::read(&info), TcpInfoTail { accecn, ..counted }, "7.0, mode {mode}");
            assert_eq!(TcpInfoTail::read(&info[..info.len() - 1]), counted, "cut short");
        }
        assert_eq!(TcpInfoTail::of_answer(&info), TcpInfoTail::default(), "no answer at all");
    }
}
