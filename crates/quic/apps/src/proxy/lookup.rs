//! Look-ups of names, of which each client has a limited number at a time: a resolver that does not answer keeps a thread for long.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::Instant;

/// Look-ups of a client at a time; the system's threads for them are eight times as many.
const MAX_CLIENT_LOOKUPS: usize = 64;
/// Of these, names of one domain: where its servers do not answer, others go on.
const MAX_DOMAIN_LOOKUPS: usize = 48;
/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 32;
/// Names that one association looks up at a time, and datagrams that wait for each.
const MAX_ASSOCIATION_LOOKUPS: usize = 4;
const MAX_WAITING: usize = 16;
/// Names whose addresses an association keeps, and for how long.
const MAX_NAMES: usize = 64;
const NAME_LIFETIME: Duration = Duration::from_secs(30);

/// Look-ups of a client: one at a time of each name, and a limited number of each domain and of all.
#[derive(Clone)]
pub(super) struct Lookups(Arc<Inner>);

struct Inner {
    /// The system's resolver, which blocks.
    resolve: fn(&str) -> io::Result<Vec<SocketAddr>>,
    permits: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Names that are looked up or wait for that.
    names: HashMap<String, Arc<watch::Sender<Found>>>,
    /// Domains of these.
    domains: HashMap<String, Weak<Semaphore>>,
}

/// Addresses of a name, without ports, once they are known; none if there are none.
type Found = Option<Vec<SocketAddr>>;

impl Lookups {
    pub(super) fn new() -> Lookups {
        Lookups::with(|host| Ok((host, 0).to_socket_addrs()?.collect()))
    }

    fn with(resolve: fn(&str) -> io::Result<Vec<SocketAddr>>) -> Lookups {
        let permits = Arc::new(Semaphore::new(MAX_CLIENT_LOOKUPS));
        Lookups(Arc::new(Inner { resolve, permits, state: Mutex::default() }))
    }

    /// The addresses of a host, of alternating families (RFC 8305 section 4). Addresses need no look-up, and wait for none.
    pub(super) async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let mut found = self.look_up(host);
        let found = found.wait_for(Option::is_some).await.map_err(io::Error::other)?;
        let mut addresses = found.clone().unwrap_or_default();
        addresses.iter_mut().for_each(|address| address.set_port(port));
        // To a program, a name without an address is a host that cannot be reached.
        if addresses.is_empty() {
            Err(io::ErrorKind::HostUnreachable.into())
        } else {
            Ok(alternate(addresses))
        }
    }

    /// The look-up of a name that is under way, or a new one.
    fn look_up(&self, host: &str) -> watch::Receiver<Found> {
        let mut state = self.state();
        if let Some(lookup) = state.names.get(host) {
            return lookup.subscribe();
        }
        let (lookup, found) = watch::channel(None);
        let lookup = Arc::new(lookup);
        state.names.insert(host.to_owned(), lookup.clone());
        tokio::spawn(self.clone().run(host.to_owned(), state.domain(host), lookup));
        found
    }

    async fn run(self, host: String, domain: Arc<Semaphore>, lookup: Arc<watch::Sender<Found>>) {
        let mut permits = pin!(self.permits(domain));
        let permits = loop {
            tokio::select! {
                permits = &mut permits => break permits,
                () = lookup.closed() => {
                    // A name that nobody waits for any more leaves the line. Its thread, once begun, goes on.
                    let mut state = self.state();
                    if lookup.receiver_count() == 0 {
                        state.names.remove(&host);
                        return;
                    }
                }
            }
        };
        let found = match permits {
            Some(permits) => self.resolve(&host, permits).await,
            None => Vec::new(),
        };
        self.state().names.remove(&host);
        lookup.send_replace(Some(found));
    }

    async fn permits(&self, domain: Arc<Semaphore>) -> Option<[OwnedSemaphorePermit; 2]> {
        // In this order: names of one domain do not fill the line of all.
        let of_domain = domain.acquire_owned().await.ok()?;
        Some([of_domain, self.0.permits.clone().acquire_owned().await.ok()?])
    }

    async fn resolve(&self, host: &str, permits: [OwnedSemaphorePermit; 2]) -> Vec<SocketAddr> {
        let (resolve, host) = (self.0.resolve, host.to_owned());
        let look_up = move || {
            let _permits = permits;
            resolve(&host)
        };
        spawn_blocking(look_up).await.ok().and_then(Result::ok).unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The limit of the domain of a host.
    fn domain(&mut self, host: &str) -> Arc<Semaphore> {
        // Seldom, as it takes the time of all.
        if self.domains.len() > 2 * self.names.len() {
            self.domains.retain(|_, domain| domain.strong_count() > 0);
        }
        let limit = self.domains.entry(domain_of(host)).or_default();
        limit.upgrade().unwrap_or_else(|| {
            let new = Arc::new(Semaphore::new(MAX_DOMAIN_LOOKUPS));
            *limit = Arc::downgrade(&new);
            new
        })
    }
}

