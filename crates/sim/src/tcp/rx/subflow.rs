//! The receiving half of a subflow.

use super::out_of_order::OutOfOrder;
use crate::engine::Timer;
use crate::packet::RouteId;
use crate::tcp::config::{EcnMode, TcpConfig};
use crate::tcp::record::ReceiverCounters;
use crate::tcp::reorder::Arrivals;
use crate::time::Time;
use prefetch_index::prefetch_index;
use std::slice;

/// The receiving half of a subflow.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct RxSubflow {
    pub(super) arrivals: Arrivals,
    pub(crate) conn: u32,
    /// Index of the sending half in the sender's shard.
    pub(crate) to: u32,
    pub(crate) route: RouteId,
    pub(super) unacked: u8,
    pub(super) quick: u8,
    pub(super) ecn: EcnMode,
    /// The last data packet carried CE.
    pub(super) ce: bool,
    /// ECE is repeated until CWR (classic).
    pub(super) echo_ce: bool,
    /// True if the segment to be acknowledged had arrived before.
    pub(super) repeated: bool,
    /// `sent` of the oldest segment not acknowledged.
    pub(super) echo: Time,
    pub(super) timer: Timer,
    pub(crate) counters: ReceiverCounters,
    pub(super) out_of_order: Option<Box<OutOfOrder>>,
}

impl RxSubflow {
    pub(crate) fn new(conn: u32, to: u32, route: RouteId, config: &TcpConfig, accurate: bool) -> RxSubflow {
        RxSubflow {
            arrivals: Arrivals::default(),
            conn,
            to,
            route,
            unacked: 0,
            quick: config.quick_acks,
            ecn: if accurate { EcnMode::Accurate } else { config.ecn },
            ce: false,
            echo_ce: false,
            repeated: false,
            echo: Time::ZERO,
            timer: Timer::new(),
            counters: ReceiverCounters::default(),
            out_of_order: None,
        }
    }

    /// Segment `seq` has come again (Linux `tcp_dsack_set`): the range that holds it, if it is out of order, comes second.
    pub(super) fn repeated(&mut self, seq: u32) {
        let store = self.out_of_order.get_or_insert_default();
        store.duplicate = Some(seq);
        let next = self.arrivals.next();
        if seq > next {
            store.report(self.arrivals.run_around(seq), next);
        }
    }

    /// Asks for the cache lines that a data packet touches.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_index(slice::from_ref(&self.arrivals), 0);
        prefetch_index(slice::from_ref(&self.counters), 0);
    }

    /// The delayed-ACK timer, for the shard's dispatch.
    pub(crate) fn timer(&mut self) -> &mut Timer {
        &mut self.timer
    }
}
