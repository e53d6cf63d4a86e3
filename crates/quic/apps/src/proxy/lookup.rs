//! Look-ups of names, of which each client has a limited number at a time: a resolver that does not answer keeps a thread for long.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::Instant;

/// Look-ups of a client at a time; the system's threads for them are eight times as many.
const MAX_CLIENT_LOOKUPS: usize = 64;
/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 32;
/// Names that one association looks up at a time, and datagrams that wait for each.
const MAX_ASSOCIATION_LOOKUPS: usize = 4;
const MAX_WAITING: usize = 16;
/// Names whose addresses an association keeps, and for how long.
const MAX_NAMES: usize = 64;
const NAME_LIFETIME: Duration = Duration::from_secs(30);

/// Look-ups of a client.
#[derive(Clone)]
pub(super) struct Lookups {
    permits: Arc<Semaphore>,
}

impl Lookups {
    pub(super) fn new() -> Lookups {
        Lookups { permits: Arc::new(Semaphore::new(MAX_CLIENT_LOOKUPS)) }
    }

    /// The addresses of a host, of alternating families (RFC 8305 section 4). Addresses need no look-up, and wait for none.
    pub(super) async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let permit = self.permits.clone().acquire_owned().await.map_err(io::Error::other)?;
        let host = host.to_owned();
        // The thread has the permit: it goes on when nobody waits any more.
        let look_up = move || {
            let _permit = permit;
            (host.as_str(), port).to_socket_addrs().map(Iterator::collect)
        };
        // To a program, a name without an address is a host that cannot be reached.
        let found: io::Result<Vec<_>> = spawn_blocking(look_up).await.map_err(io::Error::other)?;
        found.map(alternate).map_err(|_| io::ErrorKind::HostUnreachable.into())
    }
}

/// Addresses of alternating families, the first one's first (RFC 8305 section 4).
fn alternate(all: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = all.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut ordered = Vec::new();
    loop {
        let before = ordered.len();
        ordered.extend(first.next());
        ordered.extend(second.next());
        if ordered.len() == before || ordered.len() >= MAX_ADDRESSES {
            ordered.truncate(MAX_ADDRESSES);
            return ordered;
        }
    }
}

type Name = (String, u16);

/// Names of an association, looked up beside its other datagrams.
pub(super) struct Names {
    lookups: Lookups,
    known: HashMap<Name, (Instant, Vec<SocketAddr>)>,
    waiting: HashMap<Name, VecDeque<Vec<u8>>>,
    tasks: JoinSet<(Name, Vec<SocketAddr>)>,
}

impl Names {
    pub(super) fn new(lookups: Lookups) -> Names {
        Names { lookups, known: HashMap::new(), waiting: HashMap::new(), tasks: JoinSet::new() }
    }

    /// The addresses of a name if they are known. Else `payload` waits for them, or is lost where too much waits.
    pub(super) fn find(&mut self, name: Name, payload: &[u8]) -> Option<&[SocketAddr]> {
        self.known.retain(|_, (at, _)| at.elapsed() < NAME_LIFETIME);
        if !self.known.contains_key(&name) {
            self.wait(name, payload);
            return None;
        }
        self.known.get(&name).map(|(_, addresses)| &addresses[..])
    }

    fn wait(&mut self, name: Name, payload: &[u8]) {
        if let Some(waiting) = self.waiting.get_mut(&name) {
            waiting.push_back(payload.to_vec());
            if waiting.len() > MAX_WAITING {
                waiting.pop_front();
            }
        } else if self.tasks.len() < MAX_ASSOCIATION_LOOKUPS {
            self.waiting.insert(name.clone(), VecDeque::from([payload.to_vec()]));
            let lookups = self.lookups.clone();
            self.tasks.spawn(async move {
                let found = lookups.addresses(&name.0, name.1).await.unwrap_or_default();
                (name, found)
            });
        }
    }

    /// The next addresses that were found, and the datagrams that waited for them; `None` while nothing is looked up.
    pub(super) async fn next(&mut self) -> Option<(Vec<SocketAddr>, VecDeque<Vec<u8>>)> {
        let (name, addresses) = self.tasks.join_next().await?.ok()?;
        let waiting = self.waiting.remove(&name).unwrap_or_default();
        if self.known.len() < MAX_NAMES && !addresses.is_empty() {
            self.known.insert(name, (Instant::now(), addresses.clone()));
        }
        Some((addresses, waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::block_on;
    use tokio::time::timeout;

    fn all(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn families_alternate_from_the_first_address() {
        let given = all(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "1.1.1.2:1"]);
        let wanted = all(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "1.1.1.2:1", "[::3]:1"]);
        assert_eq!(alternate(given), wanted);
        assert!(alternate(Vec::new()).is_empty());
        assert_eq!(alternate(vec!["1.1.1.1:1".parse().unwrap(); 1000]).len(), MAX_ADDRESSES);
    }

    #[test]
    fn hanging_lookups_delay_no_addresses_and_stay_bounded() {
        block_on(async {
            let lookups = Lookups::new();
            let hanging =
                lookups.permits.clone().acquire_many_owned(MAX_CLIENT_LOOKUPS as u32).await.unwrap();
            assert_eq!(lookups.addresses("192.0.2.1", 5).await.unwrap(), ["192.0.2.1:5".parse().unwrap()]);
            let mut names = Names::new(lookups.clone());
            for i in 0..1000 {
                assert!(names.find((format!("{}.test", i % 100), 1), b"payload").is_none());
            }
            assert_eq!((names.tasks.len(), names.waiting.len()), (4, 4));
            assert!(names.waiting.values().all(|waiting| waiting.len() <= MAX_WAITING));
            assert!(timeout(Duration::from_millis(50), names.next()).await.is_err());
            drop(hanging);
            let mut names = Names::new(lookups);
            assert!(names.find(("localhost".to_owned(), 7), b"payload").is_none());
            let (addresses, waiting) = names.next().await.unwrap();
            assert!(addresses.iter().all(|one| one.ip().is_loopback()) && !addresses.is_empty());
            assert_eq!(waiting, [b"payload"]);
            assert_eq!(names.find(("localhost".to_owned(), 7), b"more"), Some(&addresses[..]));
        })
        .unwrap();
    }
}
