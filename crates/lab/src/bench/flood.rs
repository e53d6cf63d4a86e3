//! TCP connections that send as fast as they may, until this is dropped.

use crate::Error;
use crate::bench::pair::Pair;
use crate::bench::transfer::pattern;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

const READ_BYTES: usize = 1 << 16;
/// Two threads per connection need little of it.
const STACK_BYTES: usize = 256 << 10;

/// The connections.
pub(super) struct Flood {
    streams: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
    received: Arc<AtomicU64>,
}

impl Flood {
    /// `count` connections over `path` to `port`.
    pub(super) fn start(network: &Pair, path: usize, port: u16, count: usize) -> Result<Self, Error> {
        let received = Arc::new(AtomicU64::new(0));
        let mut flood = Self { streams: Vec::new(), threads: Vec::new(), received };
        let block: Arc<[u8]> = pattern().into();
        for (mut client, mut server) in network.connect(path, port, count)? {
            for stream in [&client, &server] {
                flood
                    .streams
                    .push(stream.try_clone().map_err(|e| Error::kernel("sharing", "a connection", e))?);
            }
            let (block, received) = (Arc::clone(&block), Arc::clone(&flood.received));
            flood.spawn(move || while client.write_all(&block).is_ok() {})?;
            flood.spawn(move || {
                let mut buffer = vec![0; READ_BYTES];
                while let Ok(bytes @ 1..) = server.read(&mut buffer) {
                    received.fetch_add(bytes as u64, Ordering::Relaxed);
                }
            })?;
        }
        Ok(flood)
    }

    fn spawn(&mut self, job: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(job);
        self.threads.push(thread.map_err(|e| Error::kernel("starting", "a thread", e))?);
        Ok(())
    }

    /// Bytes that arrived until now.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        for stream in &self.streams {
            // Ends the threads that read and write it; one that has ended already is as good.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
