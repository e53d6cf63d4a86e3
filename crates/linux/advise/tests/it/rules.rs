//! Rules on facts that no namespace needs to make.

use crate::facts::{MBIT, bulk, client, responses, with};
use vmcc_advise::facts::{Application, Connections, MptcpState, Probe};
use vmcc_advise::{CauseCode, Facts, Scope, Verdict, advise};

fn two() -> Facts {
    client(&[(200 * MBIT, 1_000), (200 * MBIT, 1_000)])
}

fn causes(facts: &Facts) -> Vec<CauseCode> {
    advise(facts).causes.iter().map(|cause| cause.code).collect()
}

#[test]
fn host_that_is_ready_has_no_cause() {
    assert_eq!(causes(&two()), []);
}

#[test]
fn nothing_is_advised_where_nothing_is_known() {
    let advice = advise(&Facts::default());
    assert_eq!((advice.verdict, advice.gain, advice.algorithm), (Verdict::No, None, None));
    assert_eq!(advice.causes[0].code, CauseCode::NoMptcp);
}

#[test]
fn unknown_application_and_rates_are_asked_for() {
    let advice = advise(&two());
    assert_eq!(advice.verdict, Verdict::Unknown);
    assert!(advice.reasons.iter().any(|reason| reason.text.contains("--application")), "{advice:?}");
    let mut facts = with(two(), bulk(None));
    facts.nics[1].rate_bps = None;
    let advice = advise(&facts);
    let gain = advice.gain.unwrap();
    assert_eq!((advice.verdict, gain.low, gain.expected, gain.high), (Verdict::Unknown, 1.0, None, 2.0));
    assert!(advice.reasons.iter().any(|reason| reason.text.contains("rate of eth1")), "{advice:?}");
}

#[test]
fn slow_first_path_gains_more() {
    let gain = |first, second| {
        advise(&with(client(&[(first, 1_000), (second, 1_000)]), bulk(None))).gain.unwrap().expected.unwrap()
    };
    assert!(gain(20 * MBIT, 40 * MBIT) > 2.5 && gain(40 * MBIT, 20 * MBIT) < 1.6);
    let mut facts = with(client(&[(40 * MBIT, 1_000), (20 * MBIT, 1_000)]), bulk(None));
    facts.first_nic = Some("eth1".to_owned());
    assert!(advise(&facts).gain.unwrap().expected.unwrap() > 2.5, "TCP takes the second");
}

#[test]
fn several_causes_are_named_together() {
    let mut facts = two();
    facts.mptcp.limits.as_mut().unwrap().subflows = 0;
    facts.mptcp.endpoints.as_mut().unwrap().clear();
    facts.peer.as_mut().unwrap().probe = Some(Probe::Tcp { option_dropped: true });
    facts.host.firewall_rules = Some(vec!["tcp option mptcp exists drop".to_owned()]);
    let expected =
        [CauseCode::OptionDropped, CauseCode::Firewall, CauseCode::SubflowLimit, CauseCode::NoEndpoint];
    assert_eq!(causes(&facts), expected);
    for cause in advise(&facts).causes {
        assert!(!cause.text.is_empty() && !cause.remedy.is_empty(), "{cause:?}");
    }
}

#[test]
fn peer_that_announces_nothing_is_named_where_nothing_begins_here() {
    let mut facts = two();
    facts.mptcp.endpoints.as_mut().unwrap().clear();
    facts.mptcp.limits.as_mut().unwrap().accept = 2;
    assert_eq!(causes(&facts), [], "it may announce");
    let probe = |announced| Probe::Mptcp { joined: 0, announced, joins_sent: Some(0), joins_unanswered: 0 };
    facts.peer.as_mut().unwrap().probe = Some(probe(0));
    assert_eq!(causes(&facts), [CauseCode::NothingAnnounced]);
    facts.peer.as_mut().unwrap().probe = Some(probe(1));
    assert_eq!(causes(&facts), []);
}

