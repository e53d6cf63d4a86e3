//! Proportional rate reduction (RFC 9937, which supersedes RFC 6937), as Linux computes it.
//!
//! Modelled: the proportional part above ssthresh, slow-start reduction bound on safe ACKs and conservative
//! bound otherwise, the forced first retransmission.
//! Deviation: like Linux, the divisor is the window before the reduction, not `snd_nxt - snd_una`; they are
//! equal when the window was full.

/// State of one reduction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prr {
    /// Window before the reduction, at least 1 (`RecoverFS`).
    pub recover_pkt: u32,
    /// Packets delivered since (`prr_delivered`).
    pub delivered: u32,
    /// Packets sent since (`prr_out`).
    pub out: u32,
}

impl Prr {
    /// A reduction begins at this window.
    pub fn start(cwnd_pkt: u32) -> Prr {
        Prr { recover_pkt: cwnd_pkt.max(1), delivered: 0, out: 0 }
    }

    /// Number of packets that this ACK allows to send. `delivered` is the number that it newly delivered. `safe` means that it
    /// advanced the cumulative acknowledgment without revealing a loss.
    pub fn on_ack(&mut self, pipe: u32, ssthresh: u32, delivered: u32, safe: bool) -> u32 {
        self.delivered += delivered;
        let send = if pipe > ssthresh {
            let target =
                (u64::from(self.delivered) * u64::from(ssthresh)).div_ceil(u64::from(self.recover_pkt));
            (target as u32).saturating_sub(self.out)
        } else {
            let limit = self.delivered.saturating_sub(self.out).max(delivered) + u32::from(safe);
            limit.min(ssthresh - pipe)
        };
        send.max(u32::from(self.out == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduction_is_proportional_to_delivered_packets() {
        let mut prr = Prr { recover_pkt: 10, delivered: 0, out: 0 };
        assert_eq!(prr.on_ack(8, 5, 2, false), 1);
    }

    #[test]
    fn halving_sends_one_per_two_delivered() {
        let mut prr = Prr::start(20);
        let mut pipe = 19;
        let mut sent = 0;
        for _ in 0..10 {
            let n = prr.on_ack(pipe, 10, 1, false);
            prr.out += n;
            sent += n;
            pipe = pipe + n - 1;
        }
        assert_eq!(sent, 5);
    }

    #[test]
    fn below_ssthresh_a_safe_ack_earns_one_more() {
        let mut prr = Prr { recover_pkt: 20, delivered: 5, out: 5 };
        assert_eq!(prr.on_ack(4, 10, 1, false), 1);
        let mut prr = Prr { recover_pkt: 20, delivered: 5, out: 5 };
        assert_eq!(prr.on_ack(4, 10, 1, true), 2);
        let mut prr = Prr { recover_pkt: 20, delivered: 30, out: 5 };
        assert_eq!(prr.on_ack(9, 10, 1, true), 1, "never above ssthresh");
    }

    #[test]
    fn first_retransmission_is_forced() {
        let mut prr = Prr::start(10);
        assert_eq!(prr.on_ack(9, 5, 0, false), 1);
    }
}
