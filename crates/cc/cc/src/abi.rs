//! The structs of `cc.h` and `host.h`, field by field. Units are in the names, as there.

use crate::{MAX_PATHS, SHARING_PATHS, SSTHRESH_INFINITE};
use std::mem::{offset_of, size_of};
use std::ops::{BitOr, BitOrAssign};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

macro_rules! flags {
    ($(#[$meta:meta])* $name:ident { $($(#[$flag_meta:meta])* $flag:ident = $bit:expr;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl $name {
            $($(#[$flag_meta])* pub const $flag: Self = Self(1 << $bit);)*
            /// No flag.
            pub const NONE: Self = Self(0);

            /// Are all flags of `other` set?
            #[inline]
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Sets or clears the flags of `other`.
            #[inline]
            pub const fn with(self, other: Self, on: bool) -> Self {
                if on { Self(self.0 | other.0) } else { Self(self.0 & !other.0) }
            }
        }

        impl BitOr for $name {
            type Output = Self;
            #[inline]
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl BitOrAssign for $name {
            #[inline]
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }
    };
}

flags! {
    /// `cc_event.flags`.
    EventFlags {
        /// This ACK echoes congestion.
        ECE = 0;
        /// The window, not the application, limited sending.
        CWND_LIMITED = 1;
        /// `peer_ts` is in microseconds; alike on all events of a path.
        PEER_US = 2;
    }
}

flags! {
    /// `cc_slot.flags`; a slot without any flag is free.
    SlotFlags {
        /// The slot belongs to a path.
        ESTABLISHED = 0;
        /// The path is in CWR or fast recovery: its window is in transit to ssthresh.
        RECOVERY = 1;
        /// The path is in recovery from a timeout.
        LOSS = 2;
        /// The window is below ssthresh.
        SLOW_START = 3;
    }
}

flags! {
    /// `cc_decision.set`: which fields are meant.
    DecisionFlags {
        /// `cwnd_pkt` is meant.
        CWND = 0;
        /// `ssthresh_pkt` is meant.
        SSTHRESH = 1;
        /// This path shares a bottleneck with `peer`: close it and reinject its data, unless `peer` is
        /// being closed itself.
        CLOSE_PATH = 2;
        /// New data should go to this path only.
        ONLY_PATH = 3;
        /// New data may go to every path again.
        ALL_PATHS = 4;
        /// `gap_us` is meant.
        GAP = 5;
        /// With [`DecisionFlags::GAP`]: each of those packets shall be acknowledged at once.
        ACK_EACH = 6;
    }
}

/// Recovery state of a path: `enum cc_state`, the states of Linux.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, TryFromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(u32)]
pub enum State {
    /// Nothing unusual.
    #[default]
    Open = 0,
    /// Reordering or the first duplicate acknowledgments.
    Disorder = 1,
    /// Reducing after ECE.
    Cwr = 2,
    /// Fast recovery.
    Recovery = 3,
    /// After a retransmission timeout.
    Loss = 4,
}

/// Cause of a reduction: `enum cc_cause`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, TryFromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(u32)]
pub enum Cause {
    /// No reduction.
    #[default]
    None = 0,
    /// Congestion echoed by the receiver.
    Ece = 1,
    /// A lost packet was found by acknowledgments.
    Loss = 2,
    /// The retransmission timer expired.
    Rto = 3,
}

/// Event on a path, the input of a hook: `struct cc_event`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Event {
    /// Monotonic time; never 0.
    pub now_us: u64,
    /// Flags of this ACK.
    pub flags: EventFlags,
    /// Recovery state.
    pub state: State,
    /// Cause of a reduction; only in `on_congestion`.
    pub cause: Cause,
    /// Own index in the group; 0 without a group.
    pub self_index: u32,
    /// Congestion window, at least 1.
    pub cwnd_pkt: u32,
    /// Slow-start threshold; [`SSTHRESH_INFINITE`](crate::SSTHRESH_INFINITE) until the first reduction.
    pub ssthresh_pkt: u32,
    /// Smoothed round-trip time in 1/8 microsecond; 0: unknown.
    pub srtt_8us: u32,
    /// The host's windowed minimum round-trip time; 0: unknown.
    pub min_rtt_us: u32,
    /// This ACK's round-trip time sample; 0: none.
    pub rtt_us: u32,
    /// Packets newly acknowledged by this ACK; may be 0.
    pub acked_pkt: u32,
    /// Packets in flight; in `on_congestion` RFC 5681's FlightSize; 0: unknown.
    pub in_flight_pkt: u32,
    /// First unacknowledged sequence number, any unit, modulo 2^32.
    pub snd_una: u32,
    /// Next sequence number to send, same unit.
    pub snd_nxt: u32,
    /// The peer's clock when it sent this ACK, in milliseconds (`EventFlags::PEER_US`) from any origin, modulo 2^32; 0: unknown.
    pub peer_ts: u32,
}

/// State of a path that siblings may read: `struct cc_slot`. A zero slot is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Slot {
    /// State of the path.
    pub flags: SlotFlags,
    /// Congestion window.
    pub cwnd_pkt: u32,
    /// Slow-start threshold.
    pub ssthresh_pkt: u32,
    /// Smoothed round-trip time in 1/8 microsecond; 0: unknown.
    pub srtt_8us: u32,
    /// The algorithm's own, copied from [`Path::pub_words`].
    pub pub_words: [u64; 2],
}

/// The paths of one connection: `struct cc_group`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Group {
    /// Slots from here on have never been taken.
    pub end: u32,
    /// Zero.
    pub reserved: u32,
    /// One slot per path; [`Group::publish`] writes them.
    pub path: [Slot; MAX_PATHS],
}

