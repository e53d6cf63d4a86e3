//! UDP through the proxy: an association is a stream that stays open and a number, which every datagram begins with. What follows is
//! SOCKS5's own: an address and the payload.

use super::link::Link;
use super::lookup::{Lookups, Names};
use super::socks::{self, put_address, take_address};
use super::{MAX_MESSAGE, Open, Reply};
use crate::session::{Connection, Stream};
use crate::wire;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;

/// A UDP payload and SOCKS5's header.
const MAX_DATAGRAM: usize = 65_535;
/// Datagrams that wait for one association; more are dropped, as a socket does it.
const QUEUE_LEN: usize = 256;
/// Associations of a connection at a time; a client has at most half as many, and those that have ended until both ends know.
const MAX_ASSOCIATIONS: usize = 512;

/// Addresses that have answered an association, as far as they are remembered.
const MAX_ANSWERED: usize = 256;

type Queues = Arc<Mutex<HashMap<u32, mpsc::Sender<Vec<u8>>>>>;

/// Takes datagrams off a connection and gives each to its association.
async fn demultiplex(connection: Connection, queues: Queues) {
    while let Ok(datagram) = connection.read_datagram().await {
        let Some((number, rest)) = datagram.split_first_chunk::<4>() else { continue };
        let queues = queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(&u32::from_be_bytes(*number)) {
            let _ = queue.try_send(rest.to_vec());
        }
    }
}

fn register(queues: &Queues, number: u32) -> Option<mpsc::Receiver<Vec<u8>>> {
    let (send, receive) = mpsc::channel(QUEUE_LEN);
    let mut queues = queues.lock().unwrap_or_else(PoisonError::into_inner);
    if queues.len() >= MAX_ASSOCIATIONS || queues.contains_key(&number) {
        return None;
    }
    queues.insert(number, send);
    Some(receive)
}

/// An association that gets datagrams, until it is dropped.
struct Registered {
    queues: Queues,
    number: u32,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// Returns when the other end of something that says nothing has gone.
async fn ended(from: &mut (impl AsyncRead + Unpin)) {
    let mut byte = [0; 64];
    while from.read(&mut byte).await.is_ok_and(|len| len > 0) {}
}

/// The client side's.
#[derive(Clone)]
pub(super) struct Associations {
    link: Arc<Link>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    next: u32,
    /// Those of the connection that is sorted for now.
    current: Option<(Connection, Queues)>,
}

impl Associations {
    pub(super) fn new(link: Arc<Link>) -> Associations {
        Associations { link, state: Arc::default() }
    }

    fn queues(&self, connection: &Connection) -> (u32, Queues) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.next = state.next.wrapping_add(1);
        let alive = state.current.as_ref().filter(|(sorted, _)| sorted.end().is_none());
        let queues = alive.map(|(_, queues)| queues.clone());
        let queues = queues.unwrap_or_else(|| {
            let queues = Queues::default();
            tokio::spawn(demultiplex(connection.clone(), queues.clone()));
            state.current = Some((connection.clone(), queues.clone()));
            queues
        });
        (state.next, queues)
    }

    /// Serves an association for as long as the program keeps `tcp` open. Its datagrams come from the port that it has named; where it
    /// has named none, from the first one that sends.
    /// `carried` hears of every datagram.
    pub(super) async fn serve(
        &self,
        mut tcp: TcpStream,
        from: Option<NonZeroU16>,
        carried: &(impl Fn() + Sync),
    ) -> io::Result<()> {
        let Ok(connection) = self.link.connection().await else {
            return socks::refuse(&mut tcp, socks::NETWORK_UNREACHABLE).await;
        };
        if !connection.has_datagrams() {
            return socks::refuse(&mut tcp, socks::NO_SUCH_COMMAND).await;
        }
        let (number, queues) = self.queues(&connection);
        let Some(incoming) = register(&queues, number) else {
            return socks::refuse(&mut tcp, socks::FAILED).await;
        };
        let _registered = Registered { queues, number };
        self.relay(&connection, number, incoming, (&mut tcp, from), carried).await
    }

    async fn relay(
        &self,
        connection: &Connection,
        number: u32,
        mut incoming: mpsc::Receiver<Vec<u8>>,
        (tcp, from): (&mut TcpStream, Option<NonZeroU16>),
        carried: &(impl Fn() + Sync),
    ) -> io::Result<()> {
        let mut stream = connection.open_stream().await?;
        wire::write(&mut stream, &Open::Associate { number }).await?;
        let Reply { code } = wire::read_at_most(&mut stream, MAX_MESSAGE).await?;
        if code != socks::SUCCEEDED {
            return socks::refuse(tcp, code).await;
        }
        let socket = UdpSocket::bind(SocketAddr::new(tcp.local_addr()?.ip(), 0)).await?;
        socks::grant(tcp, Some(socket.local_addr()?)).await?;
        // Programs of other users could send here, too (RFC 1928 section 7).
        let ip = tcp.peer_addr()?.ip();
        let named = from.map(|port| SocketAddr::new(ip, port.get()));
        let (program, mut buffer) = (Mutex::new(named), vec![0; MAX_DATAGRAM]);
        let out = async {
            loop {
                // An error is one that came back for a datagram before.
                let Ok((len, from)) = socket.recv_from(&mut buffer).await else { continue };
                let known = *program.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(from);
                // Two zero bytes, and no fragments.
                if let Some((&[0, 0, 0], rest)) =
                    buffer[..len].split_first_chunk::<3>().filter(|_| known == from)
                {
                    carried();
                    connection.send_datagram(&[&number.to_be_bytes()[..], rest].concat());
                }
            }
        };
        let back = async {
            while let Some(datagram) = incoming.recv().await {
                carried();
                let to = *program.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(to) = to {
                    // What the program's socket does not take is lost, as UDP is.
                    let _ = socket.send_to(&[&[0, 0, 0][..], &datagram].concat(), to).await;
                }
            }
        };
        first_of(first_of(ended(tcp), ended(&mut stream)), first_of(out, back)).await;
        Ok(())
    }
}

