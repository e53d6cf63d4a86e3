//! Processing of an acknowledgment on a subflow, in the order of Linux's `tcp_ack`.

use super::Tx;
use crate::endpoint::Wire;
use crate::packet::{Packet, Sack};
use crate::tcp::config::LossDetection;
use crate::tcp::scoreboard::Delivery;
use crate::tcp::subflow::{Status, Subflow};
use vmcc_cc::{Algorithm, State};

impl<W: Wire> Tx<'_, W> {
    /// An ACK arrived on subflow `r`.
    pub(crate) fn on_ack(&mut self, r: usize, packet: &Packet, sack: &Sack) {
        if packet.has(Packet::SYN) {
            self.on_syn_ack(r, packet);
            return;
        }
        if self.conn.finished {
            return;
        }
        let before = self.conn.una;
        self.conn.acknowledge(packet.data_ack, packet.window);
        if self.subs[r].status == Status::Established {
            self.subflow_ack(r, packet, sack);
        }
        if self.conn.una >= self.conn.end && self.conn.closing {
            self.finish();
            return;
        }
        self.join_others();
        if self.subs[r].status == Status::Established || self.conn.una > before {
            self.push(Some(r));
        }
    }

    fn subflow_ack(&mut self, r: usize, packet: &Packet, sack: &Sack) {
        let now = self.now;
        let sf = &mut self.subs[r];
        let una = sf.board.una();
        let ack = packet.ack;
        if ack > sf.board.nxt() {
            return;
        }
        sf.echo = packet.sent;
        sf.rack.advanced = false;
        let mut got = Delivery::default();
        let acked = ack.saturating_sub(una);
        let clean = sf.board.is_clean() && !packet.has(Packet::SACK);
        if clean {
            if acked > 0 {
                got.delivered = acked;
                got.first_sent = sf.board.segment(una).sent;
                got.last_sent = sf.board.segment(ack - 1).sent;
                sf.rack.advance(now, got.last_sent, ack - 1, false, sf.rtt.min_rtt);
                sf.board.ack_clean(ack);
            }
        } else {
            take_sack(sf, packet, sack, ack, now, &mut got);
        }
        let rtt_us = self.sample_rtt(r, packet, acked, &got);
        let sf = &mut self.subs[r];
        if acked > 0 || sf.board.out() == 0 {
            // New data or a window probe is answered (`tcp_ack` resets `icsk_probes_out`).
            (sf.retries, sf.failed) = (0, false);
        }
        let ece = sf.ecn && packet.has(Packet::ECE);
        if ece {
            sf.counters.ece_acks += 1;
        }
        let mut event = self.event(r, ece);
        event.rtt_us = rtt_us;
        event.acked_pkt = got.delivered;
        self.ask(r, Algorithm::on_ack, &event);
        self.detect_sharing(r, &event);
        if self.subs[r].status != Status::Established {
            return; // the algorithm closed it
        }
        self.subs[r].rearm = acked > 0;
        let state = self.subs[r].state;
        let mut safe = acked > 0;
        if ece || !clean || state != State::Open || self.subs[r].probe_high != 0 {
            got.echo = packet.echo;
            got.prior_una = una;
            safe &= !self.react(r, acked > 0, &got, ece);
        }
        if self.subs[r].is_reducing() {
            self.reduce(r, got.delivered, safe);
        } else if self.subs[r].status == Status::Established && self.may_grow(r, acked, &got) {
            let mut event = self.event(r, ece);
            event.rtt_us = rtt_us;
            event.acked_pkt = got.delivered;
            self.ask(r, Algorithm::on_grow, &event);
        }
    }

    /// Linux's `tcp_may_raise_cwnd` and `tcp_is_cwnd_limited`.
    #[inline]
    fn may_grow(&self, r: usize, acked: u32, got: &Delivery) -> bool {
        let sf = &self.subs[r];
        let progress = if sf.dupthresh > 3 { got.delivered > 0 } else { acked > 0 };
        progress && sf.is_cwnd_limited()
    }

    /// Feeds the estimator and returns the newest segment's round trip in microseconds, 0 without one.
    #[inline]
    fn sample_rtt(&mut self, r: usize, packet: &Packet, acked: u32, got: &Delivery) -> u32 {
        let sf = &mut self.subs[r];
        // Karn's rule; the timestamp tells for retransmitted segments (RFC 7323 section 4).
        let (first, last) = if got.first_sent <= got.last_sent && !got.retransmitted {
            (got.first_sent, got.last_sent)
        } else if acked > 0 && packet.echo.ps() != 0 {
            (packet.echo, packet.echo)
        } else {
            return 0;
        };
        let oldest = self.now.since(first);
        let newest = self.now.since(last);
        sf.rtt.sample_min(self.now, newest);
        sf.rtt.sample(oldest, sf.board.una(), sf.board.nxt(), self.config.rto_min);
        self.rtts.record(self.conn.rtt_group, oldest);
        (newest.us() as u32).max(1)
    }
}

