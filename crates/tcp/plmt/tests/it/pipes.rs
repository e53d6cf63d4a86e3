//! Routes that change, and pipes that are not TCP.

use crate::pair::{BOUND, listen, routes, wait_carriers};
use crate::sessions::{data, echo};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::time::timeout;
use vmcc_plmt::{
    Binding, CarrierInfo, ClientSecurity, Config, Listener, NewPipe, Pipe, PipeAcceptor, PipeDialer,
    ServerSecurity, connect,
};

#[tokio::test]
async fn routes_follow_the_application() {
    let mut listener = listen(ServerSecurity::Plain).await;
    let all = routes(listener.addresses());
    let connecting = connect(Config::default(), ClientSecurity::Plain, all[..1].to_vec(), None);
    let (client, dialer) = timeout(BOUND, connecting).await.unwrap().unwrap();
    let server = timeout(BOUND, listener.accept()).await.unwrap().unwrap();
    wait_carriers(&client, 1).await;
    dialer.set_routes(all.clone());
    wait_carriers(&server, 2).await;
    dialer.set_routes(all[1..].to_vec());
    wait_carriers(&server, 1).await;
    wait_carriers(&client, 1).await;
    assert_eq!(client.reports()[0].remote, all[1].remote);
    let data = data(100_000);
    assert!(echo(&client, &server, &data).await == data);
}

/// Pipe in memory that swallows everything once it is cut.
struct Memory {
    stream: DuplexStream,
    cut: Arc<AtomicBool>,
}

impl Pipe for Memory {
    fn info(&self) -> CarrierInfo {
        CarrierInfo { cwnd_pkt: 1000, ..CarrierInfo::default() }
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }

    fn congestion(&self) -> Option<String> {
        None
    }

    fn end_gracefully(&mut self) {}
}

impl AsyncRead for Memory {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, out);
        if self.cut.load(Ordering::Relaxed) { Poll::Pending } else { read }
    }
}

impl AsyncWrite for Memory {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.cut.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(data.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

struct MemoryDialer {
    acceptor: PipeAcceptor,
    cut: Arc<AtomicBool>,
}

impl PipeDialer for MemoryDialer {
    fn dial(&self) -> Pin<Box<dyn Future<Output = io::Result<NewPipe>> + Send + '_>> {
        Box::pin(async {
            if self.cut.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let (near, far) = duplex(64 << 10);
            let [near, far] =
                [near, far].map(|stream| Box::new(Memory { stream, cut: self.cut.clone() }) as Box<dyn Pipe>);
            let acceptor = self.acceptor.clone();
            tokio::spawn(async move { acceptor.greet(far, Binding([9; 32])).await });
            Ok((near, Binding([9; 32])))
        })
    }
}

#[tokio::test]
async fn preferred_pipe_carries_all_until_it_falls_silent() {
    let addresses = ["127.0.0.1:0".parse().unwrap()];
    let bind = Listener::bind(&addresses, Config::default(), ServerSecurity::Plain, true);
    let mut listener = bind.await.unwrap();
    let cut = Arc::new(AtomicBool::new(false));
    let dialer = Arc::new(MemoryDialer { acceptor: listener.pipes(), cut: cut.clone() });
    let routes = routes(listener.addresses());
    let connecting = connect(Config::default(), ClientSecurity::Plain, routes, Some(dialer));
    let (client, _dialer) = timeout(BOUND, connecting).await.unwrap().unwrap();
    let server = timeout(BOUND, listener.accept()).await.unwrap().unwrap();
    wait_carriers(&client, 2).await;
    wait_carriers(&server, 2).await;
    let data = data(1_000_000);
    let backups = || {
        let ends = [&client, &server].map(|end| end.carriers());
        let backups = ends.iter().flatten().filter(|carrier| carrier.backup);
        backups.map(|carrier| carrier.bytes_out).sum::<u64>()
    };
    assert!(echo(&client, &server, &data).await == data);
    let before = backups();
    assert!(before < 100_000, "TCP waits: {before} bytes");
    cut.store(true, Ordering::Relaxed);
    assert!(echo(&client, &server, &data).await == data);
    assert!(backups() - before > 1_900_000, "TCP carries both ways: {}", backups() - before);
}
