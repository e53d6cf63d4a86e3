//! Sessions that are multipath QUIC connections.

use super::{End, PathUsage, Pending, SendHalf, Session, Stream};
use std::io;
use vmcc_transport::ConnectionError;
use vmcc_udp::Connection;

fn end(error: &ConnectionError) -> End {
    End { reason: error.to_string(), by_peer: matches!(error, ConnectionError::ApplicationClosed { .. }) }
}

fn stream(stream: vmcc_udp::Stream) -> Stream {
    let stopped = Box::pin(stream.stopped());
    let (send, recv) = stream.into_split();
    Stream { send: Box::new(send), recv: Box::new(recv), stopped }
}

impl SendHalf for vmcc_udp::SendStream {
    fn wait_acked(&mut self) -> Pending<'_, io::Result<()>> {
        Box::pin(vmcc_udp::SendStream::wait_acked(self))
    }
}

impl Session for Connection {
    fn open_stream(&self) -> Pending<'_, io::Result<Stream>> {
        Box::pin(async { Connection::open_stream(self).await.map(stream).map_err(io::Error::other) })
    }

    fn accept_stream(&self) -> Pending<'_, io::Result<Stream>> {
        Box::pin(async { Connection::accept_stream(self).await.map(stream).map_err(io::Error::other) })
    }

    fn send_datagram(&self, data: &[u8]) -> bool {
        Connection::send_datagram(self, data)
    }

    fn read_datagram(&self) -> Pending<'_, io::Result<Vec<u8>>> {
        Box::pin(async { Connection::read_datagram(self).await.map_err(io::Error::other) })
    }

    fn has_datagrams(&self) -> bool {
        self.max_datagram().is_some()
    }

    fn closed(&self) -> Pending<'_, End> {
        Box::pin(async { end(&Connection::closed(self).await) })
    }

    fn end(&self) -> Option<End> {
        self.error().as_ref().map(end)
    }

    fn close(&self, code: u64, reason: &str) {
        Connection::close(self, code, reason);
    }

    fn paths(&self) -> Vec<PathUsage> {
        let usage = |path: vmcc_transport::PathReport| PathUsage {
            local: path.route.local.ip(),
            relay: self.endpoint().via(path.route.local).map(|via| via.relay.to_string()),
            remote: path.route.remote,
            received: path.bytes.0,
            sent: path.bytes.1,
            failed: path.failed,
        };
        Connection::paths(self).into_iter().filter(|path| path.open).map(usage).collect()
    }

    fn is_multipath(&self) -> bool {
        Connection::is_multipath(self)
    }

    fn is_confirmed(&self) -> bool {
        Connection::is_confirmed(self)
    }

    fn heard(&self) -> u64 {
        self.stats().datagrams_in
    }
}
