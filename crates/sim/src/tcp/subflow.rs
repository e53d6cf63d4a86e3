//! The sending half of a subflow: window, recovery state, clocks.
//!
//! The fields that an ACK touches come first; a subflow with nothing lost is read and written in a few
//! cache lines.

use super::adaptation::Adaptation;
use super::config::{SubflowSpec, TcpConfig};
use super::record::{Closing, SubflowCounters};
use super::scoreboard::{Rack, Scoreboard};
use super::undo::Undo;
use crate::engine::Timer;
use crate::packet::{RouteId, Sack};
use crate::time::{Span, Time};
use prefetch_index::prefetch_index;
use std::slice;
use vmcc_cc::{Path, SSTHRESH_INFINITE, Slot, SlotFlags, State};
use vmcc_multipath::{PathView, Prr, Rtt};

/// State of a subflow between creation and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Not started.
    Idle,
    /// SYN sent.
    SynSent,
    /// SYN-ACK received, the join's last messages are on their way.
    Joining,
    /// Carries data.
    Established,
    /// Closed or given up.
    Closed,
}

/// Meaning of the subflow's timer when it expires; one at a time, as in Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// Retransmission timeout.
    Retransmit,
    /// Tail loss probe.
    Probe,
    /// RACK's reordering window closes.
    Reorder,
    /// Zero-window probe.
    Window,
    /// The SYN was lost, or it is time to send it.
    Handshake,
}

/// Past of a subflow that a short transfer without loss does not have.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Ranges of the last ACK that had some: what they report is on the scoreboard already.
    pub(crate) last_sack: Sack,
    /// Time of this subflow's last penalty.
    pub(crate) last_penalty: Time,
    /// Time of its close, unless it was opened again.
    pub(crate) closed_at: Option<Time>,
    /// Reason for each close before it was opened again; closes before it was established are left out.
    pub(crate) earlier: Vec<Closing>,
    /// The first times that losses or marks reduced its window.
    pub(crate) reduced_at: Vec<Time>,
}

/// Counters of a subflow's sender. Small ones count packets, of which a subflow has fewer than 2^32: sequence numbers do not wrap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) retransmits: u64,
    pub(crate) reinjected_bytes: u64,
    pub(crate) reinjected: u32,
    pub(crate) timeouts: u32,
    pub(crate) probes: u32,
    pub(crate) recoveries: u32,
    pub(crate) ecn_cuts: u32,
    pub(crate) ece_acks: u32,
    pub(crate) spurious_timeouts: u32,
    pub(crate) undone: u32,
}

/// One subflow as its sender sees it.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Subflow {
    pub(crate) board: Scoreboard,
    pub(crate) conn: u32,
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    /// `nxt` when the current reduction or recovery began.
    pub(crate) high_seq: u32,
    /// Most segments out in the current window, and when that window ends (congestion window validation).
    pub(crate) max_out: u32,
    pub(crate) usage_seq: u32,
    pub(crate) state: State,
    pub(crate) status: Status,
    pub(crate) alarm: Alarm,
    pub(crate) cwnd_limited: bool,
    /// ECN negotiated: data is sent ECN-capable.
    pub(crate) ecn: bool,
    /// The algorithm reads the accurate echo: every packet is ECN-capable.
    pub(crate) ecn_accurate: bool,
    /// CWR goes out with the next new segment.
    pub(crate) cwr_pending: bool,
    /// No answer since the last timeout of data in flight: other subflows are preferred.
    pub(crate) failed: bool,
    pub(crate) backup: bool,
    /// The ACK in progress sends nothing again: F-RTO wants new data, or data declared lost turn out to be late.
    pub(crate) hold_lost: bool,
    /// The ACK in progress moves the retransmission timer.
    pub(crate) rearm: bool,
    /// Waiting for `pace_until`.
    pub(crate) paced_out: bool,
    /// The algorithm wants each packet acknowledged at once.
    pub(crate) acks_each: bool,
    pub(crate) reordering_seen: bool,
    pub(crate) retries: u8,
    pub(crate) timer: Timer,
    pub(crate) rtt: Rtt,
    pub(crate) rack: Rack,
    pub(crate) route: RouteId,
    /// Index of the receiving half in the receiver's shard.
    pub(crate) to: u32,
    /// `sent` of the newest ACK, echoed for the receiver's RTT.
    pub(crate) echo: Time,
    pub(crate) path: Path,
    /// Time of the last transmission (restart after idle).
    pub(crate) last_sent: Time,
    // Recovery only.
    pub(crate) prr: Prr,
    pub(crate) dupthresh: u32,
    /// `nxt` when a tail loss probe was sent; 0: none is out.
    pub(crate) probe_high: u32,
    /// Its place in the scheduler's order: the next data segment to copy (redundant), or the virtual time of its next turn in segments
    /// (round robin).
    pub(crate) place: u32,
    /// The tail loss probe repeated a segment.
    pub(crate) probe_repeats: bool,
    /// F-RTO is watching for original transmissions.
    pub(crate) frto: bool,
    pub(crate) syn_retries: u8,
    /// It was established, now or before it was closed.
    pub(crate) opened: bool,
    pub(crate) closed: Option<Closing>,
    pub(crate) undo: Undo,
    /// Segments that the receiver has reported twice.
    pub(crate) duplicates: u32,
    pub(crate) adaptation: Adaptation,
    pub(crate) pace_timer: Timer,
    /// No paced segment before.
    pub(crate) pace_until: Time,
    /// The time between two packets that the algorithm wants; zero: it does not say.
    pub(crate) gap: Span,
    pub(crate) join_delay: Span,
    /// `None` before the first loss, mark, penalty or close.
    pub(crate) history: Option<Box<History>>,
    pub(crate) counters: Counts,
}

