//! Connections to hosts with several addresses (RFC 8305, "happy eyeballs").

use super::lookup::Lookups;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Time for a connection to a host, its name's look-up included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Time between the beginnings of two attempts (RFC 8305 section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to a host: to the first of its addresses that answers.
pub(super) async fn dial(host: &str, port: u16, lookups: &Lookups) -> io::Result<TcpStream> {
    let connect = async { race(lookups.addresses(host, port).await?).await };
    timeout(CONNECT_TIMEOUT, connect).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The first connection that comes about. Another attempt begins a quarter of a second after the last one, or when one has failed.
async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut rest = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut failure = io::Error::from(io::ErrorKind::HostUnreachable);
    loop {
        if let Some(address) = rest.next() {
            attempts.spawn(TcpStream::connect(address));
        }
        tokio::select! {
            biased;
            done = attempts.join_next() => match done {
                Some(Ok(Ok(tcp))) => return Ok(tcp),
                Some(Ok(Err(error))) if says_more(&error, &failure) => failure = error,
                Some(_) => {}
                None => return Err(failure),
            },
            () = sleep(ATTEMPT_DELAY), if rest.len() > 0 => {}
        }
    }
}

/// Orders errors by how much they say of the host: an address of a family that this host does not have says nothing.
fn says_more(error: &io::Error, than: &io::Error) -> bool {
    let rank = |error: &io::Error| match error.kind() {
        io::ErrorKind::ConnectionRefused => 3,
        io::ErrorKind::TimedOut => 2,
        io::ErrorKind::HostUnreachable => 0,
        _ => 1,
    };
    rank(error) >= rank(than)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::block_on;
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    /// A listener whose queue is full swallows SYNs, as a dead address does.
    #[test]
    fn unresponsive_address_does_not_delay_the_next() {
        block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let silent = socket.listen(0).unwrap();
            let dead = silent.local_addr().unwrap();
            let mut filling = Vec::new();
            while let Ok(tcp) = timeout(Duration::from_millis(300), TcpStream::connect(dead)).await {
                filling.push(tcp.unwrap());
                assert!(filling.len() < 100, "its queue is never full");
            }
            let live = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let begun = Instant::now();
            let tcp = race(vec![dead, live.local_addr().unwrap()]).await.unwrap();
            assert_eq!(tcp.peer_addr().unwrap(), live.local_addr().unwrap());
            assert!(begun.elapsed() >= ATTEMPT_DELAY);
        })
        .unwrap();
    }

    #[test]
    fn most_specific_error_is_reported() {
        block_on(async {
            let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
            // A link-local address without its interface leads nowhere.
            let far = vec![closed, "[fe80::1]:1".parse().unwrap()];
            assert_eq!(race(far).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
            assert_eq!(race(Vec::new()).await.unwrap_err().kind(), io::ErrorKind::HostUnreachable);
        })
        .unwrap();
    }
}
