//! One path: route, packet number space, RTT, MTU, ECN validation, pacing, liveness.

use super::ecn::EcnValidation;
use super::inflow::Inflow;
use super::mtu::Mtu;
use super::pacer::Pacer;
use super::route::Route;
use super::status::Status;
use super::validation::Validation;
use crate::congestion::{CcContext, Window, Windows};
use crate::event::PathId;
use crate::recovery::GRANULARITY;
use crate::recovery::sent::SentPacket;
use crate::recovery::space::Space;
use vmcc_multipath::{Lateness, PathView, RtoLimits, Rtt};
use vmcc_units::time::{Span, Time};

/// RFC 9002 section 6.2.2: a third of a second before the first sample, hence a timeout of about one.
const PTO_LIMITS: RtoLimits = RtoLimits { initial: Span::from_ms(999), max: Span::from_secs(60) };
/// Doublings of a probe timeout.
const MAX_BACKOFF: u32 = 10;
/// The longest time between probes of a silent path, unless its probe timeout is longer. It bounds the time from healing to use. Where all
/// paths are silent, the idle timeout ends probing.
const MAX_PROBE_INTERVAL: Span = Span::from_secs(2);

/// State of a path between its first packet and its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathState {
    /// The peer has not shown yet that it receives there.
    Validating,
    Open,
    /// Given up: nothing is sent, what still comes is acknowledged on others, until then.
    Abandoned(Time),
    /// The place is free.
    Closed,
}

/// PATH_RESPONSE to send: the challenge's data, the route of the response, and whether its datagram is padded to full size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathResponse {
    pub(crate) data: u64,
    pub(crate) route: Route,
    pub(crate) padded: bool,
}

/// One path.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) route: Route,
    pub(crate) state: PathState,
    pub(crate) space: Space,
    pub(crate) rtt: Rtt,
    pub(crate) latest_rtt: Span,
    pub(crate) rtt_samples: u64,
    /// Virtual time of its next turn (round robin).
    pub(crate) next_turn: u64,
    /// Time of the present network's first sample.
    pub(crate) first_rtt_at: Time,
    /// Assumed round trip before the first sample.
    guessed_rtt: Span,
    /// Bytes of streams that came.
    pub(crate) payload_in: u64,
    pub(crate) pacer: Pacer,
    pub(crate) mtu: Mtu,
    pub(crate) ecn: EcnValidation,
    pub(crate) validation: Validation,
    /// Pending PATH_RESPONSE to the peer's challenge.
    pub(crate) response: Option<PathResponse>,
    /// Timeouts since the last answer, and probes to send for them.
    pub(crate) pto_count: u32,
    /// Of all time.
    pub(crate) timeouts: u64,
    pub(crate) probes: u8,
    /// Silent while it should answer.
    pub(crate) failed: bool,
    pub(crate) lateness: Lateness,
    /// Since when packets come back with "port unreachable", while nothing else comes.
    pub(crate) refused_since: Option<Time>,
    pub(crate) status: Status,
    /// Pacing holds it back until then.
    pub(crate) paced_until: Option<Time>,
    /// Time of the last packet received on it.
    pub(crate) last_received_at: Time,
    /// Time of the last ack-eliciting packet sent on it.
    pub(crate) last_eliciting_at: Time,
    pub(crate) inflow: Inflow,
    pub(crate) lost_packets: u64,
    /// Acknowledged packets, those of them with a mark, and bytes of streams.
    pub(crate) acked_packets: u64,
    pub(crate) marked_packets: u64,
    pub(crate) payload_out: u64,
}

