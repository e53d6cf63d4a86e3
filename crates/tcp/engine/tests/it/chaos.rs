//! Property: whatever happens to carriers, no byte is lost, doubled or out of order, and a session with a carrier makes progress.

use crate::net::{CLIENT, SERVER, Transfer, World};
use proptest::prelude::*;
use vmcc_multipath::Scheduler;
use vmcc_tcp::Config;
use vmcc_units::time::Span;

#[derive(Clone, Debug)]
enum Fault {
    Kill(usize),
    Cut(usize),
    Mend(usize),
    Dial(u64, u64),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (0..8usize).prop_map(Fault::Kill),
        (0..8usize).prop_map(Fault::Cut),
        (0..8usize).prop_map(Fault::Mend),
        (1..50u64, 0..80u64).prop_map(|(rate, delay)| Fault::Dial(rate, delay)),
    ]
}

fn scheduler() -> impl Strategy<Value = Scheduler> {
    use Scheduler::{Blest, Ecf, LowestRtt, PipeCwnd, Redundant, RoundRobin};
    prop::sample::select(vec![LowestRtt, RoundRobin, Redundant, Blest, Ecf, PipeCwnd])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn carrier_faults_lose_no_byte(
        scheduler in scheduler(),
        carriers in prop::collection::vec((1..50u64, 0..80u64), 1..4),
        chunks in prop::collection::vec(1..5000usize, 1..8),
        faults in prop::collection::vec((0..1500u64, fault()), 0..12),
        up in any::<bool>(),
    ) {
        let config = Config { scheduler, abort_timeout: Span::from_secs(2), ..Config::default() };
        let mut world = World::connected(config, &carriers);
        world.chunks = chunks;
        let from = if up { CLIENT } else { SERVER };
        let mut transfer = Transfer::new(&mut world, from, 1_000_000);
        for (ms, fault) in faults {
            transfer.run_for(&mut world, Span::from_ms(ms));
            let links = world.links.len();
            match fault {
                Fault::Kill(link) => world.kill(link % links),
                Fault::Cut(link) => world.set_cut(link % links, true),
                Fault::Mend(link) => world.set_cut(link % links, false),
                Fault::Dial(rate, delay) => drop(world.dial(rate, delay)),
            }
        }
        // In the end one good carrier is there.
        (0..world.links.len()).for_each(|link| world.set_cut(link, false));
        if !transfer.complete && world.end(CLIENT).carriers().all(|own| !own.open) {
            prop_assert!(world.dial(10, 5).is_some());
        }
        prop_assert!(transfer.run(&mut world), "{} bytes, {:?}", transfer.read, world.events);
    }
}
