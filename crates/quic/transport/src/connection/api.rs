//! The application's calls: streams, datagrams, figures.

use super::*;
use vmcc_streams::{Dir, StreamError};
use vmcc_units::time::Span;

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// UDP datagrams that came.
    pub datagrams_in: u64,
    /// UDP datagrams that left.
    pub datagrams_out: u64,
    /// Bytes of them.
    pub bytes_in: u64,
    /// Bytes of them.
    pub bytes_out: u64,
    /// Packets that the peer saw marked with congestion.
    pub ecn_ce: u64,
    /// Application datagrams that became too old before they left, that did not fit a packet any more, or that nobody read in time.
    pub datagrams_dropped: u64,
}

/// A path as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathReport {
    /// Its number.
    pub id: PathId,
    /// From where to where.
    pub route: Route,
    /// Open: it can carry data.
    pub open: bool,
    /// Silent while it should answer.
    pub failed: bool,
    /// Backup: it carries data only where no other path can.
    pub backup: bool,
    /// Smoothed round trip; zero before the first sample.
    pub srtt: Span,
    /// The last sample of the round trip.
    pub latest_rtt: Span,
    /// Number of samples.
    pub rtt_samples: u64,
    /// Congestion window in packets; where that is one of all paths, the whole.
    pub cwnd_pkt: u32,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Bytes of a packet.
    pub mtu: u16,
    /// ECN marks pass.
    pub ecn: bool,
    /// Bytes that came, and that left, since its address last changed.
    pub bytes: (u64, u64),
    /// Bytes of streams that came, those that had come before too.
    pub payload_in: u64,
    /// Bytes of streams that the peer has acknowledged, those that it had before too.
    pub payload_out: u64,
    /// Packets that it has acknowledged.
    pub acked_packets: u64,
    /// Those of them that it saw marked with congestion.
    pub marked_packets: u64,
    /// Packets that were lost.
    pub lost_packets: u64,
    /// Times that nothing was acknowledged for a probe timeout.
    pub timeouts: u64,
    /// Times that losses or marks on it reduced its window.
    pub reductions: u64,
}

