//! Applications of both ends: one writes, the other reads.

use vmcc_transport::{Dir, PathReport};

use super::{App, End};
use crate::time::Time;

/// Data of one write.
pub(super) static CHUNK: [u8; 1 << 16] = [0; 1 << 16];
/// Windows of unsent data at most, as far as they fit into the send buffer: schedulers that ask how much waits see that it is
/// much, and the rest would only take memory.
pub(super) const MAX_UNSENT_WINDOWS: u64 = 16;

impl End {
    pub(super) fn use_stream(&mut self, now: Time) {
        match self.app {
            App::Sends(_) => self.write(now),
            App::Reads => self.read(now),
        }
    }

    fn write(&mut self, now: Time) {
        let End { app: App::Sends(writer), engine, connection, stream, .. } = self else { return };
        let Some(handle) = connection.filter(|_| self.established && !writer.is_done()) else { return };
        let Some(connection) = engine.as_mut().and_then(|engine| engine.connection(handle)) else { return };
        if stream.is_none() {
            *stream = connection.open_stream(Dir::Uni);
        }
        let Some(stream) = *stream else { return };
        if writer.is_endless() && now >= self.spec.stop {
            writer.stop();
            // Like a program that is ended by force, it leaves behind what has been sent.
            let _ = connection.truncate(stream);
            return;
        }
        let window = |path: PathReport| u64::from(path.cwnd_pkt) * u64::from(path.mtu);
        let ahead = connection.paths().map(window).sum::<u64>().saturating_mul(MAX_UNSENT_WINDOWS);
        while connection.unsent(stream) < ahead {
            let most = writer.due(now).min(CHUNK.len() as u64) as usize;
            let Ok(written @ 1..) = connection.write(stream, &CHUNK[..most]) else { break };
            writer.wrote(written as u64);
        }
        if writer.is_done() {
            // A stream that ended otherwise needs no end.
            let _ = connection.finish(stream);
        }
    }

    fn read(&mut self, now: Time) {
        let (Some(handle), Some(stream)) = (self.connection, self.stream) else { return };
        let Some(connection) = self.engine.as_mut().and_then(|engine| engine.connection(handle)) else {
            return;
        };
        if self.delivered.read(now, |chunk| connection.read(stream, chunk)) {
            self.stream = None;
        }
    }
}
