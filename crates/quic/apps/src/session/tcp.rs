//! Sessions over TCP carriers.

use super::{End, PathUsage, Pending, SendHalf, Session, Stream};
use std::io;
use vmcc_plmt::{CarrierReport, Connection, SessionError};

fn end(error: &SessionError) -> End {
    End { reason: error.to_string(), by_peer: matches!(error, SessionError::PeerClosed { .. }) }
}

fn stream(stream: vmcc_plmt::Stream) -> Stream {
    let stopped = Box::pin(stream.stopped());
    let (send, recv) = stream.into_split();
    Stream { send: Box::new(send), recv: Box::new(recv), stopped }
}

impl SendHalf for vmcc_plmt::SendStream {
    fn wait_acked(&mut self) -> Pending<'_, io::Result<()>> {
        Box::pin(vmcc_plmt::SendStream::wait_acked(self))
    }
}

impl Session for Connection {
    fn open_stream(&self) -> Pending<'_, io::Result<Stream>> {
        Box::pin(async { Connection::open_stream(self).await.map(stream) })
    }

    fn accept_stream(&self) -> Pending<'_, io::Result<Stream>> {
        Box::pin(async { Connection::accept_stream(self).await.map(stream) })
    }

    fn send_datagram(&self, _: &[u8]) -> bool {
        false
    }

    fn read_datagram(&self) -> Pending<'_, io::Result<Vec<u8>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn has_datagrams(&self) -> bool {
        false
    }

    fn closed(&self) -> Pending<'_, End> {
        Box::pin(async {
            let error = Connection::closed(self).await;
            self.end().unwrap_or_else(|| End { reason: error.to_string(), by_peer: false })
        })
    }

    fn end(&self) -> Option<End> {
        self.error().as_ref().map(end)
    }

    fn close(&self, code: u64, reason: &str) {
        Connection::close(self, code, reason);
    }

    fn paths(&self) -> Vec<PathUsage> {
        let usage = |CarrierReport { stats, local, remote, .. }| PathUsage {
            local: local.ip(),
            relay: None,
            remote,
            received: stats.bytes_in,
            sent: stats.bytes_out,
            failed: stats.suspect,
        };
        self.reports().into_iter().map(usage).collect()
    }

    fn is_multipath(&self) -> bool {
        true
    }

    /// The server's greeting follows its check.
    fn is_confirmed(&self) -> bool {
        true
    }

    fn heard(&self) -> u64 {
        self.carriers().iter().map(|carrier| carrier.bytes_in).sum()
    }
}
