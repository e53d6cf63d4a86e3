//! Against aioquic, over sockets of the loopback: HTTP/0.9 over QUIC (`hq-interop`), as client and as server, by one path.

mod as_client;
mod as_server;
mod program;

use crate::forward::{Faults, Forward};
use std::time::Duration;

/// Longest wait of a test: both processes may have to wait for a processor.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Bytes of a transfer.
const BYTES: usize = 1 << 20;
/// Streams of a connection that multiplexes, and bytes of each.
const STREAMS: (usize, usize) = (100, 5000);
/// Connections whose handshakes lose datagrams, and bytes that each carries.
const HANDSHAKES: (usize, usize) = (5, 1000);
/// Faults of handshakes, and of transfers.
const HANDSHAKE_LOSS: Faults = Faults { lost: 300, damaged: 0 };
const HANDSHAKE_DAMAGE: Faults = Faults { lost: 0, damaged: 300 };
const TRANSFER_LOSS: Faults = Faults { lost: 20, damaged: 0 };
const TRANSFER_DAMAGE: Faults = Faults { lost: 0, damaged: 20 };
/// Time for which nothing passes in the middle of a transfer.
const OUTAGE: Duration = Duration::from_secs(2);

/// Runs a test, for at most [`TIMEOUT`].
fn within_timeout(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, test).await.expect("the peer ends in time") });
}

/// Lets nothing pass for [`OUTAGE`], once, when a third of [`BYTES`] has gone.
async fn cut_once(forward: &Forward, cut: &mut bool, gone: usize) {
    if gone >= BYTES / 3 && !std::mem::replace(cut, true) {
        forward.set_cut(true);
        tokio::time::sleep(OUTAGE).await;
        forward.set_cut(false);
    }
}