impl Connection {
    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        // Streams exist after `Connected` and before `Closed`.
        match self.events.front() {
            Some(Event::Closed(_)) | None => {
                self.streams.poll_event().map(Event::from).or_else(|| self.events.pop_front())
            }
            Some(_) => self.events.pop_front(),
        }
    }

    /// Opens a stream; none if the peer allows no more now (the event `StreamsAvailable` follows).
    pub fn open_stream(&mut self, dir: Dir) -> Option<u64> {
        self.streams.open(dir).filter(|_| !self.is_over())
    }

    /// Writes to a stream as much of `data` as there is room for; if that is not all, `StreamWritable` follows.
    ///
    /// # Errors
    /// The stream is not open, or was finished, or the peer reads no more.
    pub fn write(&mut self, stream: u64, data: &[u8]) -> Result<usize, StreamError> {
        self.streams.write(stream, data)
    }

    /// Nothing more will be written; `StreamFinished` says that everything has arrived.
    ///
    /// # Errors
    /// The stream is not open, or was finished before.
    pub fn finish(&mut self, stream: u64) -> Result<(), StreamError> {
        self.streams.finish(stream)
    }

    /// Finishes a stream as [`finish`](Self::finish) does, and drops data that was written and not sent yet.
    ///
    /// # Errors
    /// The stream is not open, or was finished before.
    pub fn truncate(&mut self, stream: u64) -> Result<(), StreamError> {
        self.streams.truncate(stream)
    }

    /// Bytes of a stream that were written and have not been sent so far.
    pub fn unsent(&self, stream: u64) -> u64 {
        self.streams.unsent(stream)
    }

    /// Gives the sending half of a stream up, with a code for the peer's application.
    ///
    /// # Errors
    /// The stream is not open, or was reset before.
    pub fn reset(&mut self, stream: u64, code: u64) -> Result<(), StreamError> {
        self.streams.reset(stream, code)
    }

    /// Reads what has come in order into `out`: so many bytes, where 0 is nothing at present (`StreamReadable` follows); none at the end.
    ///
    /// # Errors
    /// The stream is not open, or the peer has reset it.
    pub fn read(&mut self, stream: u64, out: &mut [u8]) -> Result<Option<usize>, StreamError> {
        self.streams.read(stream, out)
    }

    /// Reads no more of a stream, with a code for the peer's application.
    ///
    /// # Errors
    /// The stream is not open, or has ended.
    pub fn stop(&mut self, stream: u64, code: u64) -> Result<(), StreamError> {
        self.streams.stop(stream, code)
    }

    /// The largest datagram that can be sent now; none if the peer takes none.
    pub fn max_datagram(&self) -> Option<usize> {
        let open = self.paths.iter().filter(|path| path.is_open());
        let mtu = open.map(|path| usize::from(path.mtu.size())).min()?;
        // Short header, tag, and the frame's type and length.
        let room = mtu - (1 + 20 + 4) - 16 - 3;
        let peer = usize::try_from(self.peer.max_datagram_frame).unwrap_or(usize::MAX);
        peer.checked_sub(3).filter(|&peer| peer > 0).map(|peer| peer.min(room))
    }

    /// Sends a datagram, which may be lost, and is dropped where it would wait too long; whether there was room for it.
    pub fn send_datagram(&mut self, now: Time, data: &[u8]) -> bool {
        let fits = self.max_datagram().is_some_and(|most| data.len() <= most);
        let room = self.datagrams_out.bytes() + data.len() <= self.config.datagram_buffer;
        if fits && room && !self.is_over() {
            self.datagrams_out.push(now, data.to_vec());
        }
        fits && room && !self.is_over()
    }

    /// The next datagram that came.
    pub fn read_datagram(&mut self) -> Option<Vec<u8>> {
        let datagram = self.datagrams_in.pop_front()?;
        self.datagram_bytes_in -= datagram.len() + super::frames::DATAGRAM_COST;
        Some(datagram)
    }

    /// Side of this end: client or server.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns true once the handshake is confirmed: paths can be opened.
    pub fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Returns true if both ends speak multipath QUIC.
    pub fn is_multipath(&self) -> bool {
        self.multipath
    }

    /// Reason of the connection's end, if it has ended.
    pub fn error(&self) -> Option<&ConnectionError> {
        self.error.as_ref()
    }

    /// The application protocol that was agreed.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.session.alpn()
    }

    /// The peer's certificates, its own first.
    pub fn peer_certificates(&self) -> Vec<Vec<u8>> {
        self.session.peer_certificates()
    }

    /// A token for the next connection to the same server, which spares a round trip.
    pub fn new_token(&mut self) -> Option<Vec<u8>> {
        self.new_token.take()
    }

    /// Changes the keys, unless a change is under way or the connection is over; whether it did.
    pub fn update_keys(&mut self, now: Time) -> bool {
        self.confirmed && !self.is_over() && self.one_rtt.as_mut().is_some_and(|keys| keys.initiate(now))
    }

    /// Times that the keys were changed, by either end.
    pub fn key_updates(&self) -> u64 {
        self.one_rtt.as_ref().map_or(0, |keys| keys.updates)
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The congestion control of its paths.
    pub fn algorithm(&self) -> vmcc_cc::Algorithm {
        self.config.algorithm
    }

    /// Paths that are not closed.
    pub fn paths(&self) -> impl Iterator<Item = PathReport> {
        let own = self.paths.iter().enumerate().filter(|(_, path)| path.is_live());
        own.map(|(slot, path)| PathReport {
            id: path.id,
            route: path.route,
            open: path.is_open(),
            failed: path.failed,
            backup: path.is_backup(),
            srtt: path.rtt.srtt(),
            latest_rtt: path.latest_rtt,
            rtt_samples: path.rtt_samples,
            cwnd_pkt: self.windows.of(slot).cwnd,
            in_flight: self.windows.in_flight(slot),
            mtu: path.mtu.size(),
            ecn: path.ecn.is_capable(),
            bytes: (path.bytes_in, path.bytes_out),
            payload_in: path.payload_in,
            payload_out: path.payload_out,
            acked_packets: path.acked_packets,
            marked_packets: path.marked_packets,
            lost_packets: path.lost_packets,
            timeouts: path.timeouts,
            reductions: self.windows.reductions(slot),
        })
    }
}
