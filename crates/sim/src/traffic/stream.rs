//! Both ends of an application over one stream: what is written when, and what was delivered.

use super::App;
use crate::time::{Span, Time};

const PS_PER_S: u128 = 1_000_000_000_000;

/// Program that writes into one stream: at once, or chunk by chunk at a rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    /// Bytes still to be written; `u64::MAX` without end.
    left: u64,
    endless: bool,
    pace: Option<Pace>,
}

/// Rate of a program that makes up for what it could not write in time (iperf3's `--bitrate`).
#[derive(Clone, Copy, Debug)]
struct Pace {
    rate_bps: u64,
    chunk_bytes: u64,
    /// Connection time; [`Time::NEVER`] before.
    since: Time,
    written: u64,
}

impl Writer {
    /// A program that writes so much, or without end.
    pub(crate) fn new(bytes: Option<u64>) -> Writer {
        Writer { left: bytes.unwrap_or(u64::MAX), endless: bytes.is_none(), pace: None }
    }

    /// The writing program of an entry; none of one that asks, or writes on and off.
    pub(crate) fn of(app: &App) -> Option<Writer> {
        match *app {
            App::Bulk => Some(Writer::new(None)),
            App::Sized { bytes } => Some(Writer::new(Some(bytes))),
            App::Paced { rate_bps, chunk_bytes, bytes } => {
                let pace = Pace { rate_bps, chunk_bytes, since: Time::NEVER, written: 0 };
                Some(Writer { pace: Some(pace), ..Writer::new(bytes) })
            }
            App::OnOff { .. } | App::RequestResponse { .. } | App::Fetches { .. } | App::Carrier => None,
        }
    }

    /// True once everything has been written.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// True if it ends only when it is stopped.
    pub(crate) fn is_endless(&self) -> bool {
        self.endless
    }

    /// It writes no more.
    pub(crate) fn stop(&mut self) {
        self.left = 0;
    }

    /// The connection is there: the clock of its rate starts.
    pub(crate) fn begin(&mut self, now: Time) {
        if let Some(pace) = &mut self.pace {
            pace.since = pace.since.min(now);
        }
    }

    /// Bytes that it wants to write at `now`.
    pub(crate) fn due(&self, now: Time) -> u64 {
        self.pace.map_or(self.left, |pace| pace.due(now).min(self.left))
    }

    /// The stream has taken `bytes` of them.
    pub(crate) fn wrote(&mut self, bytes: u64) {
        self.left -= bytes;
        if let Some(pace) = &mut self.pace {
            pace.written += bytes;
        }
    }

    /// The time of its next write; none while what is due waits for room.
    pub(crate) fn wakes_at(&self, now: Time) -> Option<Time> {
        self.next(now).filter(|_| self.due(now) == 0)
    }

    /// The time at which its next chunk is due; none without a rate.
    fn next(&self, now: Time) -> Option<Time> {
        let pace = self.pace.filter(|_| self.left > 0)?;
        (pace.since != Time::NEVER).then(|| pace.next(now))
    }
}

/// Chunks that a program at a rate should have written after `elapsed`: the first one at once.
pub(crate) fn chunks_due(rate_bps: u64, chunk_bytes: u64, elapsed: Span) -> u64 {
    let chunk_bits = u128::from(chunk_bytes) * 8;
    (u128::from(elapsed.ps()) * u128::from(rate_bps) / (chunk_bits * PS_PER_S) + 1) as u64
}

/// Time from the first chunk until the one after `chunks` is due.
pub(crate) fn chunks_take(rate_bps: u64, chunk_bytes: u64, chunks: u64) -> Span {
    let bits = u128::from(chunks) * u128::from(chunk_bytes) * 8;
    let ps = (bits * PS_PER_S).div_ceil(u128::from(rate_bps.max(1)));
    Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
}

impl Pace {
    /// Chunks that should have been written by `now`: the first one at once.
    fn chunks(&self, now: Time) -> u64 {
        if self.since == Time::NEVER {
            return 0;
        }
        chunks_due(self.rate_bps, self.chunk_bytes, now.since(self.since))
    }

