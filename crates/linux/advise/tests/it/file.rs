//! The agent's file is one for the agent.

use crate::facts::{MBIT, bulk, client, responses, with};
use vmcc_advise::facts::{Application, MptcpState};
use vmcc_advise::{Facts, Scope, advise};
use vmcc_agent::config::{Config, EndpointFlag};

fn parsed(facts: &Facts) -> (vmcc_advise::Advice, Config) {
    let advice = advise(facts);
    let config =
        Config::parse("advice", &advice.file).unwrap_or_else(|fault| panic!("{fault}\n{}", advice.file));
    (advice, config)
}

#[test]
fn file_of_a_bulk_client_is_read_by_the_agent() {
    let mut facts = with(client(&[(200 * MBIT, 1_000), (200 * MBIT, 40_000)]), bulk(None));
    facts.mptcp.state = MptcpState::Off;
    facts.host.tcp_rmem_bytes = Some([4096, 131_072, 6_291_456]);
    facts.host.tcp_wmem_bytes = Some([4096, 16_384, 4_194_304]);
    let (advice, config) = parsed(&facts);
    assert_eq!(config.host.congestion_control.as_deref(), Some("mp_lia"));
    assert_eq!(config.host.notsent_lowat.unwrap().get(), 16_384);
    assert_eq!((config.host.mptcp.subflows, config.host.mptcp.accept), (Some(2), Some(2)));
    let endpoints = &config.host.mptcp.endpoints;
    assert_eq!((endpoints.len(), endpoints[0].nic.as_str()), (1, "eth1"));
    assert_eq!(endpoints[0].flags, [EndpointFlag::Subflow]);
    let sysctls: Vec<_> =
        config.host.sysctls().into_iter().map(|(name, value)| (name.as_str().to_owned(), value)).collect();
    let has = |name: &str, value: &str| sysctls.contains(&(name.to_owned(), value.to_owned()));
    // RFC 6182: 2 x 400 Mbit/s x 40 ms are 4 MB, twice that with the kernel's overhead: 6 MB are too few.
    assert!(has("net/ipv4/tcp_rmem", "4096 131072 8000000"), "{sysctls:?} {advice:?}");
    assert!(has("net/ipv4/tcp_wmem", "4096 16384 8000000") && has("net/mptcp/enabled", "1"), "{sysctls:?}");
}

#[test]
fn file_of_any_verdict_is_read_by_the_agent() {
    let two = || client(&[(200 * MBIT, 1_000), (200 * MBIT, 1_000)]);
    let server = || Facts { peer: None, paths: Vec::new(), ..two() };
    let mixed = Application { mixed: true, ..bulk(None) };
    for facts in [
        with(two(), responses(1_000, 100)),
        with(two(), Application::default()),
        with(two(), mixed),
        with(client(&[(MBIT, 1)]), bulk(None)),
        with(server(), bulk(None)),
        Facts::default(),
    ] {
        let (advice, config) = parsed(&facts);
        let selective = advice.scope != Scope::Everything;
        assert_eq!(config.host.congestion_control.is_none(), selective, "{}", advice.file);
    }
    let (_, config) = parsed(&with(server(), bulk(None)));
    assert_eq!(config.host.mptcp.endpoints[0].flags, [EndpointFlag::Signal]);
}

#[test]
fn names_of_users_and_interfaces_stay_texts() {
    let mut facts = with(client(&[(MBIT, 1_000), (MBIT, 1_000)]), bulk(None));
    facts.nics[1].name = "a\"\\]\u{7}ä".to_owned();
    facts.paths[1].nic.clone_from(&facts.nics[1].name);
    facts.peer.as_mut().unwrap().name = "x\n[guard]\nenabled = true".to_owned();
    let (_, config) = parsed(&facts);
    assert_eq!(config.host.mptcp.endpoints[0].nic, facts.nics[1].name);
    assert!(config.guard.is_none());
}
