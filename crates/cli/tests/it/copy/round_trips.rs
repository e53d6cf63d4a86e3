//! Small files do not cost a round trip each.

use super::world::World;
use socket2::{Domain, Socket, Type};
use std::collections::HashMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

const FILES: usize = 500;
/// One way. Long beside what the programs compute, which counts as well.
const DELAY: Duration = Duration::from_millis(150);

/// The longest chain of datagrams of which each was sent after the one before had come: two links are a round trip.
#[derive(Default)]
struct Chain {
    at_client: AtomicU64,
    at_server: AtomicU64,
}

/// A datagram under way: when it arrives, its place in the chain, and its bytes.
type Carried = (Instant, u64, Vec<u8>);

/// Carries datagrams that arrive at `from`, later and in order, by `deliver`.
fn line(
    chain: Arc<Chain>,
    at: fn(&Chain) -> &AtomicU64,
    deliver: impl Fn(&[u8]) + Send + 'static,
) -> Sender<Carried> {
    let (send, receive) = channel::<Carried>();
    spawn(move || {
        for (due, place, bytes) in receive {
            sleep(due.saturating_duration_since(Instant::now()));
            at(&chain).fetch_max(place, Ordering::SeqCst);
            deliver(&bytes);
        }
    });
    send
}

fn bind() -> Arc<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    // As much as the system gives.
    let _ = socket.set_recv_buffer_size(8 << 20);
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    Arc::new(socket.into())
}

/// A relay that delays, to the address that `offer` names when the first datagram comes. Its threads end with the process.
fn relay(offer: PathBuf) -> (SocketAddr, Arc<Chain>) {
    let (front, chain) = (bind(), Arc::new(Chain::default()));
    let (address, of_relay) = (front.local_addr().unwrap(), chain.clone());
    spawn(move || {
        let lines: Mutex<HashMap<SocketAddr, Sender<Carried>>> = Mutex::default();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let (len, client) = front.recv_from(&mut buffer).unwrap();
            let place = chain.at_client.load(Ordering::SeqCst) + 1;
            let mut lines = lines.lock().unwrap();
            let line = lines.entry(client).or_insert_with(|| connect(&chain, &front, client, server(&offer)));
            line.send((Instant::now() + DELAY, place, buffer[..len].to_vec())).unwrap();
        }
    });
    (address, of_relay)
}

/// The way of one of the client's addresses to the server and back.
fn connect(
    chain: &Arc<Chain>,
    front: &Arc<UdpSocket>,
    client: SocketAddr,
    server: SocketAddr,
) -> Sender<Carried> {
    let back = bind();
    back.connect(server).unwrap();
    let (front, to_server) = (front.clone(), back.clone());
    // Either end may be gone.
    let to_client =
        line(chain.clone(), |chain| &chain.at_client, move |bytes| drop(front.send_to(bytes, client)));
    let answers = chain.clone();
    spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(len) = back.recv(&mut buffer) {
            let place = answers.at_server.load(Ordering::SeqCst) + 1;
            to_client.send((Instant::now() + DELAY, place, buffer[..len].to_vec())).unwrap();
        }
    });
    line(chain.clone(), |chain| &chain.at_server, move |bytes| drop(to_server.send(bytes)))
}

/// The first address of the offer.
fn server(offer: &Path) -> SocketAddr {
    let line = fs::read_to_string(offer).unwrap();
    line.split('"').find_map(|word| word.parse().ok()).expect("an address")
}

/// Round trips of a copy of a folder with [`FILES`] files of 1 kB.
fn round_trips(to_there: bool) -> u64 {
    let world = World::new();
    let (address, chain) = relay(world.path("offer"));
    let script = format!(
        "shift; sh -c \"$*\" | {{ read -r line; echo \"$line\" >offer; \
         echo \"$line\" | sed 's/\"addresses\":\\[[^]]*\\]/\"addresses\":[\"{address}\"]/'; cat; }}"
    );
    fs::write(world.path("ssh"), format!("#!/bin/sh\n{script}\n")).unwrap();
    let from = if to_there { "tree" } else { "far/tree" };
    fs::create_dir(world.path(from)).unwrap();
    for i in 0..FILES {
        world.write(&format!("{from}/{i}"), 1_000);
    }
    let far = world.far(if to_there { "new" } else { "tree" });
    let (code, document) = world.cp(&if to_there { ["-r", "tree", &far] } else { ["-r", &far, "new"] });
    assert_eq!((code, &document["files"]), (0, &FILES.into()), "{document}");
    chain.at_client.load(Ordering::SeqCst).div_ceil(2)
}

#[test]
fn many_small_files_share_round_trips() {
    // With eight files at a time these were 125 at least. The window begins with ten packets and doubles; the rest is margin for slow machines.
    for to_there in [true, false] {
        let trips = round_trips(to_there);
        println!("{trips} round trips");
        assert!(trips >= 4, "{trips}: the relay counts");
        assert!(trips <= 40, "{trips} round trips");
    }
}
