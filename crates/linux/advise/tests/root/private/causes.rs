//! Each cause of a single path, made and named; without any of them two paths are counted.

use super::world::{Listener, PORT, SECOND, SERVER, World};
use vmcc_advise::facts::{MptcpState, Probe, Route};
use vmcc_advise::gather::{Request, gather};
use vmcc_advise::{CauseCode, Verdict, advise};
use vmcc_testkit::netns::run;
use vmcc_testkit::paths::Over;

#[test]
fn root_two_paths_work_and_nothing_is_blamed() {
    let world = World::new();
    let _listener = Listener::new(&world, Over::Mptcp);
    let (facts, advice) = world.advice();
    assert!(advice.works_now && advice.causes.is_empty(), "{facts:#?} {:?}", advice.causes);
    let probe = facts.peer.as_ref().unwrap().probe.as_ref().unwrap();
    assert!(matches!(probe, Probe::Mptcp { joined: 1, .. }), "{probe:?}");
    assert_eq!(facts.first_nic.as_deref(), Some("p0"));
    let own = facts.paths.iter().filter(|path| matches!(path.route, Route::Own { gateway: Some(_) }));
    assert_eq!(own.count(), 2, "{:?}", facts.paths);
    assert!(facts.paths.iter().all(|path| path.rtt_us.is_some_and(|us| us < 900_000)), "{:?}", facts.paths);
}

#[test]
fn root_limits_of_zero_are_named() {
    let world = World::new();
    world.limits(&world.client, 0);
    let _listener = Listener::new(&world, Over::Mptcp);
    assert_eq!(world.causes(), [CauseCode::SubflowLimit]);
}

#[test]
fn root_missing_endpoint_is_named() {
    let world = World::new();
    run(&format!("ip -n {} mptcp endpoint flush", world.client));
    let _listener = Listener::new(&world, Over::Mptcp);
    let (_, advice) = world.advice();
    assert_eq!(advice.causes.iter().map(|one| one.code).collect::<Vec<_>>(), [CauseCode::NoEndpoint]);
    assert!(advice.causes[0].remedy.contains(&format!("endpoint add {SECOND} dev p1 subflow")), "{advice:?}");
    // The remedy works.
    run(&format!("ip -n {} mptcp endpoint add {SECOND} dev p1 subflow", world.client));
    assert!(world.advice().1.works_now);
}

#[test]
fn root_missing_rule_is_named() {
    let world = World::new();
    run(&format!("ip -n {} rule del from {SECOND} table 101", world.client));
    let _listener = Listener::new(&world, Over::Mptcp);
    let (facts, advice) = world.advice();
    assert_eq!(advice.causes.iter().map(|one| one.code).collect::<Vec<_>>(), [CauseCode::NoRouteFromAddress]);
    let second = facts.paths.iter().find(|path| path.nic == "p1").unwrap();
    assert!(matches!(&second.route, Route::Other { nic, .. } if nic == "p0"), "{second:?}");
    world.client.run(&format!("ip rule add from {SECOND} table 101"));
    assert!(world.advice().1.works_now);
}

#[test]
fn root_second_default_route_serves_bound_endpoints_alone() {
    let world = World::new();
    run(&format!("ip -n {} rule del from {SECOND} table 101", world.client));
    run(&format!("ip -n {} route add default via 10.66.1.2 dev p1 metric 200", world.client));
    let _listener = Listener::new(&world, Over::Mptcp);
    let (facts, advice) = world.advice();
    assert!(advice.works_now, "{facts:#?}");
    run(&format!("ip -n {} mptcp endpoint flush", world.client));
    run(&format!("ip -n {} mptcp endpoint add {SECOND} subflow", world.client));
    let (facts, _) = world.advice();
    let second = facts.paths.iter().find(|path| path.nic == "p1").unwrap();
    assert!(matches!(second.route, Route::Bound { gateway: Some(_) }), "{second:?}");
}

#[test]
fn root_mptcp_that_is_off_is_named() {
    let world = World::new();
    world.client.sysctl("mptcp/enabled", "0");
    let _listener = Listener::new(&world, Over::Mptcp);
    let (facts, advice) = world.advice();
    assert_eq!(facts.mptcp.state, MptcpState::Off);
    assert_eq!(advice.causes.iter().map(|one| one.code).collect::<Vec<_>>(), [CauseCode::MptcpOff]);
    assert!(advice.file.contains("\"net.mptcp.enabled\" = \"1\""), "{}", advice.file);
}

