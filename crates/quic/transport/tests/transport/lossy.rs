//! Random loss: what two paths carry beside what the better one does alone (RFC 6356 section 2, goal 1).

use crate::multipath::connected;
use crate::net::{Link, Transfer};
use vmcc_transport::{Config, Event};
use vmcc_units::time::Span;

const SEEDS: [u64; 3] = [1, 2, 3];
/// Of a run, after slow start.
const MEASURED: Span = Span::from_secs(100);

/// 100 Mbit/s and 85 ms.
fn lossy(permille: u64) -> Link {
    let delay = Span::from_us(42_500);
    Link { rate: 100_000_000, delay, loss: permille, queue: 2_000_000, ..Link::default() }
}

/// A download over such paths with LIA.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    bits_per_second: f64,
    lost: u64,
    suspected: usize,
}

fn download(permilles: &[u64], seed: u64) -> Figures {
    let links: Vec<Link> = permilles.iter().copied().map(lossy).collect();
    let (mut net, client, server) = connected(&links, &Config::default());
    net.random ^= seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut transfer = Transfer::down(&mut net, client, server, u64::MAX);
    let settled = net.now + Span::from_secs(20);
    transfer.until(&mut net, Span::from_secs(30), |net, _| net.now > settled);
    let (read, end) = (transfer.read, net.now + MEASURED);
    transfer.until(&mut net, MEASURED.times(2), |net, _| net.now > end);
    let suspected = |(_, _, event): &&(_, _, Event)| matches!(event, Event::PathSuspected { .. });
    Figures {
        bits_per_second: (transfer.read - read) as f64 * 8.0 / MEASURED.secs_f64(),
        lost: net.connection(1, server).paths().map(|path| path.lost_packets).sum(),
        suspected: net.events[1].iter().filter(suspected).count(),
    }
}

fn mean(permilles: &[u64]) -> f64 {
    SEEDS.map(|seed| download(permilles, seed).bits_per_second).iter().sum::<f64>() / SEEDS.len() as f64
}

/// LIA is to give both paths together what one TCP connection has on the better one: 1.22 / sqrt(p) packets in a round trip at loss p, 2.3 Mbit/s at
/// 0.5 %. A model of nothing but its law, with whole packets and a round trip in recovery after each loss, gives 1.11 of that on equal paths,
/// and 0.96 where the other loses four times as much.
#[test]
fn two_lossy_paths_reach_the_lia_share() {
    for (second, least, most) in [(5, 0.97, 1.2), (20, 0.85, 1.1)] {
        let share = mean(&[5, second]) / mean(&[5]);
        assert!(
            (least..most).contains(&share),
            "5 and {second} of a thousand: {share:.3} of the first alone"
        );
    }
}

/// Later packets show that the path lives. Setting it aside for each loss sends all that is under way there once more on another.
#[test]
fn lost_packet_does_not_make_its_path_suspect() {
    for seed in SEEDS {
        let all = download(&[5, 5], seed);
        assert!(all.lost > 50 && all.suspected * 4 < all.lost as usize, "{all:?}");
    }
}