/// Marks what SACK ranges and the cumulative acknowledgment report.
fn take_sack(
    sf: &mut Subflow,
    packet: &Packet,
    sack: &Sack,
    ack: u32,
    now: crate::time::Time,
    got: &mut Delivery,
) {
    let min_rtt = sf.rtt.min_rtt;
    if packet.has(Packet::SACK) {
        take_duplicate(sf, packet.ack, sack);
        let last_sack = &mut sf.history.get_or_insert_default().last_sack;
        for range in sack.ranges.iter().filter(|range| range.end > ack.max(range.start)) {
            // Most ranges repeat or extend one of the last ACK's: only what is new needs marking.
            let known = last_sack.ranges.iter().find(|old| old.start == range.start && old.end <= range.end);
            let from = known.map_or(range.start, |old| old.end.max(old.start));
            if from < range.end {
                sf.board.sack((from, range.end), now, min_rtt, &mut sf.rack, got);
            }
        }
        *last_sack = *sack;
    }
    sf.board.ack(ack, now, min_rtt, &mut sf.rack, got);
    if let Some(low) = got.reordered_below {
        sf.note_reordering(low);
    }
}

/// Processes the receiver's DSACK (RFC 2883 section 4; Linux `tcp_check_dsack`, `tcp_dsack_seen`).
fn take_duplicate(sf: &mut Subflow, ack: u32, sack: &Sack) {
    let [first, second, ..] = sack.ranges;
    let inside = second.end > second.start && first.start >= second.start && first.end <= second.end;
    if first.end <= first.start || !(first.start < ack || inside) {
        return;
    }
    let count = first.end - first.start;
    sf.duplicates = sf.duplicates.saturating_add(count);
    // The network may duplicate, too.
    if u64::from(sf.duplicates) > sf.counters.retransmits {
        return;
    }
    let answers_probe = sf.probe_high != 0 && sf.probe_high == first.end;
    sf.adaptation.duplicate |= sf.reordering_seen && !answers_probe;
    sf.undo.duplicates(count, first.end);
}

impl<W: Wire> Tx<'_, W> {
    /// Finds losses by the configured rule; returns how many were found.
    pub(super) fn detect(&mut self, r: usize, got: &Delivery) -> u32 {
        let sf = &mut self.subs[r];
        sf.dupthresh = sf.dupthresh.min(self.config.max_reordering_pkt.max(3));
        if self.config.loss_detection == LossDetection::Rfc6675 {
            return sf.board.mark_lost_below(sf.dupthresh);
        }
        if !sf.rack.advanced {
            return 0;
        }
        if got.delivered > 0 && sf.adaptation.may_change() {
            sf.adaptation.step(self.now, sf.rack.sent);
        }
        sf.rack.advanced = false;
        let window = sf.reorder_window();
        let (lost, wait) = sf.board.rack_mark_lost(self.now, &sf.rack, window);
        if wait.ps() != 0 {
            self.arm_reorder(r, wait);
        }
        lost
    }
}
