//! All streams of a connection: who may open how many, who may send how much, and whose turn it is.

use crate::error::{StreamError, Violation, code};
use crate::event::{Control, Event, SentRange};
use crate::frame::{self, Dir, Frame, ty};
use crate::limits::{Limits, PeerLimits};
use crate::pages::PAGE;
use crate::recv::RecvHalf;
use crate::send::{Fin, SendHalf};
use crate::share::Pool;
use crate::varint;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

mod frames;
mod output;

/// End of a connection. The client's streams have even numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that connects.
    Client,
    /// The end that accepts.
    Server,
}

#[derive(Debug, Default)]
struct Stream {
    send: Option<SendHalf>,
    recv: Option<RecvHalf>,
}

/// Streams of one connection.
#[derive(Debug)]
pub struct Streams {
    side: Side,
    limits: Limits,
    map: BTreeMap<u64, Stream>,
    /// Streams that this end has opened, may open; that the peer has, may: by direction.
    opened: [u64; 2],
    may_open: [u64; 2],
    peer_opened: [u64; 2],
    peer_may_open: [u64; 2],
    /// Limits that the peer has been sent.
    peer_told: [u64; 2],
    /// The peer's limits of new streams: of ours, of its own, of one direction.
    peer_initial: [u64; 3],
    /// The peer takes this much, and was sent this much.
    peer_max_data: u64,
    sent: u64,
    /// This end takes this much, was sent this much, and has read this much.
    max_data: u64,
    received: u64,
    read: u64,
    /// Bytes that may come, and that are kept until they are acknowledged.
    receive_pool: Pool,
    send_pool: Pool,
    /// Those with something to send, in turn.
    ready: VecDeque<u64>,
    /// Frames that are to be sent for a stream, or for all.
    controls: Vec<Control>,
    events: VecDeque<Event>,
}

fn dir_of(id: u64) -> Dir {
    if id & 2 == 0 { Dir::Bi } else { Dir::Uni }
}