// A run may have a million of them.
const _: () = assert!(size_of::<Subflow>() <= 512);

impl Subflow {
    pub(crate) fn new(conn: u32, to: u32, spec: &SubflowSpec, initial_cwnd: u32) -> Subflow {
        Subflow {
            board: Scoreboard::default(),
            conn,
            cwnd: initial_cwnd,
            ssthresh: SSTHRESH_INFINITE,
            high_seq: 0,
            max_out: 0,
            usage_seq: 0,
            state: State::Open,
            status: Status::Idle,
            alarm: Alarm::Handshake,
            cwnd_limited: false,
            ecn: false,
            ecn_accurate: false,
            cwr_pending: false,
            failed: false,
            backup: spec.backup,
            timer: Timer::new(),
            rtt: Rtt::default(),
            rack: Rack::default(),
            route: spec.forward,
            to,
            echo: Time::ZERO,
            path: Path::default(),
            last_sent: Time::ZERO,
            prr: Prr::default(),
            dupthresh: 3,
            reordering_seen: false,
            retries: 0,
            probe_repeats: false,
            probe_high: 0,
            frto: false,
            hold_lost: false,
            rearm: false,
            undo: Undo::default(),
            duplicates: 0,
            adaptation: Adaptation::default(),
            place: 0,
            pace_timer: Timer::new(),
            pace_until: Time::ZERO,
            paced_out: false,
            gap: Span::ZERO,
            acks_each: false,
            join_delay: spec.join_delay,
            syn_retries: 0,
            opened: false,
            closed: None,
            history: None,
            counters: Counts::default(),
        }
    }

    /// The same subflow before it was opened, after it was closed. Its sequence numbers and counters go on, and the events
    /// of its timers that are on their way find them.
    pub(crate) fn reopened(&self, initial_cwnd: u32) -> Subflow {
        let spec = SubflowSpec {
            backup: self.backup,
            join_delay: self.join_delay,
            ..SubflowSpec::new(self.route, self.route)
        };
        let mut history = self.history.clone();
        if let Some(history) = history.as_deref_mut() {
            (history.last_sack, history.last_penalty, history.closed_at) = (Sack::EMPTY, Time::ZERO, None);
        }
        if let Some(ended) = self.closed.filter(|_| self.opened) {
            history.get_or_insert_default().earlier.push(ended);
        }
        Subflow {
            board: self.board.clone(),
            counters: self.counters,
            history,
            timer: self.timer,
            pace_timer: self.pace_timer,
            ..Subflow::new(self.conn, self.to, &spec, initial_cwnd)
        }
    }

    /// Counters so far.
    pub(crate) fn counters(&self) -> SubflowCounters {
        let counts = &self.counters;
        SubflowCounters {
            sent: u64::from(self.board.nxt()) + counts.retransmits,
            retransmits: counts.retransmits,
            timeouts: counts.timeouts,
            probes: counts.probes,
            recoveries: counts.recoveries,
            ecn_cuts: counts.ecn_cuts,
            ece_acks: counts.ece_acks.into(),
            spurious_timeouts: counts.spurious_timeouts,
            undone: counts.undone,
            reinjected: counts.reinjected.into(),
            reinjected_bytes: counts.reinjected_bytes,
        }
    }

