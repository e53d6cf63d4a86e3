//! STREAM frames: what goes into a packet, and what became of it.

use super::*;

/// A length field in a packet: two bytes are enough.
const LENGTH_LEN: usize = 2;

impl Streams {
    /// Fills `room` bytes with STREAM frames; `to_end` says that nothing follows in the packet, so that the last frame may do without a
    /// length. With `repeats` lost data come first; without, they are left for another path. Whether there was any frame.
    pub fn put_frames(
        &mut self,
        out: &mut Vec<u8>,
        mut room: usize,
        to_end: bool,
        repeats: bool,
        sent: &mut impl FnMut(SentRange),
    ) -> bool {
        let (mut any, mut at) = (false, 0);
        while let Some(&id) = self.ready.get(at) {
            let before = out.len();
            let Some(range) = self.put_frame(id, out, room, to_end, repeats) else {
                if !self.has_work_of(id) {
                    self.dequeue(at);
                } else if self.leaves_repeats(id, repeats) {
                    at += 1;
                } else {
                    break; // no room for it here
                }
                continue;
            };
            sent(range);
            any = true;
            room -= out.len() - before;
            if !self.has_work_of(id) {
                self.dequeue(at);
            } else if at == 0 {
                self.ready.rotate_left(1);
            } else if let Some(id) = self.ready.remove(at) {
                self.ready.push_back(id);
            }
        }
        any
    }

    /// Returns true if a stream has nothing to send but lost data, which are left for another path.
    fn leaves_repeats(&self, id: u64, repeats: bool) -> bool {
        let half = self.map.get(&id).and_then(|stream| stream.send.as_ref());
        !repeats
            && half.is_some_and(|half| {
                half.buffer.has_lost() && half.buffer.new_len(half.limit(self.credit())) == 0
            })
    }

    fn has_work_of(&self, id: u64) -> bool {
        let half = self.map.get(&id).and_then(|stream| stream.send.as_ref());
        half.is_some_and(|half| half.has_work(self.sent < self.peer_max_data))
    }

    fn dequeue(&mut self, at: usize) {
        let Some(id) = self.ready.remove(at) else { return };
        let Ok(half) = self.send_half(id) else { return };
        half.queued = false;
        let unsent = half.reset.is_none() && half.buffer.unsent() < half.buffer.end();
        if unsent && self.credit() == 0 {
            // The connection's flow control holds it back.
            self.controls.push(Control::DataBlocked);
        }
    }

    fn put_frame(
        &mut self,
        id: u64,
        out: &mut Vec<u8>,
        room: usize,
        to_end: bool,
        repeats: bool,
    ) -> Option<SentRange> {
        let credit = self.credit();
        let Streams { map, limits, send_pool, .. } = self;
        let half = map.get_mut(&id)?.send.as_mut().filter(|half| half.reset.is_none())?;
        let unsent = half.buffer.unsent();
        let limit = half.limit(credit);
        let (offset, available) = match repeats {
            true => half.buffer.peek(limit),
            false => (unsent, half.buffer.new_len(limit)),
        };
        let fin_only = available == 0;
        if fin_only && !half.fin_is_due() {
            return None;
        }
        let header = 1 + varint::len(id) + if offset == 0 { 0 } else { varint::len(offset) };
        let whole = room.checked_sub(header).filter(|&left| left > 0 || (fin_only && to_end))?;
        let unbounded = to_end && available >= whole as u64;
        let most =
            if unbounded { whole } else { whole.checked_sub(LENGTH_LEN).filter(|&n| n > 0 || fin_only)? };
        let taken = match repeats {
            true => half.buffer.take(most as u64, limit),
            false => half.buffer.take_new(most as u64, limit),
        };
        let range = taken.unwrap_or(offset..offset);
        let fin = half.fin_is_due() && range.end == half.buffer.end();
        let flags = if offset == 0 { 0 } else { ty::STREAM_OFF }
            | if unbounded { 0 } else { ty::STREAM_LEN }
            | if fin { ty::STREAM_FIN } else { 0 };
        out.push((ty::STREAM | flags) as u8);
        varint::put(out, id);
        if offset != 0 {
            varint::put(out, offset);
        }
        if !unbounded {
            out.extend_from_slice(&((range.end - range.start) as u16 | 0x4000).to_be_bytes());
        }
        half.buffer.copy_to(&range, out);
        if fin {
            half.fin = Fin::Sent;
        }
        let new = half.buffer.unsent() - unsent;
        if new > 0 && half.is_relieved(limits, send_pool) {
            self.events.push_back(Event::Writable { stream: id });
        }
        self.sent += new;
        Some(SentRange { id, range, fin })
    }

