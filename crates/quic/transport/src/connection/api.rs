//! The application's calls: streams, datagrams, keys, figures.

use super::keys::OneRtt;
use super::report::{PathReport, Stats};
use super::state::Connection;
use crate::crypto::Side;
use crate::error::ConnectionError;
use crate::event::Event;
use vmcc_streams::{Dir, StreamError};
use vmcc_units::time::Time;

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

    /// Reads contiguous data into `out` and returns their length, where 0 is nothing at present (`StreamReadable` follows); none at the end.
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
        let peer = usize::try_from(self.handshake.peer().max_datagram_frame).unwrap_or(usize::MAX);
        peer.checked_sub(3).filter(|&peer| peer > 0).map(|peer| peer.min(room))
    }

    /// Sends a datagram, which may be lost, and is dropped where it would wait too long; whether there was room for it.
    pub fn send_datagram(&mut self, now: Time, data: &[u8]) -> bool {
        let fits = self.max_datagram().is_some_and(|most| data.len() <= most);
        fits && !self.is_over() && self.datagrams.send(now, data)
    }

    /// The next datagram that came.
    pub fn read_datagram(&mut self) -> Option<Vec<u8>> {
        self.datagrams.read()
    }

    /// Side of this end: client or server.
    pub fn side(&self) -> Side {
        self.handshake.side()
    }

    /// Returns true once the handshake is confirmed: paths can be opened.
    pub fn is_confirmed(&self) -> bool {
        self.handshake.is_confirmed()
    }

    /// Returns true if both ends speak multipath QUIC.
    pub fn is_multipath(&self) -> bool {
        self.paths.is_multipath()
    }

    /// Reason of the connection's end, if it has ended.
    pub fn error(&self) -> Option<&ConnectionError> {
        self.lifecycle.error()
    }

    /// The application protocol that was agreed.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.handshake.session().alpn()
    }

    /// The peer's certificates, its own first.
    pub fn peer_certificates(&self) -> Vec<Vec<u8>> {
        self.handshake.session().peer_certificates()
    }

    /// A token for the next connection to the same server, which spares a round trip.
    pub fn new_token(&mut self) -> Option<Vec<u8>> {
        self.handshake.tokens.received.take()
    }

    /// Changes the keys, unless a change is under way or the connection is over; whether it did.
    pub fn update_keys(&mut self, now: Time) -> bool {
        let may = self.handshake.is_confirmed() && !self.is_over();
        may && self.handshake.one_rtt_mut().is_some_and(|keys| keys.initiate(now))
    }

    /// Times that the keys were changed, by either end.
    pub fn key_updates(&self) -> u64 {
        self.handshake.one_rtt().map_or(0, OneRtt::updates)
    }

    /// The congestion control of its paths.
    pub fn algorithm(&self) -> vmcc_cc::Algorithm {
        self.config.algorithm
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        Stats { datagrams_dropped: self.datagrams.dropped(), ..self.stats }
    }

    /// Paths that are not closed.
    pub fn paths(&self) -> impl Iterator<Item = PathReport> {
        self.paths.live().map(|(slot, path)| PathReport {
            id: path.id,
            route: path.route,
            open: path.is_open(),
            failed: path.failed,
            late: self.paths.is_late(slot),
            backup: path.is_backup(),
            srtt: path.rtt.srtt(),
            latest_rtt: path.latest_rtt,
            rtt_samples: path.rtt_samples,
            cwnd_pkt: self.windows.of(slot).cwnd,
            in_flight: self.windows.in_flight(slot),
            mtu: path.mtu.size(),
            ecn: path.ecn.is_capable(),
            bytes: path.validation.bytes(),
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