/// The last two labels of a name: names that have them in common have the same servers, most likely.
fn domain_of(host: &str) -> String {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let begin = host.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at + 1);
    host[begin..].to_owned()
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
    fn domain_is_the_last_two_labels() {
        for (host, domain) in [
            ("a.b.example.com", "example.com"),
            ("A.Example.COM.", "example.com"),
            ("b.c", "b.c"),
            ("x", "x"),
            ("..", ""),
        ] {
            assert_eq!(domain_of(host), domain, "{host}");
        }
    }

    #[test]
    fn families_alternate_from_the_first_address() {
        let given = all(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "1.1.1.2:1"]);
        let wanted = all(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "1.1.1.2:1", "[::3]:1"]);
        assert_eq!(alternate(given), wanted);
        assert!(alternate(Vec::new()).is_empty());
        assert_eq!(alternate(vec!["1.1.1.1:1".parse().unwrap(); 1000]).len(), MAX_ADDRESSES);
    }

    /// A resolver that answers for names which begin with `ok`, and for others once it may.
    mod resolver {
        use super::*;
        use std::sync::Condvar;

        pub(super) struct Resolver {
            /// Look-ups under way, the most that were at a time, and whether names hang.
            state: Mutex<(usize, usize, bool)>,
            changed: Condvar,
        }

        impl Resolver {
            pub(super) const fn new() -> Resolver {
                Resolver { state: Mutex::new((0, 0, true)), changed: Condvar::new() }
            }

            pub(super) fn resolve(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
                let mut state = self.state.lock().unwrap();
                state.0 += 1;
                state.1 = state.1.max(state.0);
                let hangs = !host.starts_with("ok");
                let mut state = self.changed.wait_while(state, |state| state.2 && hangs).unwrap();
                state.0 -= 1;
                Ok(all(&["192.0.2.1:0"]))
            }

            /// Waits until this number of look-ups is under way.
            pub(super) async fn wait_for(&self, count: usize) {
                let begun = Instant::now();
                while self.state.lock().unwrap().0 != count {
                    assert!(begun.elapsed() < BOUND, "not {count}: {:?}", self.state.lock().unwrap());
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }

            /// Lets names hang no more. Returns the most look-ups that were under way at a time.
            pub(super) fn release(&self) -> usize {
                let mut state = self.state.lock().unwrap();
                state.2 = false;
                self.changed.notify_all();
                state.1
            }
        }
    }

    use resolver::Resolver;

    /// A bound that only a hang reaches.
    const BOUND: Duration = Duration::from_secs(60);
    const POLL_INTERVAL: Duration = Duration::from_millis(1);

    /// Has every name looked up, in tasks.
    fn look_up(lookups: &Lookups, names: impl Iterator<Item = String>) -> JoinSet<bool> {
        let mut tasks = JoinSet::new();
        for name in names {
            let lookups = lookups.clone();
            tasks.spawn(async move { lookups.addresses(&name, 80).await.is_ok() });
        }
        tasks
    }

    async fn finds(lookups: &Lookups, name: &str) {
        let found = timeout(BOUND, lookups.addresses(name, 80)).await.expect("it waits for others");
        assert_eq!(found.unwrap(), all(&["192.0.2.1:80"]), "{name}");
    }

    #[test]
    fn hanging_name_delays_no_other() {
        static RESOLVER: Resolver = Resolver::new();
        block_on(async {
            let lookups = Lookups::with(|host| RESOLVER.resolve(host));
            let one = look_up(&lookups, (0..1000).map(|_| "hangs.example.com".to_owned()));
            RESOLVER.wait_for(1).await;
            finds(&lookups, "ok.example.com").await;
            assert_eq!(RESOLVER.release(), 2);
            assert_eq!(timeout(BOUND, one.join_all()).await.unwrap(), [true; 1000]);
            assert!(lookups.state().names.is_empty());
        })
        .unwrap();
    }

    #[test]
    fn hanging_domains_leave_room_for_others() {
        static RESOLVER: Resolver = Resolver::new();
        block_on(async {
            let lookups = Lookups::with(|host| RESOLVER.resolve(host));
            let mut dead = vec![look_up(&lookups, (0..300).map(|i| format!("n{i}.Dead.test.")))];
            RESOLVER.wait_for(MAX_DOMAIN_LOOKUPS).await;
            finds(&lookups, "ok.example.com").await;
            // Beyond the limit names wait for their turn: that of a third domain is before the rest of the others.
            dead.push(look_up(&lookups, (0..300).map(|i| format!("n{i}.dead.example"))));
            RESOLVER.wait_for(MAX_CLIENT_LOOKUPS).await;
            let late = lookups.clone();
            let late = tokio::spawn(async move { finds(&late, "ok.example.org").await });
            tokio::task::yield_now().await;
            assert!(!late.is_finished());
            assert_eq!(RESOLVER.release(), MAX_CLIENT_LOOKUPS);
            late.await.unwrap();
            for tasks in dead {
                assert_eq!(timeout(BOUND, tasks.join_all()).await.unwrap(), [true; 300]);
            }
            finds(&lookups, "ok.example.com").await;
            assert!(lookups.state().names.is_empty() && lookups.state().domains.len() <= 1);
        })
        .unwrap();
    }

    #[test]
    fn abandoned_names_leave_the_queue() {
        static RESOLVER: Resolver = Resolver::new();
        block_on(async {
            let lookups = Lookups::with(|host| RESOLVER.resolve(host));
            let waiting = look_up(&lookups, (0..1000).map(|i| format!("n{i}.dead.test")));
            RESOLVER.wait_for(MAX_DOMAIN_LOOKUPS).await;
            drop(waiting);
            let gone = async {
                while lookups.state().names.len() > MAX_DOMAIN_LOOKUPS {
                    tokio::task::yield_now().await;
                }
            };
            timeout(BOUND, gone).await.unwrap();
            RESOLVER.release();
            finds(&lookups, "n999.dead.test").await;
        })
        .unwrap();
    }

    #[test]
    fn hanging_lookups_delay_no_addresses_and_stay_bounded() {
        block_on(async {
            let lookups = Lookups::new();
            let hanging =
                lookups.0.permits.clone().acquire_many_owned(MAX_CLIENT_LOOKUPS as u32).await.unwrap();
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