#[test]
fn root_peer_without_mptcp_is_named() {
    let world = World::new();
    let listener = Listener::new(&world, Over::Tcp);
    assert_eq!(world.causes(), [CauseCode::PeerWithoutMptcp], "its program");
    drop(listener);
    world.server.sysctl("mptcp/enabled", "0");
    let _listener = Listener::new(&world, Over::Tcp);
    assert_eq!(world.causes(), [CauseCode::PeerWithoutMptcp], "its kernel");
}

#[test]
fn root_refused_joins_are_named() {
    let world = World::new();
    world.limits(&world.server, 0);
    let _listener = Listener::new(&world, Over::Mptcp);
    assert_eq!(world.causes(), [CauseCode::JoinRefused]);
}

#[test]
fn root_path_that_leads_nowhere_is_named() {
    let world = World::new();
    run(&format!("ip -n {} rule add from {SECOND} blackhole", world.router));
    let _listener = Listener::new(&world, Over::Mptcp);
    assert_eq!(world.causes(), [CauseCode::JoinUnanswered]);
}

#[test]
fn root_userspace_path_manager_is_named() {
    let world = World::new();
    let _listener = Listener::new(&world, Over::Mptcp);
    world.client.sysctl("mptcp/pm_type", "1");
    assert_eq!(world.causes(), [CauseCode::UserspacePathManager]);
}

#[test]
fn root_interfaces_that_are_down_or_missing_are_named() {
    let world = World::new();
    let _listener = Listener::new(&world, Over::Mptcp);
    run(&format!("ip -n {} link set p1 down", world.client));
    assert_eq!(world.causes(), [CauseCode::InterfaceDown]);
    run(&format!("ip -n {} link del p1", world.client));
    let (_, advice) = world.advice();
    assert_eq!(advice.causes.iter().map(|one| one.code).collect::<Vec<_>>(), [CauseCode::OneAddress]);
    assert_eq!(advice.verdict, Verdict::No);
}

#[test]
fn root_peers_that_no_path_leads_to_are_named() {
    let world = World::new();
    assert_eq!(world.causes(), [CauseCode::PeerUnreachable], "nothing listens");
    let of = |peer: &str| {
        let request = Request { peer: Some(peer.to_owned()), port: Some(PORT), ..Request::default() };
        let facts = world.client.within(|| gather(&request)).unwrap();
        advise(&facts).causes.iter().map(|cause| cause.code).collect::<Vec<_>>()
    };
    assert_eq!(of("10.66.0.1"), [CauseCode::PeerIsThisHost]);
    assert_eq!(of("127.0.0.1"), [CauseCode::PeerIsThisHost]);
    run(&format!("ip -n {} route del default via 10.66.0.2", world.client));
    assert_eq!(of(SERVER), [CauseCode::NoRouteToPeer]);
}

#[test]
fn root_tunnels_and_inner_bridges_are_no_paths() {
    let world = World::new();
    for (number, kind) in ["bridge", "vxlan id 3"].iter().enumerate() {
        run(&format!("ip -n {} link add x{number} type {kind}", world.client));
        run(&format!("ip -n {} addr add 10.66.8{number}.1/24 dev x{number}", world.client));
        run(&format!("ip -n {} link set x{number} up", world.client));
    }
    let (facts, _) = world.advice();
    let names: Vec<&str> = facts.nics.iter().map(|nic| nic.name.as_str()).collect();
    assert_eq!(names, ["p0", "p1"]);
}

#[test]
fn root_parts_of_one_interface_share_its_rate() {
    let world = World::new();
    run(&format!("ip -n {} link add link p0 name v0 type macvlan", world.client));
    run(&format!("ip -n {} addr add 10.66.7.1/24 dev v0", world.client));
    run(&format!("ip -n {} link set v0 up", world.client));
    let facts = world.client.within(|| gather(&Request::default())).unwrap();
    let lower = |name: &str| facts.nics.iter().find(|nic| nic.name == name).unwrap().lower.clone();
    assert_eq!((lower("v0").as_deref(), lower("p0"), lower("p1")), (Some("p0"), None, None));
}
