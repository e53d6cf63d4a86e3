//! A congestion window, and the algorithm that drives it.

use vmcc_cc::{
    Algorithm, Cause, Decision, DecisionFlags, Event, EventFlags, Group, MAX_CWND_PKT, MAX_SRTT_8US, Params,
    SSTHRESH_INFINITE, Sharing, Slot, SlotFlags, State,
};
use vmcc_multipath::{Prr, Rtt};
use vmcc_units::time::Time;

/// The congestion control of a connection: the algorithm, and what its paths know of each other.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    algorithm: Algorithm,
    params: Params,
    group: Group,
    /// A connection of one path has no group.
    grouped: bool,
    sharing: Option<Box<Sharing>>,
}

/// Requests of an algorithm beside a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Advice {
    /// This path shares a bottleneck with that one: it should be closed.
    pub(crate) close_for: Option<usize>,
    /// New data should leave on this path only, or on all again.
    pub(crate) only: Option<bool>,
}

/// Path state that is passed to the congestion control hooks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CcContext<'a> {
    pub(crate) now: Time,
    /// Index in the group.
    pub(crate) slot: usize,
    pub(crate) rtt: &'a Rtt,
    /// Lowest packet that is out, and the next one.
    pub(crate) una: u64,
    pub(crate) next: u64,
    /// More could be sent if windows allowed.
    pub(crate) waiting: bool,
}

/// Contents of an acknowledgment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Acked {
    pub(crate) bytes: u64,
    pub(crate) packets: u32,
    /// Of the packets, those that came with a mark.
    pub(crate) marked: u32,
    /// Its round trip in microseconds; 0: it tells none.
    pub(crate) rtt_us: u32,
    /// Send time of the newest of them.
    pub(crate) newest: Time,
    /// Send time of the newest lost packet.
    pub(crate) lost: Option<Time>,
    /// Number of lost packets.
    pub(crate) lost_packets: u32,
}

/// State before a reduction for losses, which is restored if every one of them was spurious (Linux's `tcp_try_undo_dsack`).
#[derive(Clone, Debug)]
struct Prior {
    cwnd: u32,
    ssthresh: u32,
    path: vmcc_cc::Path,
    /// Beginning of the reduction.
    at: Time,
    /// Packets declared lost since then that have not arrived.
    missing: u32,
}

/// The window of a path, or of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    pub(crate) state: State,
    /// Bytes of a packet.
    pub(crate) mtu: u16,
    pub(crate) in_flight: u64,
    /// Between two packets, in microseconds, if the algorithm asks for that; 0: it does not.
    pub(crate) gap_us: u32,
    path: vmcc_cc::Path,
    prr: Prr,
    /// A reduction began then: what was sent before says nothing new.
    since: Time,
    prior: Option<Box<Prior>>,
    /// Reductions because of losses and marks.
    pub(crate) reductions: u64,
    /// The window held something back in this round.
    limited: bool,
    /// Most packets out in this round, which ends with the packet of that number.
    max_out: u32,
    round_end: u64,
    /// Acknowledged bytes that do not make a packet yet.
    part: u64,
}

type Hook = fn(&Algorithm, &Event, &mut vmcc_cc::Path, Option<&Group>, &Params) -> Decision;

impl Controller {
    pub(crate) fn new(algorithm: Algorithm, params: Params) -> Controller {
        let sharing = algorithm.info().detects.then(Box::default);
        Controller { algorithm, params, group: Group::default(), grouped: false, sharing }
    }

    /// Paths that know of each other from now on, or not.
    pub(crate) fn set_grouped(&mut self, grouped: bool) {
        self.grouped = grouped;
    }

    /// Takes a path out of the group.
    pub(crate) fn remove(&mut self, slot: usize) {
        self.group.path[slot] = Slot::default();
    }
}

