//! One carrier: its records in flight, round trips, and what its TCP says.

use crate::event::CarrierId;
use crate::keys::Binding;
use crate::record::Deframer;
use std::collections::VecDeque;
use std::net::SocketAddr;
use vmcc_multipath::{Lateness, PathView, RtoLimits, Rtt, overdue_age};
use vmcc_streams::SentRange;
use vmcc_units::time::{Span, Time};

/// Retransmission timeout before the first sample and at most.
const RTO_LIMITS: RtoLimits = RtoLimits { initial: Span::from_secs(1), max: Span::from_secs(60) };
/// Bytes beyond a carrier's room that acknowledgments and limits may still use: they must never wait for data.
const CONTROL_RESERVE: u64 = 64 << 10;
/// Timeouts without progress after which a carrier is suspect although its TCP receives acknowledgments: those may be a middlebox's.
const MAX_RECOVERY_RTOS: u64 = 4;

/// Snapshot of a carrier's TCP (`TCP_INFO`), with the bytes that wait in user space before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarrierInfo {
    /// Segment size in bytes (`tcpi_snd_mss`).
    pub mss: u32,
    /// Congestion window in segments (`tcpi_snd_cwnd`).
    pub cwnd_pkt: u32,
    /// Smoothed RTT (`tcpi_rtt`); zero before the first sample.
    pub srtt: Span,
    /// RTT variation (`tcpi_rttvar`).
    pub rttvar: Span,
    /// Bytes sent and not acknowledged by TCP (`tcpi_unacked` segments).
    pub in_flight: u64,
    /// Bytes not sent yet (`tcpi_notsent_bytes`), those in user space included.
    pub queued: u64,
    /// Bytes wait in user space, because TCP has [`Config::notsent_lowat`](crate::Config::notsent_lowat) unsent. The session is called
    /// again when they have left, before TCP runs dry.
    pub blocked: bool,
    /// Time since TCP received an acknowledgment (`tcpi_last_ack_recv`); [`Span::MAX`]: not known.
    pub since_ack: Span,
    /// Unanswered retransmission timeouts in a row (`tcpi_retransmits`).
    pub timeouts: u32,
    /// The window grows exponentially (`tcpi_snd_cwnd` below `tcpi_snd_ssthresh`).
    pub slow_start: bool,
}

impl Default for CarrierInfo {
    /// A connection that has just been made.
    fn default() -> CarrierInfo {
        CarrierInfo {
            mss: 1448,
            cwnd_pkt: 10,
            srtt: Span::ZERO,
            rttvar: Span::ZERO,
            in_flight: 0,
            queued: 0,
            blocked: false,
            since_ack: Span::MAX,
            timeouts: 0,
            slow_start: true,
        }
    }
}

/// A frame that is made of the session's state when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Control {
    Stream(vmcc_streams::Control),
    Address { added: bool, address: SocketAddr },
    Abandon(CarrierId),
}

/// Content of a record that is sent again if its carrier is lost.
#[derive(Clone, Debug)]
pub(crate) enum Sent {
    Range(SentRange),
    Control(Control),
}

/// A record that the peer has not acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct SentRecord {
    pub(crate) sent: Time,
    /// Age at which it makes its carrier late.
    pub(crate) overdue: Span,
    /// Its content has returned to the session.
    pub(crate) returned: bool,
    pub(crate) frames: Vec<Sent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// A client's carrier whose greeting is not answered yet.
    Greeting,
    Open,
    /// Ended: its slot is free.
    Closed,
}

#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) number: CarrierId,
    pub(crate) state: State,
    pub(crate) binding: Binding,
    pub(crate) deframer: Deframer,
    pub(crate) since: Time,
    pub(crate) info: CarrierInfo,
    /// Bytes handed out since `info` was taken.
    since_info: u64,
    unsent_limit: u64,
    pub(crate) rtt: Rtt,
    pub(crate) outstanding: VecDeque<SentRecord>,
    /// Records that the peer has acknowledged.
    pub(crate) acked: u64,
    /// Records below this were sent again early (`reinject_late`).
    pub(crate) repeated: u64,
    /// Last acknowledgment, or the first record after none was outstanding.
    pub(crate) progress_at: Time,
    /// Last acknowledgment that TCP has received.
    tcp_ack_at: Time,
    pub(crate) suspect_since: Option<Time>,
    pub(crate) lateness: Lateness,
    /// It is late while another is on time: that one carries its data.
    pub(crate) withheld: bool,
    /// It carries data only while no other one can.
    pub(crate) backup: bool,
    /// Last counted record.
    pub(crate) last_sent: Time,
    /// Records received, and how many of them the peer was sent an acknowledgment of.
    pub(crate) received: u64,
    pub(crate) reported: u64,
    /// Time at which an acknowledgment stops waiting for company.
    pub(crate) ack_due: Option<Time>,
    /// An acknowledgment leaves as soon as a carrier has room.
    pub(crate) ack_now: bool,
    /// Complete records that leave before all others.
    pub(crate) urgent: Vec<u8>,
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) next_turn: u64,
}

impl Carrier {
    pub(crate) fn new(
        now: Time,
        number: CarrierId,
        state: State,
        binding: Binding,
        unsent_limit: u64,
    ) -> Carrier {
        Carrier {
            number,
            state,
            binding,
            deframer: Deframer::default(),
            since: now,
            info: CarrierInfo::default(),
            since_info: 0,
            unsent_limit,
            rtt: Rtt::default(),
            outstanding: VecDeque::new(),
            acked: 0,
            repeated: 0,
            progress_at: now,
            tcp_ack_at: Time::ZERO,
            suspect_since: None,
            lateness: Lateness::default(),
            withheld: false,
            backup: false,
            last_sent: now,
            received: 0,
            reported: 0,
            ack_due: None,
            ack_now: false,
            urgent: Vec::new(),
            bytes_out: 0,
            bytes_in: 0,
            next_turn: 0,
        }
    }