impl Path {
    pub(crate) fn new(id: PathId, route: Route, mtu: Mtu) -> Path {
        Path {
            id,
            route,
            state: PathState::Validating,
            space: Space::default(),
            rtt: Rtt::default(),
            latest_rtt: Span::ZERO,
            rtt_samples: 0,
            next_turn: 0,
            first_rtt_at: Time::NEVER,
            guessed_rtt: PTO_LIMITS.initial.div(3),
            payload_in: 0,
            pacer: Pacer::default(),
            mtu,
            ecn: EcnValidation::default(),
            validation: Validation::default(),
            response: None,
            pto_count: 0,
            timeouts: 0,
            probes: 0,
            failed: false,
            lateness: Lateness::default(),
            refused_since: None,
            status: Status::default(),
            paced_until: None,
            last_received_at: Time::ZERO,
            last_eliciting_at: Time::ZERO,
            inflow: Inflow::default(),
            lost_packets: 0,
            acked_packets: 0,
            marked_packets: 0,
            payload_out: 0,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == PathState::Open
    }

    /// Returns true if it is open and not silent.
    pub(crate) fn is_responsive(&self) -> bool {
        self.is_open() && !self.failed
    }

    /// Returns true if data on it are expected to arrive in time.
    pub(crate) fn is_on_time(&self) -> bool {
        self.is_responsive() && !self.lateness.is_late()
    }

    /// Ack-eliciting packets that are sent and not overtaken, oldest first; probes of the packet size aside.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &SentPacket> {
        let first = self.space.largest_acked.map_or(0, |largest| largest + 1);
        self.space.sent.from(first).filter(|packet| packet.eliciting && !packet.mtu_probe)
    }

    /// Round trip to expect of a packet that leaves now: the smoothed one, or the age of the oldest that is not answered.
    pub(crate) fn expected_rtt(&self, now: Time) -> Span {
        let age = self.unanswered().next().map(|oldest| now.since(oldest.sent));
        self.srtt().max(age.unwrap_or(Span::ZERO))
    }

    /// Returns true if it carries data only where no other can.
    pub(crate) fn is_backup(&self) -> bool {
        self.status.is_backup()
    }

