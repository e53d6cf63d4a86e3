//! The end that takes what comes.

use super::pattern::Pattern;
use super::{ALPN, Arrival, Event, Reporter, TrafficGenError};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use vmcc_apps::keys::Identity;
use vmcc_apps::trust::{self, Trust};
use vmcc_transport::{Config, Retry, Server};
use vmcc_udp::{Connection, Endpoint, Source, sources};

/// Connections at a time: more than a program sends.
const MAX_CONNECTIONS: usize = 1024;

/// Never returns but with an error.
pub(super) async fn receive(
    (at, port): (&[IpAddr], u16),
    config: Arc<Config>,
    every: Duration,
    reporter: Reporter,
) -> Result<(), TrafficGenError> {
    let identity = Identity::generate()?;
    let tls = trust::server(&identity, Trust::Any, ALPN)?;
    let server =
        Server { tls, config, retry: Retry::Above(MAX_CONNECTIONS), max_connections: MAX_CONNECTIONS };
    let endpoint = Endpoint::new(Some(server))?;
    let own = sources()?;
    let at: Vec<Source> = match at {
        [] => own,
        some => some.iter().map(|ip| Source::at(*ip, &own)).collect(),
    };
    for address in at {
        let bound = endpoint.bind_source(&address, port);
        bound.map_err(|source| TrafficGenError::Socket { address: address.ip, source })?;
    }
    reporter.report(&[Event::Listening])?;
    let pattern = Arc::new(Pattern::new());
    loop {
        let connection = endpoint.accept().await;
        let (pattern, reporter) = (pattern.clone(), reporter.clone());
        // What ends with its connection says the other end.
        tokio::spawn(async move { drop(take(&connection, &pattern, every, &reporter).await) });
    }
}

/// Takes a connection's stream, which begins with the connection's number.
async fn take(
    connection: &Connection,
    pattern: &Pattern,
    every: Duration,
    reporter: &Reporter,
) -> io::Result<()> {
    let mut stream = connection.accept_stream().await.map_err(io::Error::other)?;
    let number = stream.read_u32().await?;
    let mut buffer = vec![0; Pattern::PIECE];
    let mut arrival = Arrival { connection: number, at: reporter.now(), ..Arrival::default() };
    let mut told = Duration::ZERO;
    loop {
        let len = stream.read(&mut buffer).await?;
        if len == 0 {
            return Ok(());
        }
        // Pieces of a period at most.
        let mut checked = 0;
        while checked < len {
            let wanted = pattern.at(arrival.bytes + checked as u64, len - checked);
            if buffer[checked..checked + wanted.len()] != *wanted {
                let bytes = (arrival.bytes, arrival.bytes + len as u64);
                return reporter.report(&[Event::Wrong { connection: number, bytes }]);
            }
            checked += wanted.len();
        }
        let now = reporter.now();
        if arrival.bytes > 0 {
            arrival.stalled = arrival.stalled.max(now.saturating_sub(arrival.at));
        }
        (arrival.at, arrival.bytes) = (now, arrival.bytes + len as u64);
        if now >= told + every {
            told = now;
            reporter.report(&[Event::Arrived(arrival)])?;
        }
    }
}
