//! A way between two addresses that can be cut in silence.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::UdpSocket;

/// Passes on what comes, both ways, between whoever sends first and one peer.
pub(crate) struct Forward {
    /// Address to send to.
    pub(crate) at: SocketAddr,
    /// Source address of what it passes on.
    pub(crate) from: SocketAddr,
    cut: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Forward {
    /// From `at` to `to`.
    pub(crate) async fn start(at: SocketAddr, to: SocketAddr) -> Forward {
        let near = UdpSocket::bind(at).await.unwrap();
        let far = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        far.connect(to).await.unwrap();
        let (at, from) = (near.local_addr().unwrap(), far.local_addr().unwrap());
        let cut = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(pass(near, far, cut.clone()));
        Forward { at, from, cut, task }
    }

    /// From now on nothing passes.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(near: UdpSocket, far: UdpSocket, cut: Arc<AtomicBool>) {
    let (mut out, mut back) = ([0; 65_536], [0; 65_536]);
    let mut peer = None;
    loop {
        // What does not pass is lost, as on any way.
        tokio::select! {
            Ok((len, from)) = near.recv_from(&mut out) => {
                peer = Some(from);
                if !cut.load(Ordering::Relaxed) {
                    let _ = far.send(&out[..len]).await;
                }
            }
            Ok(len) = far.recv(&mut back) => if let (Some(peer), false) = (peer, cut.load(Ordering::Relaxed)) {
                let _ = near.send_to(&back[..len], peer).await;
            },
        }
    }
}
