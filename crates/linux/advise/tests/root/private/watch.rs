//! The application, from its running connections.

use super::world::{Listener, PORT, SERVER, World};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use vmcc_advise::facts::Kind;
use vmcc_advise::gather::{Request, Watch, gather, watch};
use vmcc_advise::{CauseCode, advise};
use vmcc_testkit::paths::Over;

fn connect(protocol: Protocol) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(protocol)).unwrap();
    socket.connect(&SocketAddr::new(SERVER.parse().unwrap(), PORT).into()).unwrap();
    TcpStream::from(OwnedFd::from(socket))
}

#[test]
fn root_bulk_transfer_is_recognized_by_its_counters() {
    let world = World::new();
    let _listener = Listener::new(&world, Over::Mptcp);
    let done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        scope.spawn(|| {
            world.client.within(|| {
                let mut stream = connect(Protocol::TCP);
                while !done.load(Ordering::Relaxed) {
                    stream.write_all(&[7; 1 << 16]).unwrap();
                }
            });
        });
        let wanted = Watch { peer: Some(SERVER.to_owned()), duration: Duration::from_secs(2) };
        let seen = world.client.within(|| watch(&wanted, &AtomicBool::new(false)));
        done.store(true, Ordering::Relaxed);
        seen.unwrap().expect("it carried something")
    });
    assert_eq!((seen.kind, seen.concurrency, seen.mixed), (Some(Kind::Bulk), Some(1), false), "{seen:?}");
    assert!(seen.size_bytes > Some(1_000_000), "{seen:?}");
}

#[test]
fn root_idle_host_has_no_pattern() {
    let world = World::new();
    let wanted = Watch { peer: None, duration: Duration::from_secs(1) };
    assert_eq!(world.client.within(|| watch(&wanted, &AtomicBool::new(false))).unwrap(), None);
}

#[test]
fn root_program_that_asks_for_tcp_is_named() {
    let world = World::new();
    let _listener = Listener::new(&world, Over::Mptcp);
    let request = Request { peer: Some(SERVER.to_owned()), ..Request::default() };
    let causes = || {
        let facts = world.client.within(|| gather(&request)).unwrap();
        let advice = advise(&facts);
        (advice.works_now, advice.causes.iter().map(|cause| cause.code).collect::<Vec<_>>())
    };
    assert_eq!(causes(), (false, vec![]), "nothing runs");
    let tcp = world.client.within(|| connect(Protocol::TCP));
    assert_eq!(causes(), (false, vec![CauseCode::ProgramUsesTcp]));
    // A program that asks for MPTCP shows that both paths work.
    let mut mptcp = world.client.within(|| connect(Protocol::MPTCP));
    mptcp.write_all(b"data that are acknowledged").unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while causes() != (true, vec![]) {
        assert!(std::time::Instant::now() < deadline, "{:?}", causes());
    }
    drop(tcp);
}

#[test]
fn root_connections_that_fell_back_are_named() {
    let world = World::new();
    let _listener = Listener::new(&world, Over::Tcp);
    let request = Request { peer: Some(SERVER.to_owned()), ..Request::default() };
    let mut fallen = world.client.within(|| connect(Protocol::MPTCP));
    fallen.write_all(b"data that are acknowledged").unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let facts = world.client.within(|| gather(&request)).unwrap();
        let codes: Vec<CauseCode> = advise(&facts).causes.iter().map(|cause| cause.code).collect();
        if codes == [CauseCode::PeerWithoutMptcp] {
            assert_eq!(facts.peer.unwrap().connections.fell_back, 1);
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{codes:?}");
    }
}