impl Window {
    pub(crate) fn new(initial_pkt: u32, mtu: u16) -> Window {
        Window {
            cwnd: initial_pkt,
            ssthresh: SSTHRESH_INFINITE,
            state: State::Open,
            mtu,
            in_flight: 0,
            gap_us: 0,
            path: vmcc_cc::Path::default(),
            prr: Prr::default(),
            since: Time::ZERO,
            prior: None,
            reductions: 0,
            limited: false,
            max_out: 0,
            round_end: 0,
            part: 0,
        }
    }

    /// Starts over with a fresh window, for packets that are sent after `now`; those in flight still count.
    pub(super) fn restart(&mut self, initial_pkt: u32, now: Time) {
        let in_flight = self.in_flight;
        *self = Window { in_flight, since: now, ..Window::new(initial_pkt, self.mtu) };
    }

    /// Packets in flight, rounded up.
    #[inline]
    pub(crate) fn in_flight_pkt(&self) -> u32 {
        u32::try_from(self.in_flight.div_ceil(u64::from(self.mtu))).unwrap_or(u32::MAX)
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Returns true if another packet may leave.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight_pkt() < self.cwnd
    }

    fn is_reducing(&self) -> bool {
        matches!(self.state, State::Cwr | State::Recovery)
    }

    /// The path can be used: the algorithm begins.
    pub(crate) fn begin(&mut self, cc: &mut Controller, at: &CcContext<'_>) {
        let event = self.event(at);
        self.call_hook(cc, Algorithm::init, &event);
    }

    /// Something was sent; `limited` says that the window now holds the next packet back.
    pub(crate) fn on_sent(&mut self, at: &CcContext<'_>, bytes: u64, limited: bool) {
        self.in_flight += bytes;
        if self.is_reducing() {
            self.prr.out += 1;
        }
        let out = self.in_flight_pkt();
        if limited || at.una >= self.round_end || (!self.limited && out > self.max_out) {
            (self.limited, self.max_out, self.round_end) = (limited, out, at.next);
        }
    }

    /// Linux's `tcp_is_cwnd_limited`.
    fn is_limited(&self) -> bool {
        self.limited || (self.in_slow_start() && self.cwnd < 2 * self.max_out)
    }

    fn event(&self, at: &CcContext<'_>) -> Event {
        let known = at.rtt.srtt_8us != 0;
        Event {
            now_us: at.now.us().max(1),
            flags: EventFlags::NONE.with(EventFlags::CWND_LIMITED, self.is_limited()),
            state: self.state,
            self_index: at.slot as u32,
            cwnd_pkt: self.cwnd,
            ssthresh_pkt: self.ssthresh,
            srtt_8us: at.rtt.srtt_8us.min(MAX_SRTT_8US),
            min_rtt_us: if known { (at.rtt.min_rtt.us() as u32).max(1) } else { 0 },
            in_flight_pkt: self.in_flight_pkt(),
            snd_una: at.una as u32,
            snd_nxt: at.next as u32,
            ..Event::default()
        }
    }

    /// Asks the algorithm, carries out what it says of the window, shows the path to its siblings.
    fn call_hook(&mut self, cc: &mut Controller, hook: Hook, event: &Event) -> Advice {
        let group = cc.grouped.then_some(&cc.group);
        let decision = hook(&cc.algorithm, event, &mut self.path, group, &cc.params);
        let advice = self.apply(&decision, event.cause);
        self.publish(cc, event.self_index as usize, event.srtt_8us);
        advice
    }

    fn apply(&mut self, decision: &Decision, cause: Cause) -> Advice {
        if let Some(ssthresh) = decision.ssthresh() {
            self.ssthresh = ssthresh;
        }
        // A window that answers congestion is where the gradual reduction ends, not a jump.
        if let Some(cwnd) = decision.cwnd().filter(|_| cause == Cause::None) {
            self.cwnd = cwnd.clamp(1, MAX_CWND_PKT);
        }
        self.gap_us = decision.gap_us().unwrap_or(self.gap_us);
        let only = decision.set.has(DecisionFlags::ONLY_PATH).then_some(true);
        let all = decision.set.has(DecisionFlags::ALL_PATHS).then_some(false);
        Advice { close_for: decision.close_in_favor_of(), only: all.or(only) }
    }

