//! The engine of `vmcc_transport` over real sockets, for tokio: one UDP socket per local address, segmentation offload both ways, ECN bits,
//! addresses that come and go.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! # use vmcc_udp::{Endpoint, PathManager, Target};
//! # async fn example(tls: Arc<dyn vmcc_transport::crypto::Tls>) -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint = Endpoint::new(None)?;
//! let target = Target {
//!     name: "server.example".into(),
//!     addresses: vec!["192.0.2.7:4433".parse()?, "198.51.100.7:4433".parse()?],
//!     ..Target::default() // from every usable address of this host, by no relays
//! };
//! // The first pair of addresses that answers carries the handshake.
//! let connection = endpoint.connect(tls, Arc::new(vmcc_udp::config()), &target).await?;
//! // Every other pair becomes a path, also of addresses that come later.
//! let _path_manager = PathManager::start(&connection, target);
//! let mut stream = connection.open_stream().await?;
//! stream.write_all(b"over all paths").await?;
//! stream.shutdown().await?;
//! let mut answer = Vec::new();
//! stream.read_to_end(&mut answer).await?;
//! for path in connection.paths() {
//!     println!("{} to {}: {} bytes sent", path.route.local, path.route.remote, path.bytes.1);
//! }
//! connection.close(0, "done");
//! endpoint.wait_idle().await;
//! # Ok(())
//! # }
//! ```
//!
//! A path whose interface is gone is known to be dead at the first packet that the system refuses, not after a timeout: sending never hides
//! an error.

mod address;
mod batch;
mod connect;
mod connection;
mod device;
mod driver;
mod endpoint;
mod event;
mod icmp;
mod path_manager;
mod qlog;
mod relay;
mod relay_endpoint;
mod shared;
mod slots;
mod socket;
mod stream;
mod tx_batch;

pub use address::{Changes, Source, is_link_local, on_any_link, sources};
pub use connect::{Candidate, ConnectError, FailedAttempt, Target};
pub use connection::Connection;
pub use device::bind_device;
pub use endpoint::{ConnectionReport, Endpoint};
pub use event::PathEvent;
pub use path_manager::PathManager;
pub use qlog::Qlog;
pub use relay::{Relay, Via};
pub use stream::{RecvStream, SendStream, Stream};

/// Unsent bytes of a stream: as many as stay in a processor's cache beside all else.
const UNSENT_WINDOW: u64 = 512 << 10;

/// Settings that suit sockets: as many packets in one call as the kernel takes, and data taken from programs shortly before it leaves.
pub fn config() -> vmcc_transport::Config {
    vmcc_transport::Config {
        max_segments: socket::SEGMENTS,
        unsent_window: UNSENT_WINDOW,
        ..vmcc_transport::Config::default()
    }
}
