//! Applications: what writes into connections.
//!
//! Modelled: endless and sized transfers, written at once or at a rate, request and response over a pair of
//! connections, objects that are asked for one at a time likewise, paced writing with on and off periods. What does not
//! fit into the send buffer waits (`conn`).
//! Not modelled: responses ride on a mirror connection with pure ACKs instead of piggybacked ones, whose subflows are all
//! there from the first response on.

use super::conn::ENDLESS;
use super::timers::Purpose;
use super::tx::Tx;
use crate::endpoint::Wire;
use crate::time::{Span, Time};
use crate::traffic::{App, chunks_due, chunks_take};

/// A paced application that sleeps for less writes several chunks at once.
const MIN_SLEEP: Span = Span::from_us(1);

impl<W: Wire> Tx<'_, W> {
    /// The application's timer of connection `index` expired: start, stop, or the next write.
    pub(crate) fn on_app(&mut self, index: u32) {
        if !self.conn.started {
            self.begin(index);
            self.open();
            return;
        }
        if self.conn.closing {
            return;
        }
        if self.now >= self.conn.stop {
            self.conn.cut_off();
            if self.conn.una >= self.conn.end && !self.conn.finished {
                self.finish();
            }
            return;
        }
        match self.conn.app {
            App::Bulk | App::Sized { .. } | App::Carrier => {}
            App::RequestResponse { .. } | App::Fetches { .. } => self.request(),
            App::Paced { .. } => self.write_due(index),
            App::OnOff { .. } => self.write_paced(index),
        }
    }

    fn begin(&mut self, index: u32) {
        match self.conn.app {
            App::Bulk => {
                self.conn.end = ENDLESS;
                if self.conn.stop != Time::NEVER {
                    self.arm_app(index, self.conn.stop);
                }
            }
            App::Sized { bytes } => {
                self.conn.write(bytes);
                self.conn.closing = true;
            }
            App::RequestResponse { .. } => self.request(),
            App::Fetches { .. } => self.await_object(index),
            App::Paced { .. } | App::Carrier => {} // writes once it is connected
            App::OnOff { on, .. } => {
                self.conn.on_until = self.now + on;
                self.write_paced(index);
            }
        }
    }

    fn arm_app(&mut self, index: u32, at: Time) {
        self.wire.arm(&mut self.conn.app_timer, Purpose::App.id(index), at);
    }

    fn request(&mut self) {
        let (bytes, at) = match &self.conn.app {
            App::RequestResponse { request_bytes, .. } => (*request_bytes, self.now),
            App::Fetches { request_bytes, objects } => {
                let Some(object) = objects.get(self.conn.asked as usize) else { return };
                (*request_bytes, object.at)
            }
            App::Bulk | App::Sized { .. } | App::Paced { .. } | App::OnOff { .. } | App::Carrier => return,
        };
        self.conn.asked += 1;
        self.conn.asked_at = at;
        self.conn.write(bytes);
        self.push(None);
    }

    /// The answer has been read: the next request, after thinking, if one is left.
    pub(crate) fn on_answer(&mut self, index: u32) {
        self.await_object(index);
        let App::RequestResponse { count, think, .. } = self.conn.app else { return };
        if count == 0 || self.conn.asked < count {
            self.arm_app(index, self.now + think);
        } else {
            self.conn.acknowledged_at = self.now;
        }
    }

    /// Nothing is asked for: the next object is as soon as somebody wants it, or at once if it waits already.
    fn await_object(&mut self, index: u32) {
        let App::Fetches { objects, .. } = &self.conn.app else { return };
        if let Some(at) = objects.get(self.conn.asked as usize).map(|object| object.at) {
            self.arm_app(index, at.max(self.now));
        }
    }

    /// The server answers a request.
    pub(crate) fn respond(&mut self) {
        let Some(bytes) = self.conn.answer_bytes(self.conn.asked) else { return };
        self.conn.asked += 1;
        if !self.conn.started {
            self.open_established();
        }
        self.conn.write(bytes);
        self.push(None);
    }

    /// The connection's first subflow is established.
    pub(super) fn on_connected(&mut self) {
        if let App::Paced { .. } = self.conn.app {
            let index = self.subs[0].conn;
            self.arm_app(index, self.now);
        }
    }

    /// Writes all chunks that are due.
    fn write_due(&mut self, index: u32) {
        let App::Paced { rate_bps, chunk_bytes, bytes } = self.conn.app else { return };
        let due = chunks_due(rate_bps, chunk_bytes, self.now.since(self.conn.established_at));
        let written = self.conn.chunks * chunk_bytes;
        let left = bytes.map_or(u64::MAX, |bytes| bytes.saturating_sub(written));
        let len_bytes = due.saturating_sub(self.conn.chunks).saturating_mul(chunk_bytes).min(left);
        if len_bytes > 0 {
            self.conn.append(len_bytes);
        }
        self.conn.chunks = due.max(self.conn.chunks);
        if len_bytes == left {
            self.conn.close();
            self.push(None);
            return;
        }
        self.push(None);
        let next = self.conn.established_at + chunks_take(rate_bps, chunk_bytes, due);
        let next = next.max(self.now + MIN_SLEEP);
        self.arm_app(index, next.min(self.conn.stop));
    }

    fn write_paced(&mut self, index: u32) {
        let App::OnOff { rate_bps, on, off } = self.conn.app else { return };
        if off != Span::ZERO && self.now >= self.conn.on_until {
            let resume = self.conn.on_until + off;
            self.conn.on_until = resume + on;
            self.arm_app(index, resume.max(self.now));
            return;
        }
        let len_bytes = u64::from(self.conn.mss_bytes);
        self.conn.write(len_bytes);
        self.push(None);
        let gap_ps = u128::from(len_bytes) * 8 * 1_000_000_000_000 / u128::from(rate_bps.max(1));
        let next = self.now + Span::from_ps(u64::try_from(gap_ps).unwrap_or(u64::MAX));
        self.arm_app(index, next.min(self.conn.stop));
    }
}
