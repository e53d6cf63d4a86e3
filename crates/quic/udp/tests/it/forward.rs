//! A way between two addresses that loses and damages datagrams, can be cut in silence, and rebinds as a NAT does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::UdpSocket;
use tokio::sync::Notify;

/// Passes on what comes, both ways, between the first sender and one peer.
pub(crate) struct Forward {
    /// Address to send to.
    pub(crate) at: SocketAddr,
    /// Source address of what it passes on.
    pub(crate) from: SocketAddr,
    cut: Arc<AtomicBool>,
    rebind: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

impl Forward {
    /// From `at` to `to`.
    pub(crate) async fn start(at: SocketAddr, to: SocketAddr) -> Forward {
        Forward::start_faulty(at, to, Faults::default()).await
    }

    /// From `at` to `to`, with faults in each direction.
    pub(crate) async fn start_faulty(at: SocketAddr, to: SocketAddr, faults: Faults) -> Forward {
        let near = UdpSocket::bind(at).await.unwrap();
        let far = far_socket(to).await;
        let (at, from) = (near.local_addr().unwrap(), far.local_addr().unwrap());
        let (cut, rebind) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let task =
            tokio::spawn(pass(near, far, to, cut.clone(), rebind.clone(), Draws { faults, state: SEED }));
        Forward { at, from, cut, rebind, task }
    }

    /// Has what is passed on to the peer come from another port from now on.
    pub(crate) fn rebind(&self) {
        self.rebind.notify_one();
    }

    /// From now on nothing passes, or everything again.
    pub(crate) fn set_cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Faults of a thousand datagrams.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) lost: u64,
    /// One bit is another.
    pub(crate) damaged: u64,
}

/// State of the generator at first.
const SEED: u64 = 88_172_645_463_325_252;

/// Faults to draw, and the generator (Xorshift).
struct Draws {
    faults: Faults,
    state: u64,
}

impl Draws {
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// Damages a datagram, if that is its fate. Returns false if it is lost.
    fn pass(&mut self, datagram: &mut [u8]) -> bool {
        let fate = self.next() % 1000;
        let Faults { lost, damaged } = self.faults;
        if (lost..lost + damaged).contains(&fate) && !datagram.is_empty() {
            let bit = self.next() as usize % (8 * datagram.len());
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
        fate >= lost
    }
}

/// Socket towards the peer, at a port of its own.
async fn far_socket(to: SocketAddr) -> UdpSocket {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let far = UdpSocket::bind(any).await.unwrap();
    far.connect(to).await.unwrap();
    far
}

async fn pass(
    near: UdpSocket,
    mut far: UdpSocket,
    to: SocketAddr,
    cut: Arc<AtomicBool>,
    rebind: Arc<Notify>,
    mut draws: Draws,
) {
    let (mut out, mut back) = ([0; 65_536], [0; 65_536]);
    let mut peer = None;
    loop {
        // What does not pass is lost, as on any way.
        tokio::select! {
            () = rebind.notified() => far = far_socket(to).await,
            Ok((len, from)) = near.recv_from(&mut out) => {
                peer = Some(from);
                if !cut.load(Ordering::Relaxed) && draws.pass(&mut out[..len]) {
                    let _ = far.send(&out[..len]).await;
                }
            }
            Ok(len) = far.recv(&mut back) => if let Some(peer) = peer
                && !cut.load(Ordering::Relaxed)
                && draws.pass(&mut back[..len])
            {
                let _ = near.send_to(&back[..len], peer).await;
            },
        }
    }
}