    pub(crate) fn set_info(&mut self, now: Time, info: CarrierInfo) {
        let age = info.since_ack.min(now.since(Time::ZERO));
        self.tcp_ack_at = self.tcp_ack_at.max(now - age);
        (self.info, self.since_info) = (info, 0);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect_since.is_some()
    }

    /// Returns true if new data may be put on it.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_open() && !self.is_suspect()
    }

    /// Returns true if data on it are expected to arrive in time.
    pub(crate) fn is_on_time(&self) -> bool {
        self.is_usable() && !self.lateness.is_late()
    }

    /// TCP's retransmission timer has expired since something was acknowledged.
    pub(crate) fn tcp_timed_out(&self) -> bool {
        self.info.timeouts > 0
    }

    pub(crate) fn mss(&self) -> u64 {
        u64::from(self.info.mss.max(1))
    }

    /// Records sent.
    pub(crate) fn sent(&self) -> u64 {
        self.acked + self.outstanding.len() as u64
    }

    fn pipe(&self) -> u64 {
        self.info.in_flight + self.info.queued + self.since_info
    }

    fn window(&self) -> u64 {
        u64::from(self.info.cwnd_pkt) * self.mss() + self.unsent_limit
    }

    /// Bytes of data that may be written now: a window in flight, and beyond it no more unsent than the limit.
    pub(crate) fn room(&self) -> u64 {
        let unsent = self.unsent_limit.saturating_sub(self.info.queued + self.since_info);
        self.window().saturating_sub(self.pipe()).min(unsent)
    }

    /// Returns true if a segment of data may be written now, to a backup only where no other carrier is usable.
    pub(crate) fn takes_data(&self, only_backups: bool) -> bool {
        self.is_usable() && !self.withheld && self.room() >= self.mss() && (only_backups || !self.backup)
    }

    /// Returns true if acknowledgments and limits may be written now.
    pub(crate) fn has_control_room(&self) -> bool {
        self.pipe() < self.window() + CONTROL_RESERVE
    }

    /// RTT that decides between carriers: TCP's, or the session's before there is one.
    pub(crate) fn srtt(&self) -> Span {
        if self.info.srtt == Span::ZERO { self.rtt.srtt() } else { self.info.srtt }
    }

    /// The time at which outstanding records make it suspect. A TCP that repairs losses acknowledges nothing at session level but
    /// receives acknowledgments: it is not silent.
    pub(crate) fn silent_at(&self) -> Time {
        let heard = self.progress_at.max(self.tcp_ack_at);
        (heard + self.rto()).min(self.progress_at + self.rto().times(MAX_RECOVERY_RTOS))
    }

    /// Retransmission timeout of records.
    pub(crate) fn rto(&self) -> Span {
        self.rtt.rto(RTO_LIMITS)
    }

    /// Time in which TCP delivers what it holds.
    fn drain_time(&self) -> Span {
        let window = (u64::from(self.info.cwnd_pkt) * self.mss()).max(1);
        Span::from_us(self.srtt().us().saturating_mul(self.pipe()) / window)
    }

    /// Time in which data that are written now are delivered, losses aside.
    pub(crate) fn expected_delay(&self) -> Span {
        self.srtt().max(self.drain_time())
    }

    pub(crate) fn on_written(&mut self, bytes: usize) {
        self.since_info += bytes as u64;
        self.bytes_out += bytes as u64;
    }

    /// Records a counted record.
    pub(crate) fn on_sent(&mut self, now: Time, max_ack_delay: Span, frames: Vec<Sent>) {
        if self.outstanding.is_empty() {
            self.progress_at = now;
        }
        self.last_sent = now;
        let overdue = overdue_age(&self.rtt, max_ack_delay).max(self.drain_time().times(3));
        self.outstanding.push_back(SentRecord { sent: now, overdue, returned: false, frames });
    }
}

impl PathView for Carrier {
    fn srtt_8us(&self) -> u32 {
        u32::try_from(self.srtt().us() * 8).unwrap_or(u32::MAX)
    }

    fn deviation_8us(&self) -> u32 {
        u32::try_from(self.info.rttvar.us() * 8).unwrap_or(u32::MAX)
    }

    fn cwnd_pkt(&self) -> u32 {
        self.info.cwnd_pkt
    }

    fn in_flight_pkt(&self) -> u32 {
        u32::try_from(self.pipe().div_ceil(self.mss())).unwrap_or(u32::MAX)
    }

    /// Room in segments, that for unsent bytes included: TCP must never run dry between two calls.
    fn room_pkt(&self) -> u32 {
        u32::try_from(self.room() / self.mss()).unwrap_or(u32::MAX)
    }

    fn in_slow_start(&self) -> bool {
        self.info.slow_start
    }

    fn is_established(&self) -> bool {
        self.is_open()
    }

    fn is_backup(&self) -> bool {
        self.backup
    }

    fn has_failed(&self) -> bool {
        self.is_suspect() || self.withheld
    }

    /// Never in the way of data: what is lost returns to the session.
    fn is_in_loss(&self) -> bool {
        false
    }

    fn is_paced_out(&self) -> bool {
        false
    }

    fn next_turn(&self) -> u64 {
        self.next_turn
    }
}
