//! Timer ids: what a timer is for, above the index of its owner in the shard's table. Owners are numbered in order of creation
//! within each shard, so the order of ids does not depend on the partition.

use crate::engine::TimerId;

const INDEX_BITS: u32 = 24;
/// Most owners of one purpose in one shard.
pub(crate) const MAX_INDEX: u32 = (1 << INDEX_BITS) - 1;

/// Purpose of a timer. Each kind of endpoint has a range of consecutive numbers. Timers of one instant are handled in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Purpose(pub(crate) u32);

impl Purpose {
    /// Descheduling of a host: first, so that a host is descheduled before its other timers are handled.
    pub(crate) const DESCHEDULE: Purpose = Purpose(0);
    /// The first of six.
    pub(crate) const TCP: Purpose = Purpose(1);
    pub(crate) const DATAGRAM: Purpose = Purpose(7);
    pub(crate) const PROBE: Purpose = Purpose(8);
    pub(crate) const QUIC: Purpose = Purpose(9);
    /// Sessions over TCP carriers.
    pub(crate) const PLMT: Purpose = Purpose(10);
    /// The first of six, those of the carriers' TCP.
    pub(crate) const PLMT_TCP: Purpose = Purpose(11);
    const MAX: u32 = 31;

    #[inline]
    pub(crate) fn id(self, index: u32) -> TimerId {
        debug_assert!(self.0 <= Purpose::MAX && index <= MAX_INDEX);
        TimerId(self.0 << INDEX_BITS | index)
    }

    #[inline]
    pub(crate) fn of(id: TimerId) -> (Purpose, u32) {
        (Purpose(id.0 >> INDEX_BITS), id.0 & MAX_INDEX)
    }
}
