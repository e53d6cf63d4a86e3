//! The simulated host's sleep beside that of a real virtual machine, packet by packet: `woken.csv` says where from.

use super::tests::sized;
use crate::packet::Packet;
use crate::tcp::testing::{Lab, Setup, lose};
use crate::time::{Span, Time};

/// A packet at 40 Mbit/s, and what a virtual machine's way to its neighbour takes.
const PATH: (Span, Span) = (Span::from_us(150), Span::from_us(300));

/// Observations of an off time and of the time after it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct OffTime {
    off_us: u64,
    in_flight: u32,
    /// ACKs that came meanwhile.
    acks: u32,
    /// New packets within 10 ms after it.
    sent: u32,
    /// Packets that were sent again within 50 ms.
    again: u32,
    first_us: u64,
}

fn recorded() -> Vec<OffTime> {
    let lines = include_str!("woken.csv").lines().filter(|line| !line.starts_with('#')).skip(1);
    let sleep = |line: &str| {
        let values: Vec<u64> = line.split(',').map(|value| value.parse().expect("a number")).collect();
        let [off_us, in_flight, acks, sent, again, first_us] = values[..] else { panic!("{line}") };
        let [in_flight, acks, sent, again] = [in_flight, acks, sent, again].map(|value| value as u32);
        OffTime { off_us, in_flight, acks, sent, again, first_us }
    };
    lines.map(sleep).collect()
}

/// A transfer that leaves slow start early, and then has one packet more in flight each round trip.
fn transfer(off_times: Vec<(u32, Time, Time)>) -> Lab {
    let setup = Setup { app: sized(20_000), paths: vec![PATH], off_times, ..Setup::default() };
    let mut lab = Lab::new(setup, lose(&[12]));
    lab.run_ms(3_000);
    lab
}

/// Arrival times of ACKs at the sender, and the segments that they acknowledge.
fn acks(lab: &Lab) -> impl Iterator<Item = (Time, u32)> {
    let acks =
        lab.pipe.log.iter().filter(|(_, packet, _)| packet.has(Packet::ACK) && !packet.has(Packet::DATA));
    acks.map(|(at, packet, _)| (*at + PATH.0, packet.ack))
}

/// First time after the loss at which `in_flight` packets are in flight.
fn moment_of(in_flight: u32) -> Time {
    let lab = transfer(Vec::new());
    let settled = Time::ZERO + Span::from_ms(40);
    let data = lab.data(0);
    let mut acks = acks(&lab).peekable();
    let mut acked = 0;
    let found = data.iter().filter(|sent| !sent.2).find(|sent| {
        while let Some((_, ack)) = acks.next_if(|(at, _)| *at <= sent.0) {
            acked = acked.max(ack);
        }
        sent.0 > settled && sent.1 + 1 - acked >= in_flight
    });
    found.expect("a window that grows").0 + Span::from_us(1)
}

/// The simulated host, off for as long with as much in flight.
fn simulated(real: &OffTime) -> OffTime {
    let from = moment_of(real.in_flight);
    let to = from + Span::from_us(real.off_us);
    let lab = transfer(vec![(0, from, to)]);
    let data = lab.data(0);
    let within = |ms| move |sent: &&(Time, u32, bool)| sent.0 >= to && sent.0 < to + Span::from_ms(ms);
    assert!(!data.iter().any(|sent| sent.0 > from && sent.0 < to), "who is off sends nothing");
    assert_eq!(lab.flow().timeouts(), 0, "{real:?}: nothing timed out, as in the real one");
    let first = data.iter().find(|sent| sent.0 >= to).expect("it goes on");
    OffTime {
        acks: acks(&lab).filter(|(at, _)| *at > from && *at < to).count() as u32,
        sent: data.iter().filter(within(10)).filter(|sent| !sent.2).count() as u32,
        again: data.iter().filter(within(50)).filter(|sent| sent.2).count() as u32,
        first_us: first.0.since(to).ps() / 1_000_000,
        ..*real
    }
}

/// The share of pairs for which something holds.
fn share(pairs: &[(OffTime, OffTime)], holds: impl Fn(&OffTime, &OffTime) -> bool) -> f64 {
    pairs.iter().filter(|(real, simulated)| holds(real, simulated)).count() as f64 / pairs.len() as f64
}

#[test]
fn simulated_resume_matches_a_recorded_vm() {
    let real = recorded();
    let pairs: Vec<(OffTime, OffTime)> = real.iter().map(|sleep| (*sleep, simulated(sleep))).collect();
    assert!(pairs.len() > 25 && real.iter().any(|sleep| sleep.off_us > 400_000));
    let sum = |of: fn(&OffTime) -> u32| {
        let both = pairs.iter().map(|(real, simulated)| (f64::from(of(real)), f64::from(of(simulated))));
        both.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1))
    };
    // What was in flight is acknowledged meanwhile, two packets by one.
    let (acks, in_simulation) = sum(|sleep| sleep.acks);
    assert!((0.8..1.25).contains(&(in_simulation / acks)), "{acks} real ACKs, {in_simulation}");
    // The window leaves at once, and then what its ACKs release: a real machine is at most as fast, as it takes its time for it.
    let not_faster = share(&pairs, |real, simulated| f64::from(real.sent) <= 1.2 * f64::from(simulated.sent));
    let half_as_fast = share(&pairs, |real, simulated| 2 * real.sent >= simulated.sent);
    assert!(not_faster >= 0.9 && half_as_fast >= 0.5, "{not_faster}, {half_as_fast}: {pairs:?}");
    // Nothing was lost, nothing was to be sent again; a probe is rare.
    let quiet =
        (share(&pairs, |real, _| real.again <= 1), share(&pairs, |_, simulated| simulated.again <= 1));
    assert!(quiet.0 >= 0.9 && quiet.1 >= 0.9, "{quiet:?}");
    assert!(share(&pairs, |real, simulated| real.first_us < 10_000 && simulated.first_us == 0) >= 0.999);
}