    /// Asks for the cache lines that an ACK touches.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_index(slice::from_ref(&self.board), 0);
        prefetch_index(slice::from_ref(&self.timer), 0);
        prefetch_index(slice::from_ref(&self.rtt), 0);
        prefetch_index(slice::from_ref(&self.path), 0);
        prefetch_index(slice::from_ref(&self.last_sent), 0);
    }

    #[inline]
    pub(crate) fn is_reducing(&self) -> bool {
        matches!(self.state, State::Cwr | State::Recovery)
    }

    /// Segment `low` was delivered after higher ones (Linux `tcp_check_sack_reordering`).
    pub(crate) fn note_reordering(&mut self, low: u32) {
        let high = self.board.high_sacked();
        if low < high {
            self.reordering_seen = true;
            self.dupthresh = self.dupthresh.max(high - low);
        }
    }

    /// Of an idle one: whether a window probe was sent and its answer has not come in time. It decides which subflow probes next, not which may
    /// carry data: as in Linux, where only a subflow with data in flight becomes stale.
    pub(crate) fn has_unanswered_probe(&self) -> bool {
        self.retries > 1
    }

    /// The timeout, backoff included.
    #[inline]
    pub(crate) fn rto(&self, config: &TcpConfig) -> Span {
        self.rtt.rto(config.rto_limits())
    }

    /// RFC 8985 section 6.2 step 4 as Linux does it: none until reordering was seen if three segments were
    /// SACKed or recovery has begun, else quarters of the minimum RTT, at most one smoothed RTT.
    pub(crate) fn reorder_window(&self) -> Span {
        let started = matches!(self.state, State::Recovery | State::Loss);
        if !self.reordering_seen && (started || self.board.sacked_out() >= self.dupthresh) {
            return Span::ZERO;
        }
        self.rtt.min_rtt.div(4).times(self.adaptation.steps.into()).min(self.rtt.srtt())
    }

    /// Linux's `tcp_is_cwnd_limited`.
    #[inline]
    pub(crate) fn is_cwnd_limited(&self) -> bool {
        self.cwnd_limited || (self.in_slow_start() && self.cwnd < 2 * self.max_out)
    }

    /// Linux's `tcp_cwnd_validate`, without its window decay for idle applications.
    #[inline]
    pub(crate) fn validate(&mut self, limited: bool) {
        let out = self.board.out();
        if limited || self.board.una() >= self.usage_seq || (!self.cwnd_limited && out > self.max_out) {
            self.cwnd_limited = limited;
            self.max_out = out;
            self.usage_seq = self.board.nxt();
        }
    }

    /// RFC 5681 section 4.1 as Linux does it: one halving per timeout of idleness, down to `restart`.
    pub(crate) fn restart_after(&mut self, idle: Span, rto: Span, restart: u32) {
        self.ssthresh = self.ssthresh.max((self.cwnd >> 1) + (self.cwnd >> 2));
        let restart = restart.min(self.cwnd);
        let mut left = idle;
        while left > rto && self.cwnd > restart {
            self.cwnd >>= 1;
            left = left - rto;
        }
        self.cwnd = self.cwnd.max(restart);
        self.cwnd_limited = false;
    }

    /// Linux's `tcp_current_ssthresh`: what a later undo restores.
    pub(crate) fn current_ssthresh(&self) -> u32 {
        if self.is_reducing() {
            self.ssthresh
        } else {
            self.ssthresh.max((self.cwnd >> 1) + (self.cwnd >> 2))
        }
    }

    /// State that siblings may read.
    #[inline]
    pub(crate) fn slot(&self) -> Slot {
        if self.status != Status::Established {
            return Slot::default();
        }
        Slot {
            flags: SlotFlags::ESTABLISHED
                .with(SlotFlags::RECOVERY, self.is_reducing())
                .with(SlotFlags::LOSS, self.state == State::Loss)
                .with(SlotFlags::SLOW_START, self.in_slow_start()),
            cwnd_pkt: self.cwnd,
            ssthresh_pkt: self.ssthresh,
            srtt_8us: self.rtt.srtt_8us,
            pub_words: self.path.pub_words,
        }
    }

    /// RTT of a packet that is sent now: what is in flight drains at a window per smoothed RTT (Linux's linger time,
    /// `mptcp_subflow_get_send`), and no packet takes less than the minimum RTT.
    pub(crate) fn expected_rtt_8us(&self) -> u32 {
        let srtt_8us = u64::from(self.rtt.srtt_8us);
        let drain_8us = u64::from(self.board.in_flight()) * srtt_8us / u64::from(self.cwnd.max(1));
        let least_8us = self.rtt.min_rtt.us().saturating_mul(8).min(srtt_8us);
        u32::try_from(drain_8us.max(least_8us)).unwrap_or(u32::MAX)
    }
}

impl PathView for Subflow {
    #[inline]
    fn srtt_8us(&self) -> u32 {
        self.rtt.srtt_8us
    }

    #[inline]
    fn deviation_8us(&self) -> u32 {
        self.rtt.deviation_us() * 8
    }

    #[inline]
    fn cwnd_pkt(&self) -> u32 {
        self.cwnd
    }

    #[inline]
    fn in_flight_pkt(&self) -> u32 {
        self.board.in_flight()
    }

    #[inline]
    fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    #[inline]
    fn is_established(&self) -> bool {
        self.status == Status::Established
    }

    #[inline]
    fn is_backup(&self) -> bool {
        self.backup
    }

    #[inline]
    fn has_failed(&self) -> bool {
        self.failed
    }

    #[inline]
    fn is_in_loss(&self) -> bool {
        self.state == State::Loss
    }

    #[inline]
    fn is_paced_out(&self) -> bool {
        self.paced_out
    }

    #[inline]
    fn next_turn(&self) -> u64 {
        self.place.into()
    }
}
