//! Joining: wrong, replayed and strange greetings.

use crate::net::{CLIENT, SERVER, Transfer, World};
use vmcc_tcp::{Binding, CarrierError, Config, Event, Refusal, Secrets, Session, SessionError};
use vmcc_units::time::Span;

fn refused(world: &World, reason: Refusal) -> bool {
    world.saw(CLIENT, |event| matches!(event, Event::CarrierClosed { reason: CarrierError::Refused(own), .. } if *own == reason)).is_some()
}

#[test]
fn second_carrier_joins_with_token_and_mac() {
    let mut world = World::connected(Config::default(), &[(10, 5), (10, 5)]);
    for end in [CLIENT, SERVER] {
        assert_eq!(world.end(end).carriers().filter(|own| own.open).count(), 2);
    }
    assert_eq!(world.end(CLIENT).token(), world.end(SERVER).token());
}

#[test]
fn join_with_the_binding_of_another_connection_is_refused() {
    // A relay that terminates TLS at both sides sees the JOIN, but its connections have other exporters.
    let mut world = World::connected(Config::default(), &[(10, 5)]);
    let link = world.dial(10, 5).unwrap();
    world.links[link].binding[SERVER] = Binding([99; 32]);
    assert!(world.run_until(|world| refused(world, Refusal::NotAuthentic)));
    assert_eq!(world.end(SERVER).carrier_count(), 1);
}

/// The bytes of a JOIN that was recorded.
fn recorded_join(world: &mut World) -> Vec<u8> {
    let now = world.now;
    let session = world.end(CLIENT);
    let id = session.add_carrier(now, Binding([50; 32])).unwrap();
    let mut bytes = Vec::new();
    assert_eq!(session.poll_transmit(now, &mut bytes), Some(id));
    bytes
}

#[test]
fn replayed_join_is_refused_even_with_the_same_binding() {
    let mut world = World::connected(Config::default(), &[(10, 5)]);
    let join = recorded_join(&mut world);
    for attempt in 0..2 {
        let link = world.add_link(10, 5, None, Binding([50; 32]));
        world.inject(link, &join);
        world.run_for(Span::from_ms(100));
        assert_eq!(world.refusals.len(), attempt, "the first is accepted, the second is not");
    }
    assert_eq!(world.refusals, [Refusal::NotAuthentic]);
    assert_eq!(world.end(SERVER).carrier_count(), 2);
}

#[test]
fn altered_joins_are_refused() {
    let mut world = World::connected(Config::default(), &[(10, 5)]);
    let join = recorded_join(&mut world);
    for at in 0..join.len() {
        let mut altered = join.clone();
        altered[at] ^= 1;
        let link = world.add_link(10, 5, None, Binding([50; 32]));
        world.inject(link, &altered);
        world.run_for(Span::from_ms(50));
        assert_eq!(world.end(SERVER).carrier_count(), 1, "byte {at}");
    }
}

#[test]
fn join_of_an_unknown_session_is_refused() {
    let mut world = World::connected(Config::default(), &[(10, 5)]);
    // The server is started again: it knows no session.
    world.ends[SERVER] = None;
    world.kill(0);
    world.dial(10, 5).unwrap();
    assert!(world.run_until(|world| refused(world, Refusal::UnknownSession)));
    assert!(world.saw(CLIENT, |event| *event == Event::Closed(SessionError::Lost)).is_some());
}

#[test]
fn server_without_proof_is_rejected() {
    let mut world = World::connected(Config::default(), &[(10, 5)]);
    let link = world.dial(10, 5).unwrap();
    // Another server answers with a MAC of its own making.
    let mut answer = vec![0x40, 17, 0x23];
    answer.extend([9; 16]);
    let (now, id) = (world.now, world.links[link].ids[CLIENT].unwrap());
    world.end(CLIENT).handle_bytes(now, id, &answer);
    let wrong = |event: &Event| matches!(event, Event::CarrierClosed { reason: CarrierError::WrongPeer, .. });
    assert!(world.run_until(|world| world.saw(CLIENT, wrong).is_some()));
    let mut transfer = Transfer::new(&mut world, CLIENT, 100_000);
    assert!(transfer.run(&mut world), "the session goes on");
}

