//! Carriers that fall silent, come back or end while data are under way.

use crate::net::{CLIENT, SERVER, Transfer, World};
use vmcc_tcp::{CarrierError, Config, Event, SessionError};
use vmcc_units::time::Span;

#[test]
fn silent_cut_of_either_carrier_stalls_for_less_than_a_second() {
    // 100 cuts at different moments, of either carrier.
    let mut stalls = Vec::new();
    for i in 0..100 {
        let delays = [(10, 5), (10, 50)];
        let mut world = World::connected(Config::default(), &delays);
        let mut transfer = Transfer::new(&mut world, CLIENT, 4_000_000);
        transfer.run_for(&mut world, Span::from_ms(300 + i * 7));
        world.set_cut((i % 2) as usize, true);
        assert!(transfer.run(&mut world), "cut {i}: {} bytes", transfer.read);
        stalls.push(transfer.longest_stall());
    }
    stalls.sort();
    let (p95, worst) = (stalls[94], stalls[99]);
    println!("stall: p95 {p95:?}, worst {worst:?}");
    assert!(p95 <= Span::from_secs(1) && worst <= Span::from_secs(2), "p95 {p95:?}, worst {worst:?}");
    assert!(stalls[0] > Span::from_ms(20), "the control: a cut is felt");
}

#[test]
fn reset_carrier_loses_no_byte() {
    for victim in [0, 1] {
        let mut world = World::connected(Config::default(), &[(10, 5), (10, 50)]);
        let mut transfer = Transfer::new(&mut world, SERVER, 4_000_000);
        transfer.run_for(&mut world, Span::from_ms(500));
        world.kill(victim);
        assert!(transfer.run(&mut world), "{} bytes", transfer.read);
        assert!(world.end(SERVER).stats().returned_bytes > 0, "something was under way");
    }
}

#[test]
fn healed_carrier_is_used_again() {
    let config = Config { abort_timeout: Span::from_secs(30), ..Config::default() };
    let mut world = World::connected(config, &[(10, 5), (10, 5)]);
    let mut transfer = Transfer::new(&mut world, CLIENT, 20_000_000);
    transfer.run_for(&mut world, Span::from_secs(1));
    world.set_cut(1, true);
    let suspected = |_: &Transfer, world: &World| {
        world.saw(CLIENT, |event| matches!(event, Event::CarrierSuspected { carrier: 1 })).is_some()
    };
    assert!(transfer.run_until(&mut world, suspected));
    transfer.run_for(&mut world, Span::from_secs(2));
    world.set_cut(1, false);
    let revived = |_: &Transfer, world: &World| {
        world.saw(CLIENT, |event| matches!(event, Event::CarrierRevived { carrier: 1 })).is_some()
    };
    assert!(transfer.run_until(&mut world, revived), "it answers again");
    let before = world.end(CLIENT).carriers().find(|own| own.carrier == 1).unwrap().bytes_out;
    assert!(transfer.run(&mut world));
    let after = world.end(CLIENT).carriers().find(|own| own.carrier == 1).unwrap().bytes_out;
    assert!(after > before + 2_000_000, "{before} {after}");
}

#[test]
fn silent_carrier_is_closed() {
    let config = Config { abort_timeout: Span::from_secs(3), ..Config::default() };
    let mut world = World::connected(config, &[(10, 5), (10, 5)]);
    let mut transfer = Transfer::new(&mut world, CLIENT, 20_000_000);
    world.set_cut(0, true);
    assert!(transfer.run(&mut world));
    let closed = |reason: &CarrierError| {
        let reason = reason.clone();
        move |event: &Event| matches!(event, Event::CarrierClosed { carrier: 0, reason: own } if *own == reason)
    };
    assert!(world.saw(CLIENT, closed(&CarrierError::Silent)).is_some());
    assert!(world.saw(SERVER, closed(&CarrierError::Abandoned)).is_some(), "the peer hears of it");
}

#[test]
fn last_carrier_is_never_suspect() {
    let mut world = World::connected(Config::default(), &[(10, 5)]);
    let mut transfer = Transfer::new(&mut world, CLIENT, 2_000_000);
    transfer.run_for(&mut world, Span::from_ms(500));
    world.set_cut(0, true);
    transfer.run_for(&mut world, Span::from_secs(20));
    assert_eq!(world.end(CLIENT).stats().suspicions, 0);
    world.set_cut(0, false);
    assert!(transfer.run(&mut world), "TCP goes on by itself");
    assert_eq!(world.end(CLIENT).stats().returned_bytes, 0, "and nothing was sent twice");
}

