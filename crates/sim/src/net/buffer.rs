//! Room and threshold of a link's queue, and the record of what waits in it.

use crate::net::rate::ps_per_byte_q16;
use crate::net::spec::{LimitSpec, LinkSpec, QueueSpec, ThresholdSpec};

/// Most packets that `Link::recent` has a bit for.
pub(crate) const MAX_RECENT: u32 = 63;

/// Rarely used state of a link: also one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Buffer {
    /// Most bytes that wait, the arriving packet included; [`NO_LIMIT`]: any.
    limit_bytes: u32,
    /// Waiting bytes above which to mark; [`NO_LIMIT`]: never.
    mark_bytes: u32,
    /// Waiting packets, as of the last exact count.
    pub(crate) fifo: FifoState,
}

const _: () = assert!(size_of::<Buffer>() == 64);

/// A limit or threshold that is never reached.
const NO_LIMIT: u32 = u32::MAX;

impl Buffer {
    pub(crate) fn new(spec: &LinkSpec) -> Buffer {
        let (limit, mark) = match &spec.queue {
            QueueSpec::Fifo { limit, mark } => (*limit, *mark),
            QueueSpec::Red(red) => (red.limit, None),
            QueueSpec::Classes { .. } | QueueSpec::Shaper { .. } => (LimitSpec::Unlimited, None),
        };
        let limit_bytes = match limit {
            LimitSpec::Bytes(bytes) => u32::try_from(bytes).unwrap_or(NO_LIMIT),
            LimitSpec::Packets(_) | LimitSpec::Unlimited => NO_LIMIT,
        };
        let limit_packets = if let LimitSpec::Packets(count) = limit { count } else { NO_LIMIT };
        let in_bytes = |mark: ThresholdSpec| mark.in_bytes(ps_per_byte_q16(spec.rate_bps));
        let mark_bytes = mark.map_or(NO_LIMIT, |mark| u32::try_from(in_bytes(mark)).unwrap_or(NO_LIMIT));
        Buffer { limit_bytes, mark_bytes, fifo: FifoState::new(limit_packets) }
    }

    /// Backlog in bytes below which neither the threshold nor a limit in bytes is reached.
    pub(crate) fn near_bytes(&self) -> u64 {
        self.limit_bytes.min(self.mark_bytes).into()
    }

    /// No room for a packet of `size` beside the backlog.
    pub(crate) fn is_full(&self, waiting: Backlog, size: u16) -> bool {
        let bytes = waiting.bytes + u64::from(size);
        waiting.packets >= u64::from(self.fifo.limit_packets)
            || (bytes > u64::from(self.limit_bytes) && self.limit_bytes != NO_LIMIT)
    }

    /// An arrival that meets this backlog is marked.
    pub(crate) fn marks(&self, waiting: Backlog) -> bool {
        waiting.bytes > u64::from(self.mark_bytes) && self.mark_bytes != NO_LIMIT
    }
}

/// Packets that wait, without the one in service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// Waiting packets of a link beside `Link::recent`, as of the last exact count.
#[derive(Clone, Debug, Default)]
pub(crate) struct FifoState {
    /// Sizes of those before `Link::recent`, the first `done` of which are kept no longer.
    pub(super) older: Vec<u16>,
    pub(super) done: u32,
    /// Most packets that wait; [`u32::MAX`]: any.
    limit_packets: u32,
    /// Packets accepted before the first that is kept.
    pub(super) gone_packets: u64,
    /// Their bytes.
    pub(super) gone_bytes: u64,
    /// Start of the transmission of the first packet that is kept, in ps.
    pub(super) next_ps: u64,
}

impl FifoState {
    fn new(limit_packets: u32) -> FifoState {
        FifoState { limit_packets, ..FifoState::default() }
    }

    /// With fewer packets in `Link::recent`, fewer than the limit wait.
    #[inline]
    pub(super) fn room(&self) -> u8 {
        let older = u32::try_from(self.older().len()).unwrap_or(u32::MAX);
        self.limit_packets.saturating_sub(older).min(MAX_RECENT) as u8
    }

    #[inline]
    pub(super) fn older(&self) -> &[u16] {
        &self.older[self.done as usize..]
    }

    /// Gives room back before more come, when there is as much of it as of what moves.
    pub(super) fn compact(&mut self) {
        if self.done as usize >= self.older().len() {
            self.older.drain(..self.done as usize);
            self.done = 0;
        }
    }
}