/// Returns when either has.
async fn first_of(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    crate::run::run_until(a, b).await;
}

/// The server side's, one per connection.
#[derive(Clone)]
pub(super) struct Flows {
    connection: Connection,
    queues: Queues,
    lookups: Lookups,
}

impl Flows {
    pub(super) fn new(connection: &Connection, lookups: Lookups) -> Flows {
        let queues = Queues::default();
        tokio::spawn(demultiplex(connection.clone(), queues.clone()));
        Flows { connection: connection.clone(), queues, lookups }
    }

    /// Serves an association for as long as its stream is open.
    pub(super) async fn serve(&self, number: u32, mut stream: Stream) -> io::Result<()> {
        let Some(incoming) = register(&self.queues, number) else {
            return wire::write(&mut stream, &Reply { code: socks::FAILED }).await;
        };
        let _registered = Registered { queues: self.queues.clone(), number };
        self.relay(number, incoming, &mut stream).await
    }

    async fn relay(
        &self,
        number: u32,
        mut incoming: mpsc::Receiver<Vec<u8>>,
        stream: &mut Stream,
    ) -> io::Result<()> {
        let v4 = UdpSocket::bind("0.0.0.0:0").await?;
        let v6 = UdpSocket::bind("[::]:0").await.ok();
        wire::write(stream, &Reply { code: socks::SUCCEEDED }).await?;
        let outgoing = Outgoing { v4: &v4, v6: v6.as_ref(), answered: Mutex::default() };
        let out = async {
            let mut names = Names::new(self.lookups.clone());
            loop {
                tokio::select! {
                    datagram = incoming.recv() => {
                        let Some(datagram) = datagram else { return };
                        let Some((host, port, payload)) = take_address(&datagram) else { continue };
                        if let Ok(ip) = host.parse() {
                            outgoing.send(&[SocketAddr::new(ip, port)], payload).await;
                        } else if let Some(addresses) = names.find((host, port), payload) {
                            outgoing.send(addresses, payload).await;
                        }
                    }
                    Some((addresses, waiting)) = names.next() => {
                        for payload in waiting {
                            outgoing.send(&addresses, &payload).await;
                        }
                    }
                }
            }
        };
        let none = std::future::pending();
        let back_v6 = async {
            match &v6 {
                Some(socket) => self.back(number, socket, &outgoing).await,
                None => none.await,
            }
        };
        first_of(ended(stream), first_of(out, first_of(self.back(number, &v4, &outgoing), back_v6))).await;
        Ok(())
    }

    async fn back(&self, number: u32, socket: &UdpSocket, outgoing: &Outgoing<'_>) {
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            // An error is one that came back for a datagram before.
            let Ok((len, from)) = socket.recv_from(&mut buffer).await else { continue };
            outgoing.on_answer(from);
            let mut datagram = number.to_be_bytes().to_vec();
            put_address(&mut datagram, from);
            datagram.extend_from_slice(&buffer[..len]);
            self.connection.send_datagram(&datagram);
        }
    }
}

/// Sockets of an association, and the addresses that have answered.
struct Outgoing<'a> {
    v4: &'a UdpSocket,
    v6: Option<&'a UdpSocket>,
    answered: Mutex<HashSet<SocketAddr>>,
}

impl Outgoing<'_> {
    /// Sends to the address of a host that has answered before; until one has, to one of each family, as either may lead nowhere.
    async fn send(&self, addresses: &[SocketAddr], payload: &[u8]) {
        let answered = {
            let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
            addresses.iter().find(|address| answered.contains(address)).copied()
        };
        if let Some(to) = answered {
            self.try_send(to, payload).await;
            return;
        }
        for v4 in [false, true] {
            // The first that the system sends to.
            for &to in addresses.iter().filter(|address| address.is_ipv4() == v4) {
                if self.try_send(to, payload).await {
                    break;
                }
            }
        }
    }

    async fn try_send(&self, to: SocketAddr, payload: &[u8]) -> bool {
        let socket = if to.is_ipv4() { Some(self.v4) } else { self.v6 };
        match socket {
            Some(socket) => socket.send_to(payload, to).await.is_ok(),
            None => false,
        }
    }

    fn on_answer(&self, from: SocketAddr) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if answered.len() >= MAX_ANSWERED {
            answered.clear();
        }
        answered.insert(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::block_on;

    /// The first address of each family is used until one answers, and only that one afterwards.
    #[test]
    fn dead_family_does_not_hide_the_other() {
        block_on(async {
            let (own_v4, own_v6) =
                (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("[::1]:0").await.unwrap());
            let (v4, v6) =
                (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("[::1]:0").await.unwrap());
            let all = [v6.local_addr().unwrap(), v4.local_addr().unwrap()];
            let outgoing = Outgoing { v4: &own_v4, v6: Some(&own_v6), answered: Mutex::default() };
            let mut buffer = [0; 8];
            outgoing.send(&all, b"first").await;
            for socket in [&v4, &v6] {
                assert_eq!(socket.recv(&mut buffer).await.unwrap(), 5);
            }
            outgoing.on_answer(all[1]);
            outgoing.send(&all, b"again").await;
            assert_eq!(v4.recv(&mut buffer).await.unwrap(), 5);
            assert!(v6.try_recv(&mut buffer).is_err(), "the other family has not answered");
        })
        .unwrap();
    }
}
