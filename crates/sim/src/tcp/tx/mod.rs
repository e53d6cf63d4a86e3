//! The sending transport: TCP as Linux behaves, and multipath TCP above it.
//!
//! Modelled: initial window of ten (RFC 6928); Linux's recovery states open, disorder, CWR, recovery and loss;
//! SACK recovery with RACK-TLP (RFC 8985) or RFC 6675 marking; PRR (RFC 9937); retransmission timer with
//! backoff (RFC 6298); F-RTO (RFC 5682), Eifel detection and undo by DSACK (`undo`); congestion window validation and restart after idle (RFC 7661 in
//! spirit, RFC 5681 section 4.1); classic ECN (RFC 3168) and the sender side of accurate echo (RFC 8257);
//! zero-window probes; optional pacing; handshakes and joins (RFC 8684 section 3), reinjection, penalization
//! and opportunistic retransmission when the receive window limits, path failure and closing.
//! Not modelled: segmentation offload and its bursts, auto-corking, TCP Small Queues, SACK reneging, path MTU discovery, keepalive, FIN exchange, urgent data, TCP options'
//! negotiation, sequence wrap.
//!
//! Congestion control is `vmcc_cc` throughout; this module owns when it is asked and what becomes of the
//! answer.

mod ack;
#[cfg(test)]
mod app_tests;
#[cfg(test)]
mod carrier_tests;
#[cfg(test)]
mod deschedule_tests;
#[cfg(test)]
mod fetch_tests;
mod manage;
mod multipath;
#[cfg(test)]
mod multipath_tests;
mod recovery;
#[cfg(test)]
mod resume_tests;
mod send;
#[cfg(test)]
mod spacing_tests;
#[cfg(test)]
mod tests;
mod timers;
mod undo;
#[cfg(test)]
mod undo_tests;

use super::config::TcpConfig;
use super::conn::Conn;
use super::record::Closing;
use super::subflow::{Status, Subflow};
use crate::endpoint::Wire;
use crate::rtts::RttGroups;
use crate::time::{Span, Time};
use vmcc_cc::{Algorithm, Cause, Decision, DecisionFlags, Event, EventFlags, Group, Params};
use vmcc_multipath::{PathView, may_suppress};

/// A congestion-control algorithm with its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selected {
    pub(crate) algorithm: Algorithm,
    pub(crate) params: Params,
    pub(crate) needs_ecn: bool,
}

/// Tag of a packet to which the receiver answers at once: a zero-window probe.
pub(crate) const TAG_PROBE: u8 = 1;
/// Tag of a handshake's last message: no answer.
pub(crate) const TAG_HANDSHAKE: u8 = 2;

/// True if a subflow is available for new data.
fn in_use(subflow: &Subflow) -> bool {
    subflow.is_established() && !subflow.is_backup() && !subflow.has_failed()
}

/// One connection's sender, lent for the duration of an event.
pub(crate) struct Tx<'a, W: Wire> {
    pub(crate) wire: &'a mut W,
    pub(crate) now: Time,
    pub(crate) config: &'a TcpConfig,
    pub(crate) cc: &'a Selected,
    pub(crate) conn: &'a mut Conn,
    pub(crate) subs: &'a mut [Subflow],
    pub(crate) rtts: &'a mut RttGroups,
    /// That of the connection, if it has one.
    pub(crate) pool: Option<&'a mut vmcc_cc::Pool>,
}

type Hook = fn(&Algorithm, &Event, &mut vmcc_cc::Path, Option<&Group>, &Params) -> Decision;

