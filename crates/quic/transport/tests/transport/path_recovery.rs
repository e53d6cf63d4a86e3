//! Recovery of paths after outages and expired NAT bindings.

use crate::multipath::{connected, shaped};
use crate::net::{Net, Transfer, client_address};
use std::collections::VecDeque;
use vmcc_transport::{Config, Handle};
use vmcc_units::time::{Span, Time};

const KEEP_ALIVE: Span = Span::from_secs(5);
/// The longest time from healing to the first payload.
const BACK_WITHIN: Span = Span::from_secs(3);

fn config() -> Config {
    Config { keep_alive: KEEP_ALIVE, ..Config::default() }
}

fn cut(net: &mut Net, paths: &[u16], until: Time) {
    let now = net.now;
    for path in paths {
        net.links.get_mut(&client_address(*path)).unwrap().cut = (now, until);
    }
}

/// Lets the application write 20 kB each 100 ms.
fn trickle(net: &mut Net, transfer: &mut Transfer, span: Span) {
    let end = net.now + span;
    trickle_until(net, transfer, end);
}

fn trickle_until(net: &mut Net, transfer: &mut Transfer, end: Time) {
    while net.now < end {
        transfer.offered += 20_000;
        transfer.pump(net);
        net.run_for(Span::from_ms(100));
    }
    transfer.pump(net);
}

/// Payload that came on the path.
fn payload(net: &mut Net, end: usize, handle: Handle, path: u32) -> u64 {
    net.connection(end, handle).paths().find(|own| own.id == path).map_or(0, |own| own.payload_in)
}

fn trickling(net: &mut Net, client: Handle, server: Handle, down: bool) -> Transfer {
    let mut transfer = match down {
        true => Transfer::down(net, client, server, u64::MAX),
        false => Transfer::up(net, client, server, u64::MAX),
    };
    transfer.offered = 0;
    transfer
}

#[test]
fn cut_path_carries_data_again_within_three_seconds_of_healing() {
    for (secs, down) in [(5, false), (45, false), (45, true), (130, true)] {
        for path in [0, 1] {
            let (mut net, client, server) = connected(&[shaped(4_000_000, 10); 2], &config());
            let mut transfer = trickling(&mut net, client, server, down);
            trickle(&mut net, &mut transfer, Span::from_secs(2));
            let healed = net.now + Span::from_secs(secs);
            cut(&mut net, &[path], healed);
            trickle_until(&mut net, &mut transfer, healed);
            let (end, handle) = if down { (0, client) } else { (1, server) };
            let before = payload(&mut net, end, handle, path.into());
            while payload(&mut net, end, handle, path.into()) < before + 4_000 {
                trickle(&mut net, &mut transfer, Span::from_ms(100));
                let took = net.now.since(healed);
                assert!(took < BACK_WITHIN, "path {path}, cut for {secs} s, down {down}: {took:?}");
            }
        }
    }
}

#[test]
fn connection_goes_on_within_three_seconds_after_all_paths_heal() {
    for secs in [4, 9, 14, 21, 27] {
        for down in [false, true] {
            let (mut net, client, server) = connected(&[shaped(4_000_000, 10); 2], &config());
            let mut transfer = trickling(&mut net, client, server, down);
            trickle(&mut net, &mut transfer, Span::from_secs(2));
            let healed = net.now + Span::from_secs(secs);
            cut(&mut net, &[0, 1], healed);
            trickle_until(&mut net, &mut transfer, healed);
            let before = transfer.read;
            trickle(&mut net, &mut transfer, BACK_WITHIN);
            assert!(transfer.read > before + 100_000, "cut for {secs} s, down {down}");
        }
    }
}

/// Nothing is sent but keep-alives: the silence of one path shows, and its healing too.
#[test]
fn idle_path_is_probed_while_another_path_carries_data() {
    let (mut net, client, server) = connected(&[shaped(4_000_000, 10); 2], &config());
    net.connection(0, client).set_backup(1, true).unwrap();
    let mut transfer = trickling(&mut net, client, server, true);
    trickle(&mut net, &mut transfer, Span::from_secs(2));
    let failed = |net: &mut Net| net.connection(0, client).paths().find(|own| own.id == 1).unwrap().failed;
    let healed = net.now + Span::from_secs(40);
    cut(&mut net, &[1], healed);
    trickle(&mut net, &mut transfer, Span::from_secs(8));
    assert!(failed(&mut net), "a keep-alive on it was not answered");
    trickle_until(&mut net, &mut transfer, healed);
    trickle(&mut net, &mut transfer, BACK_WITHIN);
    assert!(!failed(&mut net));
}

