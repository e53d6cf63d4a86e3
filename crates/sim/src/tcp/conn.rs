//! The sending half of a connection: the data stream shared by its subflows.
//!
//! Modelled: data sequence numbers, data acknowledgment, the connection-level receive window, reinjection
//! (RFC 8684 section 3.3), one to [`vmcc_cc::MAX_PATHS`] subflows. Plain TCP is the case of one subflow.
//! A send buffer limits what is written and not acknowledged; a writer that waits goes on when a third of it is free
//! (Linux `sk_stream_is_writeable`).
//! Not modelled: memory that sent data take beside payload, a send buffer that grows (Linux's is always larger than the
//! windows need, up to its limit), data checksums, fallback to TCP, address advertisement (subflows are given).
//!
//! Data are counted in segments. A message's last segment may be short; those lengths are kept in `tails`
//! until acknowledged, every other segment is full.

use super::config::ConnSpec;
use super::limits::{Limit, LimitClock, LimitTimes};
use super::membership::Membership;
use super::subflow::Subflow;
use crate::engine::Timer;
use crate::time::Time;
use crate::traffic::App;
use prefetch_index::prefetch_index;
use std::collections::VecDeque;
use std::slice;
use vmcc_cc::{Group, Sharing};
use vmcc_multipath::{Demand, Paths, Selector};

/// Linux's largest automatic send buffer (`tcp_wmem[2]`): what an endless application can have waiting.
const SEND_BUFFER_BYTES: u64 = 4 << 20;

/// No limit of the data stream.
pub(crate) const ENDLESS: u32 = u32::MAX;

/// A segment that is not full: the last of a message.
#[derive(Clone, Copy, Debug)]
struct Tail {
    data_seq: u32,
    len_bytes: u16,
}

/// Segment up to which a send buffer of `buffer_pkt` that ends at `room_end` must be acknowledged for a third to be free.
fn wake(room_end: u32, buffer_pkt: u32) -> u32 {
    room_end - (u64::from(buffer_pkt) * 2 / 3) as u32
}

/// Segments sent and to be sent again on another subflow, oldest first.
#[derive(Clone, Debug, Default)]
struct Reinjection(VecDeque<u32>);

/// One connection as its sender sees it.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Conn {
    /// First data segment not acknowledged.
    pub(crate) una: u32,
    /// Next new data segment.
    pub(crate) nxt: u32,
    /// One past what the application has written.
    pub(crate) end: u32,
    /// One past what the receiver has room for.
    pub(crate) edge: u32,
    /// One past what the send buffer has room for.
    room_end: u32,
    /// Acknowledged up to here, a third of the send buffer is free.
    wake: u32,
    /// Bytes of a written segment that is not full and waits for another such to be acknowledged (Nagle's algorithm as in
    /// Linux's `tcp_minshall_check`), or for more.
    partial_bytes: u16,
    /// Limit of sending since the last ACK or write.
    pub(crate) limit: Limit,
    /// Index of the first subflow in the shard's table; the others follow.
    pub(crate) first: u32,
    pub(crate) count: u8,
    /// Multipath TCP, even with one subflow.
    pub(crate) multipath: bool,
    /// More than one subflow: the algorithm sees a group.
    pub(crate) grouped: bool,
    /// Number of its first subflow in the group: of a carrier, which is one of its session's.
    pub(crate) slot: u8,
    pub(crate) class: u8,
    pub(crate) config: u16,
    pub(crate) algorithm: u16,
    pub(crate) mss_bytes: u16,
    pub(crate) header_bytes: u16,
    pub(crate) rtt_group: u32,
    pub(crate) selector: Selector,
    pub(crate) started: bool,
    pub(crate) finished: bool,
    /// The host has asked for further subflows.
    pub(crate) joins_begun: bool,
    /// The last written segment ends the stream.
    pub(crate) closing: bool,
    /// `None` before the first.
    reinject: Option<Box<Reinjection>>,
    /// Which subflows have carried a data segment: a bit each, per segment of `una..nxt`, as a ring.
    carried: Box<[u32]>,
    tails: VecDeque<Tail>,
    pub(crate) group: Option<Box<Group>>,
    /// Detection of shared bottlenecks; `None` if the algorithm has none.
    pub(crate) sharing: Option<Box<Sharing>>,
    /// The pool that detects them for it.
    pub(crate) pool: Option<Box<Membership>>,
    pub(crate) app: App,
    pub(crate) app_timer: Timer,
    /// Chunks that a paced application has written.
    pub(crate) chunks: u64,
    /// End of the on/off application's current on period.
    pub(crate) on_until: Time,
    pub(crate) start: Time,
    pub(crate) stop: Time,
    pub(crate) established_at: Time,
    pub(crate) acknowledged_at: Time,
    pub(crate) host: u32,
    /// Index among all connections of the run.
    pub(crate) global: u32,
    pub(crate) trace: bool,
    /// Time at which the pending request was written or, of an object, began to wait; and number of requests sent, or answered by
    /// a server.
    pub(crate) asked_at: Time,
    pub(crate) asked: u32,
    /// Segments that the send buffer holds.
    buffer_pkt: u32,
    pub(crate) limit_clock: LimitClock,
}