impl Group {
    /// Shows a path to its siblings.
    #[inline]
    pub fn publish(&mut self, index: usize, slot: Slot) {
        self.path[index] = slot;
        self.end = self.end.max(index as u32 + 1);
    }

    /// Slots that have been taken.
    #[inline]
    pub fn published(&self) -> &[Slot] {
        &self.path[..(self.end as usize).min(MAX_PATHS)]
    }
}

impl FromIterator<Slot> for Group {
    fn from_iter<T: IntoIterator<Item = Slot>>(slots: T) -> Self {
        let mut group = Self::default();
        slots.into_iter().enumerate().for_each(|(index, slot)| group.publish(index, slot));
        group
    }
}

/// Bins that a path's history goes back: `CC_SHARING_BINS`.
const SHARING_BINS: usize = 21;
/// Pairs of paths: `CC_SHARING_PAIRS`.
const SHARING_PAIRS: usize = SHARING_PATHS * (SHARING_PATHS - 1) / 2;

/// One path, as the detector of shared bottlenecks sees it: `struct cc_history`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct History {
    /// The bin that is being filled.
    pub bin: u32,
    /// Sum of delays over its ACKs, in 1/1024 of a bin.
    pub delays: u32,
    /// ACKs in it.
    pub acks: u16,
    /// Of them with ECE.
    pub marked: u16,
    /// Of them that tell nothing.
    pub ignored: u16,
    /// Complete bins that will be left out still.
    pub settle: u8,
    /// The trial whose answer is not known yet; 0: none is.
    pub trial: u8,
    /// The window of the probe that is being made; 0: none is.
    pub hold: u16,
    /// The window after it.
    pub back: u16,
    /// End of that probe, in ticks.
    pub until: u16,
    /// Complete bins, as a ring; 0: unknown.
    pub value: [u16; SHARING_BINS],
    /// Shift that a probe of that trial would cause in a queue of its own.
    pub expected: u16,
    /// The bin of the last trial, modulo 2^8.
    pub tried: u8,
    /// Blocks in a row, up to some, after which a pair was in doubt.
    pub doubts: u8,
}

/// State of the detector of shared bottlenecks for a connection: `struct cc_sharing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sharing {
    /// One history per path.
    pub path: [History; SHARING_PATHS],
    /// One value per pair of paths.
    pub evidence: [i8; SHARING_PAIRS],
    /// Does one of a pair answer its probes, and the other not?
    pub alone: [i8; SHARING_PAIRS],
    /// A bin is `2^shift` microseconds long; 0: none has begun.
    pub shift: u32,
}

/// An algorithm's own state on one path: `struct cc_path`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Path {
    /// Growth not yet turned into whole packets.
    pub credit_q40: i64,
    /// Words that siblings may read; the host copies them to the path's slot when it publishes the path.
    pub pub_words: [u64; 2],
    /// Private to the algorithm.
    pub priv_words: [u64; 7],
}