impl Streams {
    /// The streams of a connection at its beginning.
    pub fn new(side: Side, limits: Limits) -> Streams {
        Streams {
            side,
            limits,
            map: BTreeMap::new(),
            opened: [0; 2],
            may_open: [0; 2],
            peer_opened: [0; 2],
            peer_may_open: [limits.max_streams_bidi, limits.max_streams_uni],
            peer_told: [limits.max_streams_bidi, limits.max_streams_uni],
            peer_initial: [0; 3],
            peer_max_data: 0,
            sent: 0,
            max_data: limits.connection_window,
            received: 0,
            read: 0,
            receive_pool: Pool::new(limits.connection_window / 2, limits.reserved_stream_window),
            send_pool: Pool::new(limits.connection_send_window, PAGE as u64),
            ready: VecDeque::new(),
            controls: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes over the limits that the peer has sent.
    pub fn set_peer(&mut self, peer: &PeerLimits) {
        self.may_open = [peer.max_streams_bidi, peer.max_streams_uni];
        self.peer_max_data = peer.max_data;
        // Of a stream that this end opens, the peer is the remote end.
        self.peer_initial = [peer.bidi_remote, peer.bidi_local, peer.uni];
    }

    fn is_own(&self, id: u64) -> bool {
        (id & 1 == 0) == (self.side == Side::Client)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes the control frames that have become due.
    pub fn take_controls(&mut self) -> Vec<Control> {
        std::mem::take(&mut self.controls)
    }

    /// Opens a stream; none if the peer allows no more now.
    pub fn open(&mut self, dir: Dir) -> Option<u64> {
        let n = self.opened[dir as usize];
        if n >= self.may_open[dir as usize] {
            return None;
        }
        self.opened[dir as usize] += 1;
        let side = u64::from(self.side == Side::Server);
        let id = n << 2 | (dir as u64) << 1 | side;
        self.insert(id);
        Some(id)
    }

    fn insert(&mut self, id: u64) {
        let (own, dir) = (self.is_own(id), dir_of(id));
        let max = match (own, dir) {
            (true, Dir::Bi) => self.peer_initial[0],
            (false, Dir::Bi) => self.peer_initial[1],
            (_, Dir::Uni) => self.peer_initial[2],
        };
        let send = (own || dir == Dir::Bi).then(|| SendHalf { max, ..SendHalf::default() });
        let (max, window) = (self.limits.initial_stream_limit(), self.limits.first_stream_window);
        let recv =
            (!own || dir == Dir::Bi).then(|| RecvHalf { max, window, held: max, ..RecvHalf::default() });
        self.receive_pool.change(0, recv.as_ref().map_or(0, |half| half.held));
        self.map.insert(id, Stream { send, recv });
    }

    fn send_half(&mut self, id: u64) -> Result<&mut SendHalf, StreamError> {
        self.map.get_mut(&id).and_then(|stream| stream.send.as_mut()).ok_or(StreamError::Unknown)
    }

    fn recv_half(&mut self, id: u64) -> Result<&mut RecvHalf, StreamError> {
        self.map.get_mut(&id).and_then(|stream| stream.recv.as_mut()).ok_or(StreamError::Unknown)
    }

    /// Takes as much of `data` as there is room for.
    ///
    /// # Errors
    /// The stream is not open, or that half of it has ended.
    pub fn write(&mut self, id: u64, data: &[u8]) -> Result<usize, StreamError> {
        let Streams { map, limits, send_pool, .. } = self;
        let half = map.get_mut(&id).and_then(|stream| stream.send.as_mut()).ok_or(StreamError::Unknown)?;
        if let Some(code) = half.reset {
            return Err(StreamError::Stopped(code));
        }
        if half.fin != Fin::Open {
            return Err(StreamError::Finished);
        }
        let room = half.room(limits, send_pool);
        let len = data.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        half.buffer.write(&data[..len]);
        half.blocked |= len < data.len();
        half.settle(send_pool);
        if len > 0 {
            self.enqueue(id, false);
        }
        Ok(len)
    }

    /// Nothing more will be written.
    ///
    /// # Errors
    /// The stream is not open, or that half of it has ended.
    pub fn finish(&mut self, id: u64) -> Result<(), StreamError> {
        let half = self.send_half(id)?;
        if half.fin != Fin::Open || half.reset.is_some() {
            return Err(StreamError::Finished);
        }
        half.fin = Fin::Pending;
        self.enqueue(id, false);
        Ok(())
    }

    /// Nothing more will be written, and what was never sent is not.
    ///
    /// # Errors
    /// The stream is not open, or that half of it has ended.
    pub fn truncate(&mut self, id: u64) -> Result<(), StreamError> {
        let half = self.send_half(id)?;
        if half.fin == Fin::Open && half.reset.is_none() {
            half.buffer.truncate();
        }
        self.settle(id);
        self.finish(id)
    }

    /// Gives the sending half up.
    ///
    /// # Errors
    /// The stream is not open, or that half of it has ended.
    pub fn reset(&mut self, id: u64, code: u64) -> Result<(), StreamError> {
        let half = self.send_half(id)?;
        if half.reset.is_some() || half.is_over() {
            return Err(StreamError::Finished);
        }
        half.reset = Some(code);
        half.buffer.clear();
        self.settle(id);
        self.controls.push(Control::ResetStream(id));
        Ok(())
    }

    /// Wants no more of what comes.
    ///
    /// # Errors
    /// The stream is not open, or that half of it has ended.
    pub fn stop(&mut self, id: u64, code: u64) -> Result<(), StreamError> {
        let half = self.recv_half(id)?;
        if half.stopped.is_some() || half.is_read {
            return Err(StreamError::Finished);
        }
        half.stopped = Some(code);
        // What was reset counts as read already.
        let unread = if half.reset.is_some() { 0 } else { half.end - half.buffer.offset() };
        let complete = half.final_size.is_some();
        half.buffer.clear();
        half.is_read = complete;
        self.settle(id);
        self.on_read(unread);
        match complete {
            true => self.retire(id),
            false => self.controls.push(Control::StopSending(id)),
        }
        Ok(())
    }

    /// Reads what has come in order: bytes, or none at the end of the stream.
    ///
    /// # Errors
    /// The stream is not open, or that half of it has ended.
    pub fn read(&mut self, id: u64, out: &mut [u8]) -> Result<Option<usize>, StreamError> {
        let Streams { map, limits, receive_pool, controls, .. } = self;
        let half = map.get_mut(&id).and_then(|stream| stream.recv.as_mut()).ok_or(StreamError::Unknown)?;
        if let Some(code) = half.reset {
            half.is_read = true;
            self.retire(id);
            return Err(StreamError::Reset(code));
        }
        if half.stopped.is_some() {
            return Err(StreamError::Finished);
        }
        half.told = false;
        let len = half.buffer.read(out);
        if len == 0 && half.is_at_end() {
            half.is_read = true;
            self.retire(id);
            return Ok(None);
        }
        if half.extend_limit(limits.stream_window, receive_pool) {
            controls.push(Control::MaxStreamData(id));
        }
        half.settle(receive_pool);
        self.on_read(len as u64);
        Ok(Some(len))
    }

    /// The application is done with this many bytes: they are free for all streams.
    fn on_read(&mut self, len: u64) {
        self.read += len;
        self.update_max_data();
    }

    /// Allows the peer more if that is as much as it has left: half of the window where all is read, and less where some streams are not, which are not
    /// to hold up the others with what was never told.
    fn update_max_data(&mut self) {
        let (window, left) = (self.limits.connection_window, self.max_data - self.received);
        let more = self.read + window - self.max_data;
        if more > 0 && more >= left.min(window / 2) {
            self.max_data += more;
            self.controls.push(Control::MaxData);
        }
    }

    /// Allows the peer more streams: a few at a time, and each at once where few are left.
    fn update_max_streams(&mut self, dir: Dir) {
        let d = dir as usize;
        let batch = ([self.limits.max_streams_bidi, self.limits.max_streams_uni][d] / 8).max(1);
        let (more, left) = (
            self.peer_may_open[d] - self.peer_told[d],
            self.peer_told[d].saturating_sub(self.peer_opened[d]),
        );
        if more >= batch || (more > 0 && left < batch) {
            self.peer_told[d] = self.peer_may_open[d];
            self.controls.push(Control::MaxStreams(dir));
        }
    }

    /// Records what a stream holds of what all share.
    fn settle(&mut self, id: u64) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        if let Some(half) = &mut stream.recv {
            half.settle(&mut self.receive_pool);
        }
        if let Some(half) = &mut stream.send {
            half.settle(&mut self.send_pool);
        }
    }

    /// Forgets a stream both of whose halves are over.
    fn retire(&mut self, id: u64) {
        let Some(stream) = self.map.get(&id) else { return };
        let sent = stream.send.as_ref().is_none_or(SendHalf::is_over);
        let read = stream.recv.as_ref().is_none_or(|half| half.is_read);
        if !(sent && read) {
            return;
        }
        self.settle(id);
        self.map.remove(&id);
        if self.map.is_empty() {
            // An empty tree keeps room for eleven.
            self.map = BTreeMap::new();
        }
        if !self.is_own(id) {
            self.peer_may_open[dir_of(id) as usize] += 1;
            self.update_max_streams(dir_of(id));
        }
    }

    /// Has a stream wait for its turn, or be the next one.
    fn enqueue(&mut self, id: u64, first: bool) {
        let Some(half) = self.map.get_mut(&id).and_then(|stream| stream.send.as_mut()) else { return };
        if !half.queued {
            half.queued = true;
            if first { self.ready.push_front(id) } else { self.ready.push_back(id) }
        }
    }

    /// Returns true if there are bytes to send that flow control allows.
    pub fn has_work(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Bytes that were written and not sent.
    pub fn unsent(&self, id: u64) -> u64 {
        let half = self.map.get(&id).and_then(|stream| stream.send.as_ref());
        half.map_or(0, |half| half.buffer.waiting())
    }

    /// Bytes that wait to be sent, of the streams in the queue, as far as they are kept or would be.
    pub fn backlog(&self) -> u64 {
        let halves = self.ready.iter().filter_map(|id| self.map.get(id)?.send.as_ref());
        let Limits { send_window, unsent_window, .. } = self.limits;
        // Who found no room has more, which would be kept if it were not for the cache's sake.
        let window = if unsent_window < send_window { send_window } else { 0 };
        let waiting =
            |half: &SendHalf| if half.blocked { window.saturating_sub(half.buffer.kept()) } else { 0 };
        halves.map(|half| half.buffer.waiting() + waiting(half)).sum()
    }

    /// Returns true if less than `len` bytes wait to be sent, none of them again.
    pub fn is_remainder(&self, len: u64) -> bool {
        let mut waiting = 0;
        let mut halves = self.ready.iter().filter_map(|id| self.map.get(id)?.send.as_ref());
        halves.all(|half| {
            waiting += half.buffer.waiting();
            !half.buffer.has_lost() && waiting < len
        })
    }

    /// Returns true if data wait to be sent again.
    pub fn has_lost(&self) -> bool {
        let mut halves = self.ready.iter().filter_map(|id| self.map.get(id)?.send.as_ref());
        halves.any(|half| half.buffer.has_lost())
    }

    /// Bytes of all streams that were sent, each once.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// New data that the peer still takes.
    pub fn credit(&self) -> u64 {
        self.peer_max_data - self.sent
    }

    /// Appends a control frame, unless it has become pointless; returns true if it did.
    pub fn put_control(&mut self, control: Control, out: &mut Vec<u8>) -> bool {
        let Some((kind, numbers, count)) = self.control(control) else { return false };
        frame::put(out, kind, &numbers[..count]);
        true
    }

    /// Numbers of a frame about a stream, if it still makes sense.
    fn control(&mut self, control: Control) -> Option<(u64, [u64; 3], usize)> {
        Some(match control {
            Control::MaxData => (ty::MAX_DATA, [self.max_data, 0, 0], 1),
            Control::DataBlocked => (ty::DATA_BLOCKED, [self.peer_max_data, 0, 0], 1),
            Control::MaxStreamData(id) => {
                let half = self.recv_half(id).ok().filter(|half| half.final_size.is_none())?;
                (ty::MAX_STREAM_DATA, [id, half.max, 0], 2)
            }
            Control::MaxStreams(Dir::Bi) => (ty::MAX_STREAMS_BIDI, [self.peer_may_open[0], 0, 0], 1),
            Control::MaxStreams(Dir::Uni) => (ty::MAX_STREAMS_UNI, [self.peer_may_open[1], 0, 0], 1),
            Control::ResetStream(id) => {
                let half = self.send_half(id).ok()?;
                (ty::RESET_STREAM, [id, half.reset?, half.buffer.end()], 3)
            }
            Control::StopSending(id) => {
                let half = self.recv_half(id).ok().filter(|half| half.final_size.is_none())?;
                (ty::STOP_SENDING, [id, half.stopped?, 0], 2)
            }
        })
    }
}