// A run may have a million of them.
const _: () = assert!(size_of::<Conn>() <= 384);

impl Conn {
    pub(crate) fn new(
        spec: &ConnSpec,
        send_buffer_bytes: u64,
        (global, first): (u32, u32),
        (mss_bytes, header_bytes): (u16, u16),
    ) -> Conn {
        let buffer_bytes = send_buffer_bytes.saturating_mul(spec.subflows.len() as u64);
        let buffer_pkt = u32::try_from(buffer_bytes / u64::from(mss_bytes)).unwrap_or(ENDLESS).max(1);
        Conn {
            una: 0,
            nxt: 0,
            end: 0,
            edge: 0,
            room_end: buffer_pkt,
            wake: wake(buffer_pkt, buffer_pkt),
            partial_bytes: 0,
            limit: Limit::Idle,
            first,
            count: spec.subflows.len() as u8,
            multipath: spec.multipath || spec.subflows.len() > 1,
            grouped: spec.subflows.len() > 1,
            slot: 0,
            class: spec.class,
            config: spec.config.0,
            algorithm: spec.algorithm.0,
            mss_bytes,
            header_bytes,
            rtt_group: spec.group,
            selector: Selector::new(spec.scheduler),
            started: false,
            finished: false,
            joins_begun: false,
            closing: false,
            reinject: None,
            carried: Box::default(),
            tails: VecDeque::new(),
            group: (spec.subflows.len() > 1).then(Box::default),
            sharing: None,
            pool: None,
            app: spec.app.clone(),
            app_timer: Timer::new(),
            chunks: 0,
            buffer_pkt,
            on_until: Time::ZERO,
            start: spec.start,
            stop: spec.stop,
            established_at: Time::NEVER,
            acknowledged_at: Time::NEVER,
            host: spec.sender,
            global,
            trace: spec.trace,
            asked_at: Time::NEVER,
            asked: 0,
            limit_clock: LimitClock::default(),
        }
    }

