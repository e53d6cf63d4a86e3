//! STREAM frames: what goes into a packet, and what became of it.

use super::*;

/// A length field in a packet: two bytes are enough.
const LENGTH_LEN: usize = 2;

impl Streams {
    /// Fills `room` bytes with STREAM frames; `to_end` says that nothing follows in the packet, so that the last frame may do without a
    /// length. Whether there was any.
    pub fn put_frames(
        &mut self,
        out: &mut Vec<u8>,
        mut room: usize,
        to_end: bool,
        sent: &mut impl FnMut(SentRange),
    ) -> bool {
        let mut any = false;
        while let Some(&id) = self.ready.front() {
            let before = out.len();
            let Some(range) = self.put_frame(id, out, room, to_end) else {
                if self.has_work_of(id) {
                    break; // no room for it here
                }
                self.dequeue(id);
                continue;
            };
            sent(range);
            any = true;
            room -= out.len() - before;
            if self.has_work_of(id) {
                self.ready.rotate_left(1);
            } else {
                self.dequeue(id);
            }
        }
        any
    }

    fn has_work_of(&self, id: u64) -> bool {
        let half = self.map.get(&id).and_then(|stream| stream.send.as_ref());
        half.is_some_and(|half| half.has_work(self.sent < self.peer_max_data))
    }

    fn dequeue(&mut self, id: u64) {
        self.ready.pop_front();
        let Ok(half) = self.send_half(id) else { return };
        half.queued = false;
        let unsent = half.reset.is_none() && half.buffer.unsent() < half.buffer.end();
        if unsent && self.credit() == 0 {
            // The connection's flow control holds it back.
            self.controls.push(Control::DataBlocked);
        }
    }

    fn put_frame(&mut self, id: u64, out: &mut Vec<u8>, room: usize, to_end: bool) -> Option<SentRange> {
        let credit = self.credit();
        let Streams { map, limits, send_pool, .. } = self;
        let half = map.get_mut(&id)?.send.as_mut().filter(|half| half.reset.is_none())?;
        let unsent = half.buffer.unsent();
        let limit = half.max.min(unsent + credit);
        let (offset, available) = half.buffer.peek(limit);
        let fin_only = available == 0;
        if fin_only && !half.fin_is_due() {
            return None;
        }
        let header = 1 + varint::len(id) + if offset == 0 { 0 } else { varint::len(offset) };
        let whole = room.checked_sub(header).filter(|&left| left > 0 || (fin_only && to_end))?;
        let unbounded = to_end && available >= whole as u64;
        let most =
            if unbounded { whole } else { whole.checked_sub(LENGTH_LEN).filter(|&n| n > 0 || fin_only)? };
        let range = half.buffer.take(most as u64, limit).unwrap_or(offset..offset);
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