#[test]
fn garbage_on_a_carrier_ends_that_carrier_only() {
    let long = [b'x'; 20_000];
    for bytes in [&long[..], b"\x40\x01\x3f", b"\x00\x00", b"\x40\x03\x02\x01\x05"] {
        let mut world = World::connected(Config::default(), &[(10, 5), (10, 5)]);
        let now = world.now;
        world.end(CLIENT).handle_bytes(now, 1, bytes);
        let malformed = |event: &Event| {
            matches!(event, Event::CarrierClosed { carrier: 1, reason: CarrierError::Malformed })
        };
        assert!(world.run_until(|world| world.saw(CLIENT, malformed).is_some()), "{bytes:?}");
        let mut transfer = Transfer::new(&mut world, CLIENT, 100_000);
        assert!(transfer.run(&mut world), "{bytes:?}");
    }
}

#[test]
fn reply_of_another_protocol_is_detected() {
    for answer in [
        &b"HTTP/1.1 400 Bad Request\r\n"[..],
        b"SSH-2.0-OpenSSH\r\n",
        b"220 mail.test ESMTP\r\n",
        b"\x15\x03\x03\x00\x02",
    ] {
        let mut world = World::new(Config::default());
        let link = world.dial(10, 5).unwrap();
        let (now, id) = (world.now, world.links[link].ids[CLIENT].unwrap());
        world.end(CLIENT).handle_bytes(now, id, answer);
        let closed = Event::Closed(SessionError::NotConnected(CarrierError::Malformed));
        assert!(world.run_until(|world| world.saw(CLIENT, |event| *event == closed).is_some()), "{answer:?}");
    }
}

#[test]
fn unresponsive_peer_times_out() {
    let mut world = World::new(Config::default());
    let link = world.dial(10, 5).unwrap();
    world.set_cut(link, true);
    world.run_for(Span::from_secs(20));
    let closed = SessionError::NotConnected(CarrierError::GreetingTimeout);
    assert!(world.saw(CLIENT, |event| *event == Event::Closed(closed.clone())).is_some());
}

#[test]
fn acknowledgment_of_unsent_records_is_an_error() {
    let mut world = World::connected(Config::default(), &[(10, 5), (10, 5)]);
    let now = world.now;
    // ACK of one carrier: number 0, 4000 records.
    world.end(CLIENT).handle_bytes(now, 1, &[0x40, 5, 2, 1, 0, 0x4f, 0xa0]);
    let malformed =
        |event: &Event| matches!(event, Event::CarrierClosed { reason: CarrierError::Malformed, .. });
    assert!(world.run_until(|world| world.saw(CLIENT, malformed).is_some()));
}

#[test]
fn addresses_are_announced_and_withdrawn() {
    let mut world = World::connected(Config::default(), &[(10, 5)]);
    let address = "192.0.2.7:443".parse().unwrap();
    world.end(SERVER).announce(address, true);
    world.end(SERVER).announce(address, false);
    world.run_for(Span::from_ms(100));
    let all: Vec<_> = world.events[CLIENT].iter().map(|(_, event)| event.clone()).collect();
    assert!(all.ends_with(&[Event::AddressAdded(address), Event::AddressRemoved(address)]), "{all:?}");
}

#[test]
fn servers_with_equal_secrets_reject_each_others_joins() {
    let mut world = World::connected(Config::default(), &[(10, 5)]);
    let join = recorded_join(&mut world);
    // Same token, but the first carrier had another binding: another key.
    let hello = {
        let mut other = Session::connect(world.now, Config::default(), Secrets([1; 32]));
        let now = world.now;
        other.add_carrier(now, Binding([3; 32])).unwrap();
        let mut bytes = Vec::new();
        other.poll_transmit(now, &mut bytes);
        let mut acceptor = vmcc_tcp::Acceptor::default();
        match acceptor.read(&mut &bytes[..]) {
            Ok(Some(vmcc_tcp::Greeting::Hello(hello))) => hello,
            other => panic!("{other:?}"),
        }
    };
    let now = world.now;
    let mut server = Session::accept(now, Config::default(), Secrets([2; 32]), &hello, Binding([3; 32]));
    assert_eq!(server.token(), world.end(SERVER).token());
    let Ok(Some(vmcc_tcp::Greeting::Join(join))) = vmcc_tcp::Acceptor::default().read(&mut &join[..]) else {
        panic!("a join")
    };
    assert_eq!(server.join(now, &join, Binding([50; 32])), Err(Refusal::NotAuthentic));
}
