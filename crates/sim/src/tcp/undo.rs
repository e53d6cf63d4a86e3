//! Taking back a reduction that was in vain: what Linux keeps for it.
//!
//! Modelled: Eifel detection by timestamps (RFC 3522; `tcp_packet_delayed`, in milliseconds as Linux's timestamps are) and
//! by duplicates reported (RFC 3708; `undo_retrans`), for fast recovery and after a timeout; the window of before comes
//! back (`tcp_undo_cwnd_reduction` with Reno's `undo_cwnd`, which the algorithms share). Reductions for ECN stand.

use crate::time::{Span, Time};

/// The beginning of the millisecond.
fn tick(time: Time) -> Time {
    Time::ZERO + Span::from_ms(time.us() / 1000)
}

/// State for undoing the current or latest reduction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Undo {
    /// First segment in flight when the recovery began, until it is taken back (`undo_marker`).
    marker: Option<u32>,
    /// Window and ssthresh before; absent if congestion was echoed (`prior_cwnd`, `prior_ssthresh`).
    before: Option<(u32, u32)>,
    /// Retransmissions that have not been reported as duplicates; absent before the first (`undo_retrans`).
    unreported: Option<u32>,
    /// The millisecond in which the recovery's first retransmission left (`retrans_stamp`).
    first_again: Option<Time>,
}

impl Undo {
    /// A recovery begins with segment `una` in flight, `again_out` retransmissions under way (`tcp_init_undo`).
    pub(crate) fn begin(&mut self, una: u32, again_out: u32, before: Option<(u32, u32)>) {
        self.marker = Some(una);
        self.before = before;
        self.unreported = (again_out > 0).then_some(again_out);
        if again_out == 0 {
            self.first_again = None;
        }
    }

    /// Nothing has been retransmitted since (`retrans_stamp = 0`).
    pub(crate) fn forget_retransmissions(&mut self) {
        self.first_again = None;
    }

    /// Nothing can be taken back any more (`tcp_enter_cwr`).
    pub(crate) fn clear(&mut self) {
        self.marker = None;
    }

    /// A segment is sent again.
    pub(crate) fn retransmitted(&mut self, now: Time) {
        self.first_again.get_or_insert_with(|| tick(now));
        self.unreported = Some(self.unreported.unwrap_or(0) + 1);
    }

    /// The receiver has seen `count` segments up to `end` twice (`tcp_check_dsack`).
    pub(crate) fn duplicates(&mut self, count: u32, end: u32) {
        if let (Some(marker), Some(unreported)) = (self.marker, &mut self.unreported)
            && end > marker
        {
            *unreported = unreported.saturating_sub(count);
        }
    }

    /// True if every retransmission has been a duplicate (`tcp_try_undo_dsack`).
    pub(crate) fn all_duplicates(&self) -> bool {
        self.marker.is_some() && self.unreported == Some(0)
    }

    /// True if an ACK that echoes `echo` answers a segment sent before the first retransmission.
    pub(crate) fn is_delayed(&self, echo: Time) -> bool {
        let before = |first| echo != Time::ZERO && echo < first;
        self.marker.is_some() && self.first_again.is_none_or(before)
    }

    /// Takes it back: window and ssthresh of before, if they may be restored.
    pub(crate) fn take(&mut self) -> Option<(u32, u32)> {
        self.marker = None;
        self.before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::from_ms(n)
    }

    #[test]
    fn echo_before_the_first_retransmission_is_judged_in_milliseconds() {
        let mut undo = Undo::default();
        assert!(!undo.is_delayed(ms(1)), "nothing to take back");
        undo.begin(7, 0, Some((10, 20)));
        assert!(undo.is_delayed(ms(40)), "nothing was sent again");
        undo.retransmitted(ms(30));
        undo.retransmitted(ms(50));
        assert!(undo.is_delayed(ms(29)) && !undo.is_delayed(ms(30)) && !undo.is_delayed(Time::ZERO));
        assert!(!undo.is_delayed(ms(30) + Span::from_us(999)), "within a tick of the clock");
        assert_eq!(undo.take(), Some((10, 20)));
        assert!(!undo.is_delayed(ms(1)));
    }

    #[test]
    fn only_dsacks_of_all_current_retransmissions_undo() {
        let mut undo = Undo::default();
        undo.begin(7, 1, None);
        undo.retransmitted(ms(1));
        undo.duplicates(3, 7);
        assert!(!undo.all_duplicates());
        undo.duplicates(1, 8);
        assert!(!undo.all_duplicates());
        undo.duplicates(1, 9);
        assert!(undo.all_duplicates());
        undo.retransmitted(ms(2));
        assert!(!undo.all_duplicates());
    }
}