    /// Asks for the cache lines that an ACK touches.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_index(slice::from_ref(&self.una), 0);
        prefetch_index(slice::from_ref(&self.reinject), 0);
        if let Some(group) = &self.group {
            for pair in group.published().chunks(2) {
                prefetch_index(pair, 0);
            }
        }
    }

    /// Segments that a message of `bytes` takes.
    pub(crate) fn segments(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(u64::from(self.mss_bytes))).unwrap_or(ENDLESS)
    }

    /// Bytes of the `number`-th answer; `None` of an application that asks for nothing, or no more.
    pub(crate) fn answer_bytes(&self, number: u32) -> Option<u64> {
        match &self.app {
            App::RequestResponse { response_bytes, .. } => Some(*response_bytes),
            App::Fetches { objects, .. } => objects.get(number as usize).map(|object| object.bytes),
            App::Bulk | App::Sized { .. } | App::Paced { .. } | App::OnOff { .. } | App::Carrier => None,
        }
    }

    /// The application writes a message of at least one byte.
    pub(crate) fn write(&mut self, bytes: u64) {
        self.admit();
        let segments = self.segments(bytes.max(1));
        self.end = self.end.saturating_add(segments);
        let rest = bytes % u64::from(self.mss_bytes);
        if rest != 0 && self.end != ENDLESS {
            self.tails.push_back(Tail { data_seq: self.end - 1, len_bytes: rest as u16 });
        }
    }

    /// The application writes more of a stream without messages.
    pub(crate) fn append(&mut self, bytes: u64) {
        self.admit();
        // What has not been sent of a short segment is filled first.
        if self.tails.back().is_some_and(|t| t.data_seq + 1 == self.end && t.data_seq >= self.nxt)
            && let Some(tail) = self.tails.pop_back()
        {
            self.end -= 1;
            self.partial_bytes = tail.len_bytes;
        }
        let (all, mss) = (u64::from(self.partial_bytes).saturating_add(bytes), u64::from(self.mss_bytes));
        self.end = self.end.saturating_add(u32::try_from(all / mss).unwrap_or(ENDLESS));
        self.partial_bytes = (all % mss) as u16;
        self.flush(false);
    }

    /// The application writes more of a stream, and short segments do not wait (`TCP_NODELAY`).
    pub(crate) fn append_at_once(&mut self, bytes: u64) {
        self.append(bytes);
        self.flush(true);
    }

    /// Bytes that were written and never sent.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        let unsent = self.tails.iter().rev().take_while(|tail| tail.data_seq >= self.nxt);
        let missing: u64 = unsent.map(|tail| u64::from(self.mss_bytes - tail.len_bytes)).sum();
        u64::from(self.end - self.nxt) * u64::from(self.mss_bytes) + u64::from(self.partial_bytes) - missing
    }

    /// A short segment goes if no other is on its way, or if it is the last.
    #[cold]
    fn flush(&mut self, last: bool) {
        if self.partial_bytes != 0 && (last || self.tails.is_empty()) && self.end != ENDLESS {
            self.tails.push_back(Tail { data_seq: self.end, len_bytes: self.partial_bytes });
            self.partial_bytes = 0;
            self.end += 1;
        }
    }

    /// The application has written everything.
    pub(crate) fn close(&mut self) {
        self.flush(true);
        self.closing = true;
    }

    /// A writer that does not wait has all that is free.
    fn admit(&mut self) {
        if self.end <= self.room_end {
            self.refill();
        }
    }

    #[cold]
    fn refill(&mut self) {
        self.room_end = self.una.saturating_add(self.buffer_pkt);
        self.wake = wake(self.room_end, self.buffer_pkt);
    }

    /// The application writes no more than what has been sent.
    pub(crate) fn cut_off(&mut self) {
        self.partial_bytes = 0;
        self.end = self.end.min(self.nxt);
        self.tails.retain(|t| t.data_seq < self.end);
        self.closing = true;
    }

    /// Payload of a data segment, in bytes.
    #[inline]
    pub(crate) fn len_of(&self, data_seq: u32) -> u16 {
        if self.tails.is_empty() {
            return self.mss_bytes;
        }
        self.short_len_of(data_seq)
    }

    fn short_len_of(&self, data_seq: u32) -> u16 {
        match self.tails.binary_search_by_key(&data_seq, |t| t.data_seq) {
            Ok(i) => self.tails[i].len_bytes,
            Err(_) => self.mss_bytes,
        }
    }

    /// True if `data_seq` is the stream's last segment.
    #[inline]
    pub(crate) fn is_last(&self, data_seq: u32) -> bool {
        self.closing && data_seq + 1 == self.end
    }

    /// One past what is written, has room in the send buffer, and is allowed by the window.
    #[inline]
    pub(crate) fn limit(&self) -> u32 {
        self.end.min(self.edge).min(self.room_end)
    }

    /// New data that may be sent, in segments.
    #[inline]
    pub(crate) fn sendable(&self) -> u32 {
        self.limit().saturating_sub(self.nxt)
    }

    /// Everything acknowledged up to `data_ack`; window open up to `edge`.
    #[inline]
    pub(crate) fn acknowledge(&mut self, data_ack: u32, window: u32) {
        if data_ack > self.una && data_ack <= self.nxt {
            self.una = data_ack;
            while self.tails.front().is_some_and(|t| t.data_seq < data_ack) {
                self.tails.pop_front();
            }
            if self.partial_bytes != 0 {
                self.flush(false);
            }
            if data_ack >= self.wake {
                self.refill();
            }
        }
        self.edge = self.edge.max(data_ack.saturating_add(window));
    }

    /// Limit of new data, congestion windows aside: those of all subflows have room.
    pub(crate) fn limit_of_data(&self) -> Limit {
        if self.nxt >= self.end {
            Limit::Application
        } else if self.room_end < self.edge {
            Limit::SendBuffer
        } else {
            Limit::ReceiveWindow
        }
    }

    /// From `now` on, `limit` holds.
    #[inline]
    pub(crate) fn enter_limit(&mut self, limit: Limit, now: Time) {
        if limit != self.limit {
            self.limit_clock.change(self.limit, now);
            self.limit = limit;
        }
    }

    /// Time under each limit until `now`.
    pub(crate) fn limit_times(&self, now: Time) -> LimitTimes {
        self.limit_clock.until(self.limit, now)
    }

    /// The subflow for the next segment, or none for now; `carriers` have carried it. RTTs are read from the slots that subflows
    /// publish, which lie together. A smoothed RTT is as old as the last packet: where the windows of subflows are not what limits,
    /// the RTT that is expected counts, or one path's queue holds the whole receive window while the others are idle.
    #[inline]
    pub(crate) fn select(&mut self, subs: &[Subflow], carriers: u32, now_us: u64) -> Option<usize> {
        let mss_bytes = u64::from(self.mss_bytes);
        let demand = || Demand {
            now_us,
            mss_bytes,
            window_bytes: u64::from(self.edge - self.una) * mss_bytes,
            backlog_bytes: (u64::from(self.end - self.nxt) * mss_bytes).min(SEND_BUFFER_BYTES),
        };
        let shared = matches!(self.limit, Limit::ReceiveWindow | Limit::SendBuffer);
        let group = self.group.as_deref();
        let srtt_8us = |r: usize| match shared {
            false => group.map_or(0, |group| group.path[r].srtt_8us),
            true => subs[r].expected_rtt_8us(),
        };
        self.selector.select(subs, Paths(carriers), srtt_8us, demand)
    }

    /// Notes that subflow `r` carries `data_seq`; `first` forgets who did before.
    #[inline]
    pub(crate) fn carry(&mut self, data_seq: u32, r: usize, first: bool) {
        if !self.grouped {
            return;
        }
        if (self.nxt - self.una) as usize + 1 >= self.carried.len() {
            self.grow_carried();
        }
        let mask = self.carried.len() - 1;
        let slot = &mut self.carried[data_seq as usize & mask];
        *slot = if first { 1 << r } else { *slot | 1 << r };
    }

    fn grow_carried(&mut self) {
        let mut bigger = vec![0; (self.carried.len() * 2).max(256)].into_boxed_slice();
        let mask = bigger.len() - 1;
        if !self.carried.is_empty() {
            for seq in self.una..self.nxt {
                bigger[seq as usize & mask] = self.carried[seq as usize & (self.carried.len() - 1)];
            }
        }
        self.carried = bigger;
    }

    /// Subflows that have carried `data_seq`, as bits.
    pub(crate) fn carriers(&self, data_seq: u32) -> u32 {
        if self.carried.is_empty() { 0 } else { self.carried[data_seq as usize & (self.carried.len() - 1)] }
    }

    /// Subflow `r` restarts: what it carried before was lost with it.
    pub(crate) fn forget_carrier(&mut self, r: usize) {
        self.carried.iter_mut().for_each(|carriers| *carriers &= !(1 << r));
    }

    /// First data segment waiting for another subflow, if any.
    #[inline]
    pub(crate) fn next_reinjection(&mut self) -> Option<u32> {
        let queue = &mut self.reinject.as_deref_mut()?.0;
        while let Some(&seq) = queue.front() {
            if seq >= self.una {
                return Some(seq);
            }
            queue.pop_front();
        }
        None
    }

    /// Removes the segment that [`Conn::next_reinjection`] has returned.
    pub(crate) fn pop_reinjection(&mut self) {
        if let Some(queue) = self.reinject.as_deref_mut() {
            queue.0.pop_front();
        }
    }

    /// True if segments wait for another subflow.
    #[inline]
    pub(crate) fn has_reinjections(&self) -> bool {
        self.reinject.as_deref().is_some_and(|queue| !queue.0.is_empty())
    }

    /// Queues segments for other subflows, oldest first, each once.
    pub(crate) fn queue_reinjection(&mut self, data_seqs: impl Iterator<Item = u32>) {
        let queue = &mut self.reinject.get_or_insert_default().0;
        queue.extend(data_seqs.filter(|&seq| seq >= self.una));
        queue.make_contiguous().sort_unstable();
        let mut last = None;
        queue.retain(|&seq| last.replace(seq) != Some(seq));
    }

    /// Frees what a finished connection needs no more.
    pub(crate) fn release(&mut self) {
        self.reinject = None;
        self.carried = Box::default();
        self.tails = VecDeque::new();
        self.sharing = None;
        self.finished = true;
    }
}