#[test]
fn backup_endpoint_is_named() {
    let mut facts = two();
    facts.mptcp.endpoints.as_mut().unwrap()[0].backup = true;
    assert_eq!(causes(&facts), [CauseCode::BackupOnly]);
}

#[test]
fn program_with_tcp_is_named_beside_paths_that_work() {
    let mut facts = two();
    let peer = facts.peer.as_mut().unwrap();
    peer.probe = Some(Probe::Mptcp { joined: 1, announced: 0, joins_sent: Some(1), joins_unanswered: 0 });
    peer.connections = Connections { total: 3, mptcp: Some(0), fell_back: 0, multipath: 0, ecn: 0 };
    let advice = advise(&facts);
    assert!(advice.works_now);
    assert_eq!(causes(&facts), [CauseCode::ProgramUsesTcp]);
    facts.peer.as_mut().unwrap().connections.mptcp = None;
    assert_eq!(causes(&facts), [], "only root can tell");
}

#[test]
fn busy_processors_widen_the_range() {
    let mut facts = with(two(), bulk(None));
    facts.host.processors = Some(2);
    let low = |load| {
        let facts = Facts {
            host: vmcc_advise::facts::Host { load: Some(load), ..facts.host.clone() },
            ..facts.clone()
        };
        advise(&facts).gain.unwrap().low
    };
    assert!(low(0.5) > 1.2 && low(2.0) <= 1.0);
}

#[test]
fn scope_depends_on_the_kind_of_application() {
    let scope = |application| advise(&with(two(), application)).scope;
    assert_eq!(scope(bulk(None)), Scope::Everything);
    assert_eq!(scope(Application { mixed: true, ..bulk(None) }), Scope::Selective);
    assert_eq!(scope(responses(1_000, 10)), Scope::Selective);
    let off =
        Facts { mptcp: vmcc_advise::facts::Mptcp { state: MptcpState::Absent, ..two().mptcp }, ..two() };
    assert_eq!(advise(&with(off, bulk(None))).scope, Scope::Nothing);
}

#[test]
fn marks_at_both_ends_suggest_an_algorithm_that_uses_them() {
    let mut facts = with(two(), bulk(None));
    assert_eq!(advise(&facts).algorithm, Some("lia"));
    facts.peer.as_mut().unwrap().connections =
        Connections { total: 2, mptcp: Some(2), fell_back: 0, multipath: 0, ecn: 2 };
    assert_eq!(advise(&facts).algorithm, Some("vmcc"));
}

#[test]
fn unsent_limit_follows_the_rate() {
    let limit = |rate| {
        let advice = advise(&with(client(&[(rate, 100), (rate, 100)]), bulk(None)));
        advice.settings.iter().find(|one| one.name == "net.ipv4.tcp_notsent_lowat").unwrap().value.clone()
    };
    assert_eq!([limit(1_000 * MBIT), limit(25_000 * MBIT)], ["16384", "131072"]);
}

#[test]
fn any_numbers_give_an_advice() {
    let extremes = [0, 1, u64::from(u32::MAX), u64::MAX];
    for rate in extremes {
        for rtt in extremes {
            for size in extremes {
                for demand in extremes {
                    let application = Application {
                        concurrency: Some(u32::MAX),
                        demand_bps: Some(demand),
                        receive_window_limited: Some(f64::NAN),
                        ..responses(size, 1)
                    };
                    for application in [application.clone(), Application { kind: None, ..application }] {
                        let mut facts = with(client(&[(rate, rtt), (rate, rtt)]), application);
                        facts.host.load = Some(f64::NAN);
                        facts.host.tcp_rmem_bytes = Some([0, 0, 0]);
                        let gain = advise(&facts).gain;
                        assert!(
                            gain.is_none_or(|gain| gain.low.is_finite() && gain.high.is_finite()),
                            "{facts:?} {gain:?}"
                        );
                    }
                }
            }
        }
    }
}