    fn due(&self, now: Time) -> u64 {
        self.chunks(now).saturating_mul(self.chunk_bytes).saturating_sub(self.written)
    }

    fn next(&self, now: Time) -> Time {
        self.since + chunks_take(self.rate_bps, self.chunk_bytes, self.chunks(now))
    }
}

/// Delivery to the reading program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    pub(crate) bytes: u64,
    /// Arrival time of the last of them.
    pub(crate) at: Time,
    /// Arrival time of the stream's end.
    pub(crate) complete: Time,
    /// The longest time between two deliveries.
    pub(crate) stalled: Span,
}

impl Delivered {
    pub(crate) const NOTHING: Delivered =
        Delivered { bytes: 0, at: Time::NEVER, complete: Time::NEVER, stalled: Span::ZERO };

    /// The program has read `bytes` more.
    pub(crate) fn note(&mut self, now: Time, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if self.bytes > 0 {
            self.stalled = self.stalled.max(now.since(self.at));
        }
        self.bytes += bytes;
        self.at = now;
    }

    /// The program reads what there is; true at the end of the stream.
    pub(crate) fn read<E>(
        &mut self,
        now: Time,
        mut read: impl FnMut(&mut [u8]) -> Result<Option<usize>, E>,
    ) -> bool {
        let mut chunk = [0; 1 << 13];
        let mut bytes = 0;
        let ended = loop {
            match read(&mut chunk) {
                Ok(Some(read @ 1..)) => bytes += read as u64,
                Ok(None) => break true,
                Ok(Some(_)) | Err(_) => break false,
            }
        };
        if ended {
            self.complete = self.complete.min(now);
        }
        self.note(now, bytes);
        ended
    }

    /// The longest time without a delivery in microseconds, that until `stop` or `end` too; none of a program that pauses.
    pub(crate) fn stalled_us(&self, app: &App, (start, stop): (Time, Time), end: Time) -> Option<f64> {
        if matches!(app, App::Paced { .. }) {
            return None;
        }
        let end = stop.min(self.complete).min(end);
        let last = if self.bytes == 0 { start } else { self.at };
        let us = |span: Span| span.ps() as f64 / 1e6;
        // What was written last may arrive after the end.
        let after = if end > last { us(end.since(last)) } else { 0.0 };
        (start < end).then(|| us(self.stalled).max(after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    /// Chunks of 1 kB at 1 Mbit/s: one every 8 ms from the connection on.
    #[test]
    fn paced_writer_makes_up_for_blocked_chunks() {
        let mut writer =
            Writer::of(&App::Paced { rate_bps: 1_000_000, chunk_bytes: 1_000, bytes: Some(3_500) }).unwrap();
        assert_eq!((writer.due(ms(5)), writer.next(ms(5))), (0, None), "not connected");
        writer.begin(ms(10));
        assert_eq!((writer.due(ms(10)), writer.next(ms(10))), (1_000, Some(ms(18))));
        writer.wrote(400);
        assert_eq!((writer.due(ms(17)), writer.due(ms(18))), (600, 1_600));
        writer.wrote(1_600);
        assert_eq!(writer.due(ms(25)), 0);
        assert_eq!(writer.due(ms(1_000)), 1_500, "no more than there is");
        writer.wrote(1_500);
        assert!(writer.is_done() && writer.next(ms(1_000)).is_none());
    }

    #[test]
    fn stall_counts_between_deliveries_and_until_the_end() {
        let mut delivered = Delivered::NOTHING;
        delivered.note(ms(20), 1);
        delivered.note(ms(50), 1);
        delivered.note(ms(60), 0);
        let stalled = |stop, end| delivered.stalled_us(&App::Bulk, (ms(10), stop), end);
        assert_eq!(stalled(ms(100), ms(60)), Some(30_000.0));
        assert_eq!(stalled(Time::NEVER, ms(90)), Some(40_000.0));
        assert_eq!(stalled(ms(45), ms(90)), Some(30_000.0), "it stops before the last delivery");
    }
}
