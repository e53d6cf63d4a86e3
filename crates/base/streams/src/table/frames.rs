//! The peer's stream frames.

use super::*;

impl Streams {
    /// Sees to it that the stream of a frame exists; whether it is still of interest.
    fn ensure_open(&mut self, id: u64, receives: bool) -> Result<bool, Violation> {
        let dir = dir_of(id);
        let wrong_way = dir == Dir::Uni && self.is_own(id) == receives;
        if wrong_way {
            return Err(Violation::new(code::STREAM_STATE, "a frame against the stream's direction"));
        }
        let n = id >> 2;
        if self.is_own(id) {
            if n >= self.opened[dir as usize] {
                return Err(Violation::new(code::STREAM_STATE, "a stream that was not opened"));
            }
            return Ok(self.map.contains_key(&id));
        }
        if n >= self.peer_may_open[dir as usize] {
            return Err(Violation::new(code::STREAM_LIMIT, "too many streams"));
        }
        // All below are open as well (RFC 9000 section 3.2).
        while self.peer_opened[dir as usize] <= n {
            let new = self.peer_opened[dir as usize] << 2 | id & 3;
            self.peer_opened[dir as usize] += 1;
            self.insert(new);
            self.events.push_back(Event::Opened { stream: new });
        }
        self.update_max_streams(dir);
        Ok(self.map.contains_key(&id))
    }

    /// Takes a frame that was received.
    ///
    /// # Errors
    /// The frame breaks a rule of RFC 9000; the connection has to end.
    #[inline]
    pub fn on_frame(&mut self, frame: Frame<'_>) -> Result<(), Violation> {
        match frame {
            Frame::Data { id, offset, data, fin } => self.on_stream(id, offset, data, fin)?,
            Frame::ResetStream { id, code, final_size } => self.on_reset(id, code, final_size)?,
            Frame::StopSending { id, code } => self.on_stop(id, code)?,
            Frame::MaxData(max) => self.on_max_data(max),
            Frame::MaxStreamData { id, max } => self.on_max_stream_data(id, max)?,
            Frame::MaxStreams { dir, max } => self.on_max_streams(dir, max),
            Frame::StreamDataBlocked { id } => self.on_stream_data_blocked(id)?,
            Frame::DataBlocked | Frame::StreamsBlocked => {}
        }
        Ok(())
    }

    /// STREAM.
    fn on_stream(&mut self, id: u64, offset: u64, data: &[u8], fin: bool) -> Result<(), Violation> {
        if !self.ensure_open(id, true)? {
            return Ok(());
        }
        let half = self.map.get_mut(&id).and_then(|stream| stream.recv.as_mut());
        let Some(half) = half else { return Ok(()) };
        let ready = half.buffer.readable();
        let at_end = half.final_size.is_some();
        let new = half.extend(offset + data.len() as u64, fin)?;
        let wanted = half.stopped.is_none() && half.reset.is_none();
        if wanted {
            half.buffer.write(offset, data);
            if half.buffer.is_shattered() {
                return Err(Violation::new(code::INTERNAL, "a stream in too many pieces"));
            }
        }
        if fin {
            half.settle(&mut self.receive_pool);
        }
        let notify = wanted && !half.told && (half.buffer.readable() > ready || (fin && !at_end));
        half.told |= notify;
        self.on_received(new)?;
        if notify {
            self.events.push_back(Event::Readable { stream: id });
        } else if !wanted {
            self.on_read(new);
            self.end_stopped(id);
        }
        Ok(())
    }

    /// A half that the application does not read is over as soon as its size is known.
    fn end_stopped(&mut self, id: u64) {
        let Ok(half) = self.recv_half(id) else { return };
        if half.stopped.is_some() && half.final_size.is_some() {
            half.is_read = true;
            self.retire(id);
        }
    }

    fn on_received(&mut self, new: u64) -> Result<(), Violation> {
        self.received += new;
        if self.received > self.max_data {
            return Err(Violation::new(code::FLOW_CONTROL, "more than the connection's limit"));
        }
        self.update_max_data();
        Ok(())
    }

    /// RESET_STREAM.
    fn on_reset(&mut self, id: u64, error: u64, final_size: u64) -> Result<(), Violation> {
        if !self.ensure_open(id, true)? {
            return Ok(());
        }
        let Ok(half) = self.recv_half(id) else { return Ok(()) };
        // A reset after everything was read has nothing to say.
        let known = half.reset.is_some() || half.is_read || half.is_at_end();
        let new = half.extend(final_size, true)?;
        let unread = half.end - half.buffer.offset() - new;
        let stopped = half.stopped.is_some();
        if !known {
            half.reset = Some(error);
            half.buffer.clear();
        }
        self.settle(id);
        self.on_received(new)?;
        if known {
            return Ok(());
        }
        // What was stopped has been counted as read before.
        self.on_read(new + if stopped { 0 } else { unread });
        match stopped {
            true => self.end_stopped(id),
            false => self.events.push_back(Event::Readable { stream: id }),
        }
        Ok(())
    }

    /// STOP_SENDING: answered with RESET_STREAM (RFC 9000 section 3.5).
    fn on_stop(&mut self, id: u64, error: u64) -> Result<(), Violation> {
        if self.ensure_open(id, false)? && self.reset(id, error).is_ok() {
            self.events.push_back(Event::Stopped { stream: id, code: error });
        }
        Ok(())
    }

    /// MAX_DATA.
    fn on_max_data(&mut self, max: u64) {
        if max > self.peer_max_data {
            self.peer_max_data = max;
            let waiting = self.map.iter().filter(|(_, stream)| {
                stream.send.as_ref().is_some_and(|half| !half.queued && half.has_work(true))
            });
            let waiting: Vec<u64> = waiting.map(|(id, _)| *id).collect();
            waiting.into_iter().for_each(|id| self.enqueue(id, false));
        }
    }

    /// MAX_STREAM_DATA.
    fn on_max_stream_data(&mut self, id: u64, max: u64) -> Result<(), Violation> {
        if !self.ensure_open(id, false)? {
            return Ok(());
        }
        if let Ok(half) = self.send_half(id) {
            half.max = half.max.max(max);
            if half.has_work(true) {
                self.enqueue(id, false);
            }
        }
        Ok(())
    }

    /// MAX_STREAMS.
    fn on_max_streams(&mut self, dir: Dir, max: u64) {
        if max > self.may_open[dir as usize] {
            self.may_open[dir as usize] = max;
            self.events.push_back(Event::Available { dir });
        }
    }

    /// STREAM_DATA_BLOCKED, which only has to be about a stream that may be.
    fn on_stream_data_blocked(&mut self, id: u64) -> Result<(), Violation> {
        self.ensure_open(id, true).map(drop)
    }
}