/// Decision of a hook: `struct cc_decision`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Decision {
    /// Which fields are meant.
    pub set: DecisionFlags,
    /// New congestion window.
    pub cwnd_pkt: u32,
    /// New slow-start threshold.
    pub ssthresh_pkt: u32,
    /// With [`DecisionFlags::CLOSE_PATH`], the slot of the path that is kept.
    pub peer: u32,
    /// Time between two packets from now on, each of which asks for an acknowledgment of its own with
    /// [`DecisionFlags::ACK_EACH`]; 0: no limit.
    pub gap_us: u32,
}

impl Decision {
    /// The window to take over, if any.
    #[inline]
    pub fn cwnd(&self) -> Option<u32> {
        self.set.has(DecisionFlags::CWND).then_some(self.cwnd_pkt)
    }

    /// The slow-start threshold to take over, if any.
    #[inline]
    pub fn ssthresh(&self) -> Option<u32> {
        self.set.has(DecisionFlags::SSTHRESH).then_some(self.ssthresh_pkt)
    }

    /// The time between two packets from now on, if that changes; 0: no limit.
    #[inline]
    pub fn gap_us(&self) -> Option<u32> {
        self.set.has(DecisionFlags::GAP).then_some(self.gap_us)
    }

    /// The path to keep if this one should be closed.
    #[inline]
    pub fn close_in_favor_of(&self) -> Option<usize> {
        self.set.has(DecisionFlags::CLOSE_PATH).then_some(self.peer as usize)
    }
}

/// One path under the simple driver of `host.h`: `struct cc_host`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Host {
    /// The algorithm's state.
    pub path: Path,
    /// Decision of the last step, all hooks together.
    pub decision: Decision,
    /// Congestion window.
    pub cwnd_pkt: u32,
    /// Slow-start threshold.
    pub ssthresh_pkt: u32,
    /// Recovery state.
    pub state: State,
    /// Nonzero until `snd_una` reaches `cut_end`.
    pub reducing: u32,
    /// `snd_nxt` at the last reduction.
    pub cut_end: u32,
}

impl Host {
    /// A path with this window that was never reduced.
    pub fn new(cwnd_pkt: u32) -> Self {
        Self {
            path: Path::default(),
            decision: Decision::default(),
            cwnd_pkt,
            ssthresh_pkt: SSTHRESH_INFINITE,
            state: State::Open,
            reducing: 0,
            cut_end: 0,
        }
    }

    /// The slot that siblings see, as `cc_host_publish` makes it.
    pub fn slot(&self, srtt_8us: u32) -> Slot {
        let reducing = matches!(self.state, State::Cwr | State::Recovery);
        Slot {
            flags: SlotFlags::ESTABLISHED
                .with(SlotFlags::RECOVERY, reducing)
                .with(SlotFlags::LOSS, self.state == State::Loss)
                .with(SlotFlags::SLOW_START, self.cwnd_pkt < self.ssthresh_pkt),
            cwnd_pkt: self.cwnd_pkt,
            ssthresh_pkt: self.ssthresh_pkt,
            srtt_8us,
            pub_words: self.path.pub_words,
        }
    }
}

const _: () = {
    assert!(size_of::<Event>() == 64 && offset_of!(Event, peer_ts) == 60);
    assert!(offset_of!(Event, self_index) == 20 && offset_of!(Event, snd_una) == 52);
    assert!(size_of::<Slot>() == 32 && offset_of!(Slot, pub_words) == 16);
    assert!(size_of::<Group>() == 8 + 32 * MAX_PATHS && offset_of!(Group, path) == 8);
    assert!(size_of::<Path>() == 80 && offset_of!(Path, priv_words) == 24);
    assert!(size_of::<History>() == 68 && offset_of!(History, value) == 22);
    assert!(size_of::<Sharing>() == 604 && offset_of!(Sharing, evidence) == 544);
    assert!(size_of::<Decision>() == 20 && offset_of!(Decision, gap_us) == 16);
    assert!(size_of::<Host>() == 120 && offset_of!(Host, cwnd_pkt) == 100);
};