    fn publish(&self, cc: &mut Controller, slot: usize, srtt_8us: u32) {
        let shown = Slot {
            flags: SlotFlags::ESTABLISHED
                .with(SlotFlags::RECOVERY, self.is_reducing())
                .with(SlotFlags::LOSS, self.state == State::Loss)
                .with(SlotFlags::SLOW_START, self.in_slow_start()),
            cwnd_pkt: self.cwnd,
            ssthresh_pkt: self.ssthresh,
            srtt_8us,
            pub_words: self.path.pub_words,
        };
        cc.group.publish(slot, shown);
    }

    fn set_state(&mut self, cc: &mut Controller, at: &CcContext<'_>, state: State) {
        if self.state != state {
            self.state = state;
            let event = self.event(at);
            self.call_hook(cc, Algorithm::on_state, &event);
        }
    }

    /// Packets of `bytes`: whole ones, and what is left is kept for the next time.
    fn packets(&mut self, acked: &Acked) -> u32 {
        let mtu = u64::from(self.mtu);
        let whole = acked.bytes + self.part;
        // A packet that is nearly full is one.
        let packets = (whole + mtu / 8) / mtu;
        self.part = whole.saturating_sub(packets * mtu);
        u32::try_from(packets).unwrap_or(u32::MAX).min(acked.packets)
    }

    /// An acknowledgment came; what it acknowledges and reveals as lost is no longer in flight.
    pub(crate) fn on_ack(&mut self, cc: &mut Controller, at: &CcContext<'_>, acked: &Acked) -> Advice {
        let packets = self.packets(acked);
        let marked = acked.marked;
        let mut event = self.event(at);
        let mut advice = Advice::default();
        if marked > 0 {
            let ece = Event { flags: event.flags | EventFlags::ECE, acked_pkt: marked, ..event };
            advice = self.call_hook(cc, Algorithm::on_ack, &ece);
            event = self.event(at);
        }
        if marked == 0 || packets > marked {
            event.rtt_us = acked.rtt_us;
            event.acked_pkt = packets.saturating_sub(marked);
            advice = self.call_hook(cc, Algorithm::on_ack, &event);
        }
        let sharing = self.detect_sharing(cc, at, &event, marked);
        self.exit_recovery(cc, at, acked);
        let reveals = self.on_congestion_signal(cc, at, acked, marked);
        if self.is_reducing() {
            self.reduce(cc, at, packets, !reveals);
        } else if packets > 0 && self.is_limited() {
            let event = Event { rtt_us: acked.rtt_us, acked_pkt: packets, ..self.event(at) };
            self.call_hook(cc, Algorithm::on_grow, &event);
        }
        Advice { close_for: sharing.close_for.or(advice.close_for), only: sharing.only.or(advice.only) }
    }

    fn detect_sharing(
        &mut self,
        cc: &mut Controller,
        at: &CcContext<'_>,
        event: &Event,
        marked: u32,
    ) -> Advice {
        let Some(sharing) = cc.sharing.as_mut().filter(|_| cc.grouped) else { return Advice::default() };
        let flags = event.flags.with(EventFlags::CWND_LIMITED, at.waiting).with(EventFlags::ECE, marked > 0);
        let event = Event { flags, cwnd_pkt: self.cwnd, ..*event };
        let decision = cc.algorithm.detect(&event, &cc.group, sharing, &cc.params);
        let advice = self.apply(&decision, Cause::None);
        self.publish(cc, at.slot, event.srtt_8us);
        advice
    }

    /// Ends a state once something that was sent in it has arrived.
    fn exit_recovery(&mut self, cc: &mut Controller, at: &CcContext<'_>, acked: &Acked) {
        if self.state == State::Open || acked.packets == 0 || acked.newest <= self.since {
            return;
        }
        if self.is_reducing() && self.ssthresh < SSTHRESH_INFINITE {
            self.cwnd = self.ssthresh.max(1);
        }
        self.set_state(cc, at, State::Open);
    }