    /// Returns true if packets may be sent and are expected.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.state, PathState::Open | PathState::Validating)
    }

    /// Smoothed round trip; a third of a second before anything is known of it.
    pub(crate) fn srtt(&self) -> Span {
        if self.rtt.srtt_8us == 0 { self.guessed_rtt } else { self.rtt.srtt() }
    }

    /// A challenge was answered after so long: no sample, but better than nothing (RFC 9002 section 6.2.2).
    pub(crate) fn guess_rtt(&mut self, rtt: Span) {
        self.guessed_rtt = rtt.max(GRANULARITY).min(PTO_LIMITS.initial.div(3));
    }

    /// Probe timeout without backoff (RFC 9002 section 6.2.1); `ack_delay` counts where the peer may delay.
    pub(crate) fn pto(&self, ack_delay: Span) -> Span {
        self.rtt.rto(RtoLimits { initial: self.guessed_rtt.times(3), ..PTO_LIMITS }) + ack_delay
    }

    pub(crate) fn backed_off(&self, pto: Span) -> Span {
        pto.times(1 << self.pto_count.min(MAX_BACKOFF)).min(PTO_LIMITS.max)
    }

    /// Time between two probes, once the handshake is confirmed.
    pub(crate) fn probe_interval(&self, pto: Span) -> Span {
        self.backed_off(pto).min(MAX_PROBE_INTERVAL.max(pto))
    }

    /// The round trip by which losses are detected.
    pub(crate) fn loss_rtt(&self) -> Span {
        self.srtt().max(self.latest_rtt)
    }

    /// A round trip was measured; the peer says how long it waited.
    pub(crate) fn on_rtt(&mut self, now: Time, rtt: Span, ack_delay: Span) {
        if self.rtt.srtt_8us == 0 {
            self.first_rtt_at = now;
        }
        self.latest_rtt = rtt;
        self.rtt_samples += 1;
        self.rtt.sample_min(now, rtt);
        // RFC 9002 section 5.3: never below the minimum.
        let waited = self.rtt.min_rtt + ack_delay <= rtt;
        let adjusted = if waited { Span::from_ps(rtt.ps() - ack_delay.ps()) } else { rtt };
        let (una, next) = (self.space.sent.lowest() as u32, self.space.sent.next() as u32);
        self.rtt.sample(adjusted, una, next, GRANULARITY);
    }

    /// The pacing rate follows window and round trip, or is what the algorithm asks for. Of a window that is not its own it may have all.
    pub(crate) fn pace(&mut self, window: &Window) {
        if window.gap_us > 0 {
            self.pacer.set_gap(Span::from_us(window.gap_us.into()), self.mtu.size());
            return;
        }
        let cwnd = u64::from(window.cwnd) * u64::from(window.mtu);
        if self.rtt.srtt_8us != 0 {
            self.pacer.set_rate(cwnd, self.rtt.srtt(), window.in_slow_start(), self.mtu.size());
        }
    }

    /// State for its window's decisions.
    pub(crate) fn cc_context(&self, now: Time, slot: usize, waiting: bool) -> CcContext<'_> {
        let (una, next) = (self.space.sent.lowest(), self.space.sent.next());
        CcContext { now, slot, rtt: &self.rtt, una, next, waiting }
    }

    /// Returns true if the next packet is to be ECN-capable, where that is wanted at all.
    pub(crate) fn ecn_now(&self, wanted: bool) -> bool {
        wanted && self.ecn.is_sending()
    }

    /// Time of the next keep-alive, or of a probe after the end of a client's inflow; `keep_alive` is the interval, zero: none. A server's
    /// packets make no NAT binding.
    pub(crate) fn keep_alive_at(&self, is_client: bool, keep_alive: Span, ack_delay: Span) -> Option<Time> {
        if !self.is_responsive() || self.probes > 0 {
            return None;
        }
        let active = match is_client {
            true => self.last_eliciting_at,
            false => self.last_eliciting_at.max(self.last_received_at),
        };
        let next = (keep_alive > Span::ZERO).then(|| active + keep_alive);
        // What was sent meanwhile is answered, or missed.
        let inflow = self.inflow.probe_at(self.pto(ack_delay), self.last_received_at);
        let inflow = inflow.filter(|_| is_client && self.space.sent.eliciting() == 0);
        next.into_iter().chain(inflow).min()
    }
}

/// View of a path for the packet scheduler and for metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchedulerView<'a> {
    pub(crate) path: &'a Path,
    pub(crate) windows: &'a Windows,
    pub(crate) slot: usize,
    /// Other paths are to carry its data.
    pub(crate) withheld: bool,
}

impl PathView for SchedulerView<'_> {
    fn srtt_8us(&self) -> u32 {
        self.path.rtt.srtt_8us
    }

    fn deviation_8us(&self) -> u32 {
        self.path.rtt.deviation_us() * 8
    }

    fn cwnd_pkt(&self) -> u32 {
        self.windows.of(self.slot).cwnd
    }

    fn in_flight_pkt(&self) -> u32 {
        self.windows.in_flight_pkt(self.slot)
    }

    /// Free window in packets; data of others in flight count, where the window is theirs too.
    fn room_pkt(&self) -> u32 {
        let window = self.windows.of(self.slot);
        window.cwnd.saturating_sub(window.in_flight_pkt())
    }

    fn in_slow_start(&self) -> bool {
        self.windows.of(self.slot).in_slow_start()
    }

    fn is_established(&self) -> bool {
        self.path.is_open()
    }

    fn is_backup(&self) -> bool {
        self.path.is_backup()
    }

    fn has_failed(&self) -> bool {
        self.path.failed || self.withheld
    }

    /// Never in the way of data: what is lost goes back to the connection, so no path repairs for itself.
    fn is_in_loss(&self) -> bool {
        false
    }

    fn is_paced_out(&self) -> bool {
        self.path.paced_until.is_some()
    }

    fn next_turn(&self) -> u64 {
        self.path.next_turn
    }
}
