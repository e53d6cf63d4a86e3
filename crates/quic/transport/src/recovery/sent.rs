//! Packets that were sent: what was in them, so that what is lost can be said again.

use std::collections::VecDeque;
use std::ops::Range;
use vmcc_streams::SentRange;
use vmcc_units::time::{Span, Time};

/// A frame that is made of the connection's state at the moment when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Control {
    HandshakeDone,
    Stream(vmcc_streams::Control),
    /// The connection id of a path with this sequence number.
    NewCid(u32, u64),
    RetireCid(u32, u64),
    /// A path is given up, with this code.
    PathAbandon(u32, u64),
    /// PATH_STATUS: the path is available, or a backup.
    PathStatus(u32),
    MaxPathId,
    PathsBlocked,
    PathCidsBlocked(u32),
    NewToken,
}

/// A frame of a packet that was sent, as far as its fate matters.
#[derive(Clone, Debug)]
pub(crate) enum Sent {
    Stream(SentRange),
    Crypto(Range<u64>),
    Control(Control),
    /// An acknowledgment of this path's packets up to a number.
    Ack {
        path: u32,
        largest: u64,
    },
    /// Not repeated: probes of liveness and of size, datagrams, path validation.
    Once,
}

/// Frames of a packet: nearly always one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frames {
    first: Option<Sent>,
    more: Vec<Sent>,
}

impl Frames {
    #[inline]
    pub(crate) fn push(&mut self, frame: Sent) {
        match self.first {
            None => self.first = Some(frame),
            Some(_) => self.more.push(frame),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Bytes of streams.
    pub(crate) fn stream_bytes(&self) -> u64 {
        let ranges = self.first.iter().chain(&self.more).filter_map(|frame| match frame {
            Sent::Stream(sent) => Some(sent.range.end - sent.range.start),
            _ => None,
        });
        ranges.sum()
    }
}

impl IntoIterator for Frames {
    type Item = Sent;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Sent>, std::vec::IntoIter<Sent>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}

/// A packet that is neither acknowledged nor lost.
#[derive(Clone, Debug)]
pub(crate) struct SentPacket {
    pub(crate) sent: Time,
    /// Age at which it makes its path late.
    pub(crate) overdue: Span,
    /// Bytes that count as in flight; 0 for acknowledgments alone.
    pub(crate) size: u16,
    pub(crate) eliciting: bool,
    /// It left ECN-capable.
    pub(crate) ect: bool,
    /// A probe of the path's packet size: its loss says nothing of congestion.
    pub(crate) mtu_probe: bool,
    /// Its frames have left on another path since.
    pub(crate) reinjected: bool,
    /// It does not count as in flight (any more), although nobody knows what became of it.
    pub(crate) free: bool,
    pub(crate) frames: Frames,
}

impl SentPacket {
    /// Bytes of it that count against a window.
    pub(crate) fn in_flight(&self) -> u64 {
        if self.free { 0 } else { self.size.into() }
    }
}

/// Packets of one number space that are out, by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentPackets {
    /// Number of the first of `list`.
    base: u64,
    list: VecDeque<Option<SentPacket>>,
    eliciting: usize,
}

impl SentPackets {
    /// The number of the next packet.
    pub(crate) fn next(&self) -> u64 {
        self.base + self.list.len() as u64
    }

    /// The lowest that is out, or the next one.
    pub(crate) fn lowest(&self) -> u64 {
        self.base
    }

    /// Number of ack-eliciting packets.
    pub(crate) fn eliciting(&self) -> usize {
        self.eliciting
    }

    /// Appends the packet with the number [`next`](Self::next).
    pub(crate) fn push(&mut self, packet: SentPacket) {
        self.eliciting += usize::from(packet.eliciting);
        self.list.push_back(Some(packet));
    }

    /// Takes a packet out, if it is still there.
    pub(crate) fn take(&mut self, pn: u64) -> Option<SentPacket> {
        let i = usize::try_from(pn.checked_sub(self.base)?).ok()?;
        let packet = self.list.get_mut(i)?.take()?;
        self.eliciting -= usize::from(packet.eliciting);
        Some(packet)
    }

    /// Lets go of the front that has gaps only.
    pub(crate) fn trim(&mut self) {
        while let Some(None) = self.list.front() {
            self.list.pop_front();
            self.base += 1;
        }
        // What a burst took is not kept by a connection that has become idle.
        if self.list.is_empty() && self.list.capacity() > 16 {
            self.list = VecDeque::new();
        }
    }

    /// Those that are out below `end`, oldest first.
    pub(crate) fn below(&mut self, end: u64) -> impl Iterator<Item = (u64, &mut SentPacket)> {
        let (base, count) = (self.base, end.saturating_sub(self.base));
        let list = self.list.iter_mut().enumerate().take(count as usize);
        list.filter_map(move |(i, packet)| packet.as_mut().map(|packet| (base + i as u64, packet)))
    }

    /// Those that are out from `begin` on, oldest first.
    pub(crate) fn from(&self, begin: u64) -> impl Iterator<Item = &SentPacket> {
        self.list.iter().skip(begin.saturating_sub(self.base) as usize).flatten()
    }

    /// All that are out, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &SentPacket> {
        self.list.iter().flatten()
    }

    /// Takes everything out of flight, and keeps it on record; returns packets and bytes.
    pub(crate) fn free_all(&mut self) -> (u64, u64) {
        let (mut packets, mut bytes) = (0, 0);
        for packet in self.list.iter_mut().flatten().filter(|packet| packet.in_flight() > 0) {
            (packets, bytes) = (packets + 1, bytes + packet.in_flight());
            packet.free = true;
        }
        (packets, bytes)
    }

    /// Takes everything out; returns packets and bytes that were in flight.
    pub(crate) fn discard(&mut self) -> (u64, u64) {
        let bytes = self.drain().map(|packet| packet.in_flight()).filter(|bytes| *bytes > 0);
        bytes.fold((0, 0), |(packets, sum), bytes| (packets + 1, sum + bytes))
    }

    /// Takes everything out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = SentPacket> {
        self.base = self.next();
        self.eliciting = 0;
        std::mem::take(&mut self.list).into_iter().flatten()
    }
}