impl<W: Wire> Tx<'_, W> {
    /// State of subflow `r` that the algorithm may read now.
    #[inline]
    fn event(&self, r: usize, ece: bool) -> Event {
        let sf = &self.subs[r];
        Event {
            now_us: self.now.us().max(1),
            flags: EventFlags::NONE
                .with(EventFlags::ECE, ece)
                .with(EventFlags::CWND_LIMITED, sf.is_cwnd_limited()),
            state: sf.state,
            cause: Cause::None,
            self_index: r as u32 + u32::from(self.conn.slot),
            cwnd_pkt: sf.cwnd,
            ssthresh_pkt: sf.ssthresh,
            srtt_8us: sf.rtt.srtt_8us.min(vmcc_cc::MAX_SRTT_8US),
            min_rtt_us: if sf.rtt.srtt_8us == 0 { 0 } else { (sf.rtt.min_rtt.us() as u32).max(1) },
            rtt_us: 0,
            acked_pkt: 0,
            in_flight_pkt: sf.board.in_flight(),
            snd_una: sf.board.una(),
            snd_nxt: sf.board.nxt(),
            peer_ts: (sf.echo.us() / 1000) as u32,
        }
    }

    /// Asks the algorithm, publishes the path to its siblings, carries out the decision.
    #[inline]
    fn ask(&mut self, r: usize, hook: Hook, event: &Event) -> Decision {
        let group = self.conn.group.as_deref();
        let decision = hook(&self.cc.algorithm, event, &mut self.subs[r].path, group, &self.cc.params);
        if decision.set != DecisionFlags::NONE {
            self.apply(r, &decision, event.cause);
        }
        self.publish(r);
        decision
    }

    /// Asks the algorithm whether subflow `r` shares a bottleneck with a sibling, if it detects such.
    #[inline]
    fn detect_sharing(&mut self, r: usize, event: &Event) {
        if self.conn.sharing.is_none() {
            return;
        }
        let waits = self.conn.nxt < self.conn.end || self.conn.has_reinjections();
        let (Some(sharing), Some(group)) = (&mut self.conn.sharing, &self.conn.group) else { return };
        let event = &Event { flags: event.flags.with(EventFlags::CWND_LIMITED, waits), ..*event };
        let pool = self.pool.as_deref_mut().zip(self.conn.pool.as_deref().copied());
        if let Some((pool, _)) = &pool {
            pool.lead(sharing);
        }
        let mut decision = self.cc.algorithm.detect(event, group, sharing, &self.cc.params);
        if let Some((pool, place)) = pool {
            pool.on_ack(event, group, usize::from(place.routes[r]), sharing, &mut decision);
        }
        if decision.set != DecisionFlags::NONE {
            self.apply(r, &decision, event.cause);
            self.publish(r);
        }
    }

    fn apply(&mut self, r: usize, decision: &Decision, cause: Cause) {
        let sf = &mut self.subs[r];
        if let Some(ssthresh) = decision.ssthresh() {
            sf.ssthresh = ssthresh;
        }
        // A window that answers congestion is where the gradual reduction ends, not a jump.
        if let Some(cwnd) = decision.cwnd().filter(|_| cause == Cause::None) {
            sf.cwnd = cwnd.clamp(1, vmcc_cc::MAX_CWND_PKT);
        }
        if let Some(gap_us) = decision.gap_us() {
            sf.gap = Span::from_us(gap_us.into());
            sf.acks_each = decision.set.has(DecisionFlags::ACK_EACH);
        }
        if decision.set.has(DecisionFlags::ONLY_PATH) {
            self.conn.selector.only = Some(r as u8);
        }
        if decision.set.has(DecisionFlags::ALL_PATHS) {
            self.conn.selector.only = None;
        }
        if let Some(kept) = decision.close_in_favor_of() {
            self.close_shared(r, kept);
        }
    }

    /// Closes subflow `r`, which shares a bottleneck with `kept`, if that one lives and others are left.
    fn close_shared(&mut self, r: usize, kept: usize) {
        let peer_lives = kept != r && self.subs.get(kept).is_some_and(|s| s.status == Status::Established);
        let others = self.subs.iter().enumerate().filter(|(i, s)| *i != r && in_use(s)).count();
        if peer_lives && may_suppress(others, self.config.min_paths) {
            self.close_subflow(r, Closing::Shared);
        }
    }

    /// The subflow that the pool keeps instead of subflow `r`, if there is one.
    fn kept_by_pool(&self, r: usize) -> Option<usize> {
        let place = self.conn.pool.as_deref()?;
        let kept = self.pool.as_deref()?.kept(usize::from(place.routes[r]))?;
        place.subflow_on(kept, self.subs.len())
    }

    /// Closes the subflows on routes that the pool does not keep.
    pub(crate) fn follow_pool(&mut self) {
        for r in 0..self.subs.len() {
            if let Some(kept) = self.kept_by_pool(r)
                && self.subs[r].status == Status::Established
                && !self.conn.finished
            {
                self.close_shared(r, kept);
                self.push(None);
            }
        }
    }

    /// Shows subflow `r` to its siblings.
    #[inline]
    pub(crate) fn publish(&mut self, r: usize) {
        if let Some(group) = &mut self.conn.group {
            group.publish(r + usize::from(self.conn.slot), self.subs[r].slot());
        }
    }

    /// Index of subflow `r` in the shard's table.
    #[inline]
    fn index(&self, r: usize) -> u32 {
        self.conn.first + r as u32
    }
}