    /// Appends a range that was sent before once more, for another path, unless it has arrived; returns true if it did. It is a STREAM
    /// frame with a length.
    pub fn put_copy(&mut self, sent: &SentRange, out: &mut Vec<u8>) -> bool {
        let SentRange { id, range, fin } = sent;
        let Ok(half) = self.send_half(*id) else { return false };
        let is_wanted = half.buffer.is_wanted(range) || *fin && half.fin == Fin::Sent;
        if half.reset.is_some() || !is_wanted {
            return false;
        }
        // What is acknowledged at the front is not kept any more.
        let range = half.buffer.clamp(range);
        let flags = ty::STREAM_OFF | ty::STREAM_LEN | if *fin { ty::STREAM_FIN } else { 0 };
        frame::put(out, ty::STREAM | flags, &[*id, range.start, range.end - range.start]);
        half.buffer.copy_to(&range, out);
        true
    }

    /// Records that a frame has arrived.
    pub fn on_acked(&mut self, id: u64, range: Range<u64>, fin: bool) {
        let Streams { map, limits, send_pool, .. } = self;
        let Some(half) = map.get_mut(&id).and_then(|stream| stream.send.as_mut()) else { return };
        if half.reset.is_some() {
            return;
        }
        half.buffer.on_acked(range);
        half.settle(send_pool);
        if fin {
            half.fin = Fin::Acked;
        }
        if half.is_over() {
            self.events.push_back(Event::Finished { stream: id });
            self.retire(id);
        } else if half.is_relieved(limits, send_pool) {
            self.events.push_back(Event::Writable { stream: id });
        }
    }

    /// Queues a frame's data again: lost, or to leave on another path as well.
    pub fn on_lost(&mut self, id: u64, range: Range<u64>, fin: bool) {
        let Ok(half) = self.send_half(id) else { return };
        if half.reset.is_some() {
            return;
        }
        half.buffer.on_lost(range);
        if fin && half.fin == Fin::Sent {
            half.fin = Fin::Pending;
        }
        if half.has_work(false) {
            self.enqueue(id, true);
        }
    }

    /// RESET_STREAM has arrived.
    pub fn on_reset_acked(&mut self, id: u64) {
        if let Ok(half) = self.send_half(id) {
            half.reset_acked = true;
            self.retire(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PeerLimits;

    fn streams() -> Streams {
        let limits = Limits {
            first_stream_window: 1 << 20,
            stream_window: 1 << 20,
            reserved_stream_window: 1 << 20,
            connection_window: 1 << 20,
            max_streams_bidi: 10,
            max_streams_uni: 10,
            send_window: 1 << 20,
            connection_send_window: 1 << 20,
            unsent_window: 1 << 20,
        };
        let mut streams = Streams::new(Side::Client, limits);
        let peer =
            PeerLimits { max_data: 1 << 20, uni: 1 << 20, max_streams_uni: 10, ..PeerLimits::default() };
        streams.set_peer(&peer);
        streams
    }

    /// Ranges of a packet with this much room, with or without lost data.
    fn packet(streams: &mut Streams, room: usize, repeats: bool) -> Vec<(u64, Range<u64>)> {
        let mut sent = Vec::new();
        streams.put_frames(&mut Vec::new(), room, false, repeats, &mut |frame| {
            sent.push((frame.id, frame.range))
        });
        sent
    }

    #[test]
    fn lost_data_are_left_for_another_path() {
        let mut streams = streams();
        let [first, second] = [0, 1].map(|_| streams.open(Dir::Uni).unwrap());
        streams.write(first, &[1; 1000]).unwrap();
        assert_eq!(packet(&mut streams, 2000, true), [(first, 0..1000)]);
        streams.on_lost(first, 0..300, false);
        streams.write(second, &[2; 500]).unwrap();
        assert!(streams.has_lost());
        assert_eq!(packet(&mut streams, 2000, false), [(second, 0..500)], "new data of another stream");
        assert_eq!(packet(&mut streams, 2000, false), [], "none is left");
        streams.write(first, &[1; 200]).unwrap();
        assert_eq!(packet(&mut streams, 2000, false), [(first, 1000..1200)], "new data of the same stream");
        assert_eq!((packet(&mut streams, 2000, true), streams.has_lost()), (vec![(first, 0..300)], false));
        assert_eq!(streams.sent(), 1700);
    }

    #[test]
    fn end_of_a_stream_does_not_wait_for_lost_data() {
        let mut streams = streams();
        let id = streams.open(Dir::Uni).unwrap();
        streams.write(id, &[1; 100]).unwrap();
        assert_eq!(packet(&mut streams, 2000, true), [(id, 0..100)]);
        streams.on_lost(id, 0..100, false);
        streams.finish(id).unwrap();
        assert_eq!(packet(&mut streams, 2000, false), [(id, 100..100)]);
        assert_eq!(
            (packet(&mut streams, 2000, false), packet(&mut streams, 2000, true)),
            (vec![], vec![(id, 0..100)])
        );
    }
}
