//! Against picoquic's own program, over sockets of the loopback: HTTP/0.9 over QUIC (`hq-interop`), as client and as server, by one path and by
//! three of which one is cut in silence and one given up.
//!
//! picoquic is no part of this project, so nothing here runs by itself:
//!
//! ```sh
//! VMCC_PICOQUIC=/path/to/picoquicdemo cargo test -p vmcc-udp --test it picoquic -- --ignored
//! ```

mod as_client;
mod as_server;
mod paths;
mod program;
use std::time::Duration;

/// Longest wait of a test: both processes may have to wait for a processor.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Bytes that go one way.
const BYTES: usize = 6 << 20;

/// Runs `test` with picoquic's program, if there is one.
fn with_picoquic(test: impl AsyncFnOnce(program::Picoquic)) {
    let Some(program) = program::Picoquic::found() else {
        eprintln!("did not run: VMCC_PICOQUIC names no picoquicdemo");
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(TIMEOUT, test(program)).await.expect("it takes no such time")
    });
}
