//! Hosts that are descheduled.

use super::tests::{ms, sized};
use crate::hosts::ResumeConfig;
use crate::tcp::config::TcpConfig;
use crate::tcp::testing::{Lab, Setup, clean, lose};
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn descheduled_receiver_acks_on_resume() {
    let setup = Setup { app: sized(10), off_times: vec![(1, ms(25), ms(125))], ..Setup::default() };
    let mut lab = Lab::new(setup, clean());
    lab.run_ms(3000);
    let flow = lab.flow();
    assert_eq!(flow.received, ms(125));
    assert_eq!(flow.acknowledged, ms(135));
    assert_eq!(flow.retransmits(), 1, "one tail loss probe, sent into the pause");
}

/// A sender that is off from 35 to 535 ms, more than a retransmission timeout.
fn descheduled_sender(tlp: bool, packets_first: bool) -> Lab {
    let config = TcpConfig { tlp, ..TcpConfig::default() };
    let resume = ResumeConfig { packets_first, ..ResumeConfig::default() };
    let off_times = vec![(0, ms(35), ms(535))];
    let mut lab = Lab::new(Setup { app: sized(100), config, off_times, resume, ..Setup::default() }, clean());
    lab.run_ms(3000);
    assert_eq!(lab.data(0).iter().filter(|d| d.0 > ms(35) && d.0 < ms(535)).count(), 0);
    assert_eq!(lab.flow().delivered_bytes, 100 * 1448);
    lab
}

#[test]
fn resumed_sender_has_a_tail_loss_probe_due_not_a_timeout() {
    for packets_first in [false, true] {
        let flow = descheduled_sender(true, packets_first).flow();
        let probes: u32 = flow.subflows.iter().map(|s| s.sender.probes).sum();
        assert_eq!((flow.timeouts(), probes), (0, u32::from(!packets_first)));
    }
}

/// Without probes the timeout comes before the ACKs that had been waiting; their timestamps show that it was in vain.
#[test]
fn resumed_sender_without_probes_times_out_spuriously() {
    let lab = descheduled_sender(false, false);
    let flow = lab.flow();
    assert_eq!((flow.timeouts(), flow.subflows[0].sender.spurious_timeouts), (1, 1));
    let at_wake_up = lab.data(0).iter().filter(|d| d.0 == ms(535)).count();
    assert!(at_wake_up > 10, "the window is what it was: {at_wake_up}");
    let lab = descheduled_sender(false, true);
    assert_eq!(
        (lab.flow().timeouts(), lab.flow().retransmits()),
        (0, 0),
        "ACKs were read before the timer was looked at"
    );
}

#[test]
fn packets_dropped_at_a_full_ring_are_retransmitted() {
    let resume = ResumeConfig { ring: 3, ..ResumeConfig::default() };
    let setup = Setup { app: sized(10), off_times: vec![(1, ms(25), ms(125))], resume, ..Setup::default() };
    let mut lab = Lab::new(setup, clean());
    lab.run_ms(3000);
    assert_eq!(lab.flow().delivered_bytes, 10 * 1448);
    assert!(lab.flow().retransmits() >= 7, "{}", lab.flow().retransmits());
    assert!(lab.flow().received > ms(125));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Any host descheduled any number of times, with losses or without: nothing leaves a host that is off, and everything arrives.
    #[test]
    fn descheduled_host_sends_nothing_and_loses_nothing(
        naps in vec((0..2u32, 1..400u64, 1..600u64), 1..8),
        (tlp, packets_first, lossy, ring) in (any::<bool>(), any::<bool>(), any::<bool>(), 1..40usize),
    ) {
        let config = TcpConfig { tlp, ..TcpConfig::default() };
        let mut at = 25;
        let mut off_times = Vec::new();
        for (host, on, off) in naps {
            off_times.push((host, ms(at + on), ms(at + on + off)));
            at += on + off;
        }
        let slept = off_times.clone();
        let resume = ResumeConfig { packets_first, ring };
        let script = if lossy { lose(&[3, 17, 18, 19, 60]) } else { clean() };
        let mut lab = Lab::new(Setup { app: sized(200), config, off_times, resume, ..Setup::default() }, script);
        lab.run_ms(120_000);
        prop_assert_eq!(lab.flow().delivered_bytes, 200 * 1448);
        for (_, from, to) in slept.iter().filter(|nap| nap.0 == 0) {
            prop_assert!(lab.data(0).iter().all(|d| d.0 <= *from || d.0 >= *to));
        }
    }
}
