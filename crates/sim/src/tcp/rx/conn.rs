//! The receiving half of a connection.

use super::out_of_order::BufferedSegment;
use super::subflow::RxSubflow;
use crate::engine::Timer;
use crate::tcp::ack_path::AckRoutes;
use crate::tcp::config::TcpConfig;
use crate::tcp::conn::Conn;
use crate::tcp::reorder::Arrivals;
use crate::tcp::window::Window;
use crate::time::{Span, Time};
use crate::traffic::App;
use prefetch_index::prefetch_index;
use std::slice;

/// Action of a connection of the same shard when a message is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageAction {
    /// The server answers on this connection; requests are all alike.
    Respond {
        /// Index of the connection.
        conn: u32,
        /// Bytes of each request.
        request_bytes: u64,
    },
    /// The client notes the answer to this connection's request.
    Answered(u32),
}

/// State of a receiver that few connections have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rare {
    /// The reader's time per segment; zero reads at once.
    pub(super) read_gap: Span,
    pub(super) read_timer: Timer,
    /// Routes of acknowledgments, if they share one.
    pub(crate) ack_routes: Option<AckRoutes>,
    /// Segments that are not full and wait for earlier data: sequence number and bytes missing.
    short: Vec<(u32, u16)>,
    /// Action when a message is complete; `None`: no connection acts.
    pub(crate) on_message: Option<MessageAction>,
}

/// The receiving half of a connection.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct RxConn {
    pub(super) data: Arrivals,
    /// Read by the application.
    pub(super) read: u32,
    pub(super) window: Window,
    pub(crate) mss_bytes: u16,
    pub(super) header_bytes: u16,
    pub(crate) ack_bytes: u16,
    pub(crate) class: u8,
    pub(crate) config: u16,
    /// One past the last segment of the stream, once known.
    pub(super) end: u32,
    /// Multipath TCP, even with one subflow: what a subflow holds out of order takes nothing of the window.
    pub(super) multipath: bool,
    /// SACK ranges per ACK.
    pub(super) sack_ranges: u8,
    /// Subflows.
    pub(crate) count: u8,
    /// One past the segments of the message that is reported next; `u32::MAX`: none is.
    pub(crate) message_end: u32,
    pub(crate) messages: u32,
    pub(crate) completed: Time,
    /// Payload that the application can have: in order in the connection's stream.
    pub(crate) delivered_bytes: u64,
    /// Time of the last delivery, and longest time between two deliveries until the application stops.
    pub(crate) delivered_at: Time,
    pub(crate) stalled: Span,
    pub(super) stop: Time,
    /// Segments that wait in the queues of subflows, and the most that waited there and in the connection's.
    pub(super) in_subflows: u32,
    pub(crate) most_held: u32,
    pub(crate) host: u32,
    /// Its first subflow in the shard's table; the others follow.
    pub(crate) first: u32,
    pub(crate) rare: Option<Box<Rare>>,
}

// A run may have a million of them.
const _: () = assert!(size_of::<RxConn>() <= 192);

/// SACK ranges that fit beside timestamps (12 bytes) and an 8-byte data ACK (12) in 40 bytes of options.
const MULTIPATH_SACK_RANGES: u8 = 1;