#[test]
fn vanished_peer_is_detected() {
    let mut world = World::connected(Config::default(), &[(10, 5), (10, 5)]);
    world.set_cut(0, true);
    world.set_cut(1, true);
    // Probes are not acknowledged: first the carriers end, then the session.
    world.run_for(Config::default().session_timeout.times(2) + Span::from_secs(10));
    for end in [CLIENT, SERVER] {
        assert!(world.saw(end, |event| *event == Event::Closed(SessionError::TimedOut)).is_some());
    }
}

#[test]
fn close_acknowledges_received_records() {
    let mut world = World::connected(Config::default(), &[(10, 5)]);
    let mut transfer = Transfer::new(&mut world, CLIENT, 1000);
    assert!(transfer.run(&mut world));
    // At once, while the acknowledgment still waits for company.
    world.end(SERVER).close(0, "");
    world.run_for(Span::from_ms(100));
    let stream = transfer.stream;
    let finished =
        world.events[CLIENT].iter().position(|(_, event)| *event == Event::StreamFinished { stream });
    let closed = world.events[CLIENT].iter().position(|(_, event)| matches!(event, Event::Closed(_)));
    assert!(finished.is_some() && finished < closed, "{:?}", world.events[CLIENT]);
}

#[test]
fn session_without_carriers_survives_until_one_joins() {
    let mut world = World::connected(Config::default(), &[(10, 5), (10, 5)]);
    let mut transfer = Transfer::new(&mut world, CLIENT, 4_000_000);
    transfer.run_for(&mut world, Span::from_ms(500));
    world.kill(0);
    world.kill(1);
    transfer.run_for(&mut world, Span::from_secs(10));
    world.dial(10, 5).unwrap();
    assert!(transfer.run(&mut world), "{} bytes", transfer.read);
}

#[test]
fn session_without_carriers_times_out() {
    let mut world = World::connected(Config::default(), &[(10, 5)]);
    world.kill(0);
    world.run_for(Config::default().session_timeout + Span::from_secs(1));
    for end in [CLIENT, SERVER] {
        assert!(world.saw(end, |event| *event == Event::Closed(SessionError::TimedOut)).is_some());
        assert!(world.end(end).is_closed());
    }
}

#[test]
fn acknowledgments_lost_with_a_carrier_are_resent() {
    // The receiver's last acknowledgments die with the fast carrier: the sender must still learn that all has arrived.
    for ms in 0..60 {
        let mut world = World::connected(Config::default(), &[(10, 5), (10, 30)]);
        let mut transfer = Transfer::new(&mut world, CLIENT, 300_000);
        assert!(transfer.run(&mut world));
        world.run_for(Span::from_us(ms * 500));
        world.kill(0);
        let stream = transfer.stream;
        let finished =
            |world: &World| world.saw(CLIENT, |e| *e == Event::StreamFinished { stream }).is_some();
        assert!(world.run_until(finished), "killed after {ms} half milliseconds");
    }
}

#[test]
fn tcp_timeouts_make_a_carrier_suspect_at_once() {
    let mut world = World::connected(Config::default(), &[(10, 5), (10, 5)]);
    let mut transfer = Transfer::new(&mut world, CLIENT, 2_000_000);
    transfer.run_for(&mut world, Span::from_ms(500));
    let (now, info) = (world.now, vmcc_tcp::CarrierInfo { timeouts: 1, ..Default::default() });
    world.end(CLIENT).set_info(now, 1, info);
    assert_eq!(world.end(CLIENT).stats().suspicions, 1);
    assert!(transfer.run(&mut world));
}

#[test]
fn carrier_with_tcp_retransmissions_is_not_silent() {
    for (heard, suspected) in [(true, 0), (false, 1)] {
        let mut world = World::connected(Config::default(), &[(10, 5), (10, 5)]);
        let mut transfer = Transfer::new(&mut world, CLIENT, 4_000_000);
        transfer.run_for(&mut world, Span::from_ms(500));
        // Nothing is delivered for a while, but acknowledgments arrive, as with a hole at the front.
        world.set_cut(1, true);
        world.links[1].pipes[CLIENT].hears_acks = heard;
        transfer.run_for(&mut world, Span::from_ms(500));
        assert_eq!(world.end(CLIENT).stats().suspicions, suspected);
        world.links[1].pipes[CLIENT].hears_acks = true;
        transfer.run_for(&mut world, Span::from_secs(3));
        assert_eq!(world.end(CLIENT).stats().suspicions, 1, "but not without end");
    }
}

#[test]
fn closed_session_notifies_the_peer() {
    let mut world = World::connected(Config::default(), &[(10, 5), (10, 5)]);
    world.end(CLIENT).close(42, "done");
    world.run_for(Span::from_secs(1));
    let reason = SessionError::PeerClosed { code: 42, reason: "done".into() };
    assert!(world.saw(SERVER, |event| *event == Event::Closed(reason.clone())).is_some());
    assert!(world.saw(CLIENT, |event| *event == Event::Closed(SessionError::LocallyClosed)).is_some());
}