    /// Begins a reduction for a loss or a mark, once per round trip; whether there was a loss.
    fn on_congestion_signal(
        &mut self,
        cc: &mut Controller,
        at: &CcContext<'_>,
        acked: &Acked,
        marked: u32,
    ) -> bool {
        let lost = acked.lost.is_some_and(|sent| sent > self.since || self.since == Time::ZERO);
        if marked > 0 {
            self.prior = None;
        }
        if self.state == State::Loss || self.state == State::Recovery {
            self.count_missing(acked);
            return lost;
        }
        if lost {
            if self.state != State::Cwr {
                self.begin_reduction(cc, at, Cause::Loss);
            }
            self.set_state(cc, at, State::Recovery);
        } else if marked > 0 && self.state != State::Cwr {
            self.begin_reduction(cc, at, Cause::Ece);
            self.set_state(cc, at, State::Cwr);
        }
        self.count_missing(acked);
        acked.lost.is_some()
    }

    fn count_missing(&mut self, acked: &Acked) {
        if let Some(prior) = &mut self.prior {
            prior.missing = prior.missing.saturating_add(acked.lost_packets);
        }
    }

    /// A packet that was declared lost then has arrived. Undoes the reduction if it was the last one that was missing.
    pub(crate) fn on_spurious_loss(&mut self, cc: &mut Controller, at: &CcContext<'_>, declared_at: Time) {
        let Some(prior) = self.prior.as_mut().filter(|prior| declared_at >= prior.at) else { return };
        prior.missing = prior.missing.saturating_sub(1);
        let undone = self.prior.take_if(|prior| prior.missing == 0);
        let Some(prior) = undone else { return };
        self.cwnd = self.cwnd.max(prior.cwnd);
        self.ssthresh = self.ssthresh.max(prior.ssthresh);
        self.path = prior.path;
        if self.is_reducing() {
            self.set_state(cc, at, State::Open);
        }
        self.publish(cc, at.slot, at.rtt.srtt_8us.min(MAX_SRTT_8US));
    }

    fn begin_reduction(&mut self, cc: &mut Controller, at: &CcContext<'_>, cause: Cause) {
        let mut event = self.event(at);
        event.cause = cause;
        event.flags = event.flags.with(EventFlags::ECE, cause == Cause::Ece);
        let (cwnd, ssthresh, path) = (self.cwnd, self.ssthresh, self.path);
        let prior = Prior { cwnd, ssthresh, path, at: at.now, missing: 0 };
        self.prior = (cause == Cause::Loss).then(|| Box::new(prior));
        self.call_hook(cc, Algorithm::on_congestion, &event);
        self.since = at.now;
        self.reductions += 1;
        self.prr = Prr::start(self.cwnd);
    }

    fn reduce(&mut self, cc: &mut Controller, at: &CcContext<'_>, delivered: u32, safe: bool) {
        if delivered > 0 {
            let pipe = self.in_flight_pkt();
            let send = self.prr.on_ack(pipe, self.ssthresh.max(1), delivered, safe);
            self.cwnd = (pipe + send).max(1);
            self.publish(cc, at.slot, at.rtt.srtt_8us.min(MAX_SRTT_8US));
        }
    }

    /// Losses that a timer has revealed.
    pub(crate) fn on_lost(&mut self, cc: &mut Controller, at: &CcContext<'_>, newest: Time, packets: u32) {
        let acked = Acked { lost: Some(newest), lost_packets: packets, ..Acked::default() };
        self.on_congestion_signal(cc, at, &acked, 0);
    }

    /// Everything that was sent over a long time is lost: restart with one packet more than are in flight.
    pub(crate) fn on_persistent_congestion(&mut self, cc: &mut Controller, at: &CcContext<'_>, out: u32) {
        if self.state != State::Loss {
            let event = Event { cause: Cause::Rto, ..self.event(at) };
            self.call_hook(cc, Algorithm::on_congestion, &event);
        }
        (self.since, self.cwnd, self.limited, self.prior) = (at.now, out.saturating_add(1), true, None);
        self.set_state(cc, at, State::Loss);
    }
}

#[cfg(test)]
mod tests;