impl RxConn {
    /// The far end of `tx`.
    pub(crate) fn new(config: &TcpConfig, tx: &Conn, read_rate_bps: Option<u64>, host: u32) -> RxConn {
        let mss_bytes = tx.mss_bytes;
        let gap_ps = u64::from(mss_bytes) * 8 * 1_000_000_000_000;
        let reader =
            |rate: u64| Rare { read_gap: Span::from_ps((gap_ps / rate.max(1)).max(1)), ..Rare::default() };
        RxConn {
            data: Arrivals::default(),
            read: 0,
            window: Window::new(config, mss_bytes),
            mss_bytes,
            header_bytes: tx.header_bytes,
            ack_bytes: config.ack_bytes,
            class: tx.class,
            config: tx.config,
            end: u32::MAX,
            multipath: tx.multipath,
            sack_ranges: if tx.multipath {
                config.sack_ranges.min(MULTIPATH_SACK_RANGES)
            } else {
                config.sack_ranges
            },
            message_end: u32::MAX,
            messages: 0,
            completed: Time::NEVER,
            delivered_bytes: 0,
            delivered_at: Time::NEVER,
            stalled: Span::ZERO,
            stop: if matches!(tx.app, App::Bulk) { tx.stop } else { Time::NEVER },
            in_subflows: 0,
            most_held: 0,
            host,
            first: 0,
            count: tx.count,
            rare: read_rate_bps.map(|rate| Box::new(reader(rate))),
        }
    }

    /// Segments delivered in order.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        self.data.next()
    }

    /// The application could have more at `now`.
    #[inline]
    pub(super) fn progress(&mut self, now: Time) {
        if now.since(self.delivered_at) > self.stalled {
            self.stall(now);
        }
        self.delivered_at = now;
    }

    /// Never before the first: the beginning is never earlier. What was written last may arrive after the end.
    #[cold]
    pub(super) fn stall(&mut self, now: Time) {
        self.stalled = self.stalled.max(now.min(self.stop).since(self.delivered_at));
    }

    /// Somebody waits for a message of `bytes` behind those before it, or for none.
    pub(crate) fn await_message(&mut self, bytes: Option<u64>) {
        let before = if self.message_end == u32::MAX { 0 } else { self.message_end };
        let segments =
            |bytes: u64| u32::try_from(bytes.div_ceil(u64::from(self.mss_bytes))).unwrap_or(u32::MAX);
        self.message_end = bytes.map_or(u32::MAX, |bytes| before.saturating_add(segments(bytes)));
    }

    /// Routes of acknowledgments, if they share one.
    #[inline]
    pub(crate) fn ack_routes(&mut self) -> Option<&mut AckRoutes> {
        self.rare.as_deref_mut()?.ack_routes.as_mut()
    }

    /// Notes the most segments that have waited for earlier ones.
    #[inline]
    pub(super) fn note_held(&mut self) {
        self.most_held = self.most_held.max(self.in_subflows + self.data.held());
    }

    /// Counts what `segment`, new and not simply the next one, has brought in order since `before`.
    pub(super) fn count_in_order(&mut self, segment: BufferedSegment, before: u32) {
        if segment.len_bytes < self.mss_bytes {
            let short = &mut self.rare.get_or_insert_default().short;
            short.push((segment.data_seq, self.mss_bytes - segment.len_bytes));
        }
        let next = self.data.next();
        let mut missing_bytes = 0;
        if let Some(rare) = self.rare.as_deref_mut() {
            rare.short.retain(|&(seq, missing)| {
                missing_bytes += if seq < next { u64::from(missing) } else { 0 };
                seq >= next
            });
        }
        self.delivered_bytes += u64::from(next - before) * u64::from(self.mss_bytes) - missing_bytes;
    }

    /// The window as a mirror connection's sender starts with it, in segments.
    pub(crate) fn initial_window(&self) -> u32 {
        self.window.first()
    }

    /// Segments that take room in the receive buffer: not read, or out of order here or on the only subflow.
    #[inline]
    pub(super) fn held(&self, sub: &RxSubflow) -> u32 {
        let own = self.data.next() - self.read + self.data.held();
        if self.multipath { own } else { own + sub.arrivals.held() }
    }

    /// Asks for the cache lines that a data packet touches.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_index(slice::from_ref(&self.data), 0);
        prefetch_index(slice::from_ref(&self.end), 0);
    }

    /// The reader's timer, for the shard's dispatch.
    pub(crate) fn timer(&mut self) -> &mut Timer {
        &mut self.rare.get_or_insert_default().read_timer
    }
}