/// Only packets of the client make new NAT bindings, and a client that receives has none to send.
#[test]
fn download_survives_loss_of_all_nat_bindings_within_a_second() {
    for rate in [2_000_000, 10_000_000] {
        for delay in [2, 20, 80] {
            for lost in [&[0][..], &[1], &[0, 1]] {
                let (mut net, client, server) = connected(&[shaped(rate, delay); 2], &config());
                let mut transfer = Transfer::down(&mut net, client, server, 3 * rate);
                let at = net.now + Span::from_secs(3);
                transfer.until(&mut net, Span::from_secs(10), |net, _| net.now > at);
                lose_bindings(&mut net, lost);
                let before: Vec<u64> = (0..2).map(|path| payload(&mut net, 0, client, path)).collect();
                transfer.stall = Span::ZERO;
                let end = net.now + Span::from_secs(4);
                transfer.until(&mut net, Span::from_secs(10), |net, _| net.now > end);
                let stall = transfer.stall;
                assert!(stall < Span::from_secs(1), "{rate} {delay} {lost:?}: {stall:?}");
                for path in 0..2 {
                    let carried = payload(&mut net, 0, client, path) - before[path as usize];
                    // Of four seconds at most; a window that LIA has just reduced carries a fifth of that.
                    assert!(carried > rate / 16, "{rate} {delay} {lost:?}: {carried} on path {path}");
                }
            }
        }
    }
}

/// Lets a server write `bytes` every `gap`, and loses all NAT bindings `after` the tenth write. Returns the longest time from a write to
/// its arrival, and the client's longest round trip.
fn latest_arrival(gap: Span, bytes: u64, delay: u64, after: Span) -> (Span, Span) {
    let (mut net, client, server) = connected(&[shaped(10_000_000, delay); 2], &config());
    let mut transfer = trickling(&mut net, client, server, true);
    let (mut latest, begin) = (Span::ZERO, net.now);
    let mut writes: VecDeque<(Time, u64)> = VecDeque::new();
    let mut lost_at = begin + gap.times(10) + after;
    for count in 1..30 {
        let at = begin + gap.times(count);
        while net.now < at {
            net.run_for(Span::from_ms(1));
            transfer.pump(&mut net);
            while let Some((written, _)) = writes.pop_front_if(|(_, end)| *end <= transfer.read) {
                latest = latest.max(net.now.since(written));
            }
            if net.now >= lost_at {
                lost_at = Time::NEVER;
                lose_bindings(&mut net, &[0, 1]);
            }
        }
        transfer.offered += bytes;
        transfer.pump(&mut net);
        writes.push_back((net.now, transfer.offered));
    }
    let paths = net.connection(0, client).paths();
    (latest, paths.map(|path| path.srtt).max().unwrap())
}

fn lose_bindings(net: &mut Net, paths: &[u16]) {
    for path in paths {
        let public = format!("10.77.{path}.1:7777").parse().unwrap();
        net.nat.insert(client_address(*path), public);
    }
}

/// A client cannot miss data before their time: where they come seldom, it takes as long as the time between two of them.
#[test]
fn sparse_download_misses_lost_nat_bindings_within_three_ptos_or_a_gap() {
    for delay in [2, 20, 80] {
        for (gap, bytes) in [(10, 100), (30, 100), (100, 100), (100, 20_000), (300, 100), (1_000, 100)] {
            for eighths in [1, 7] {
                let gap = Span::from_ms(gap);
                let (latest, rtt) = latest_arrival(gap, bytes, delay, gap.times(eighths).div(8));
                // With a deviation of a sixteenth, and the delay of acknowledgments.
                let pto = rtt + rtt.div(4) + Span::from_ms(25);
                let bound = gap.max(pto.times(3)) + rtt;
                let ms = [latest, bound].map(|span| span.us() / 1000);
                println!("{delay} {} {bytes} {eighths}: {ms:?}", gap.us() / 1000);
                assert!(latest <= bound, "{delay} {gap:?} {bytes} {eighths}: {ms:?} ms");
            }
        }
    }
}

#[test]
fn regular_sparse_data_are_not_probed_each_time() {
    let (mut net, client, server) = connected(&[shaped(10_000_000, 20); 2], &Config::default());
    let mut transfer = trickling(&mut net, client, server, true);
    let mut write = |net: &mut Net, count| {
        for _ in 0..count {
            transfer.offered += 100;
            transfer.pump(net);
            net.run_for(Span::from_ms(200));
        }
        net.sent
    };
    let begun = write(&mut net, 20);
    let datagrams = write(&mut net, 50) - begun;
    // Each is acknowledged.
    assert!(datagrams <= 110, "{datagrams} datagrams for 50 writes");
    // And after the last one the silence is probed for a while only.
    net.run_for(Span::from_secs(20));
    let quiet = net.sent;
    net.run_for(Span::from_secs(9));
    assert_eq!(net.sent, quiet);
}
