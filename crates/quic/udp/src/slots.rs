//! Admission of address pairs to the few places that a connection has for paths.

use std::collections::HashMap;
use std::hash::Hash;

/// Orders candidates: the first few use as many interfaces, addresses and relays as there are.
pub(crate) fn order_by_diversity<T, K: Hash + Eq>(all: Vec<T>, ends: impl Fn(&T) -> Ends<K>) -> Vec<T> {
    // Numbers instead of names: each candidate is looked at once for each that is chosen.
    let mut numbers: HashMap<(Role, K), usize> = HashMap::new();
    let mut number = |role, key: K| {
        let next = numbers.len();
        *numbers.entry((role, key)).or_insert(next)
    };
    let mut left: Vec<(T, Ends<usize>)> = Vec::with_capacity(all.len());
    for one in all {
        let Ends { interface, source, relay, remote } = ends(&one);
        let interface = number(Role::Interface, interface);
        let (source, remote) = (number(Role::Source, source), number(Role::Remote, remote));
        let relay = relay.map(|relay| number(Role::Relay, relay));
        left.push((one, Ends { interface, source, relay, remote }));
    }
    let mut uses = vec![0; numbers.len()];
    let mut chosen = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let cost = |Ends { interface, source, relay, remote }: &Ends<usize>| {
            let (from, to) = (uses[*source], uses[*remote]);
            let by = relay.map_or(0, |relay| uses[relay]);
            (from.max(by).max(to), uses[*interface] + from + by + to)
        };
        let next = (0..left.len()).min_by_key(|&i| cost(&left[i].1)).unwrap_or(0);
        let (one, Ends { interface, source, relay, remote }) = left.remove(next);
        [interface, source, remote].into_iter().chain(relay).for_each(|end| uses[end] += 1);
        chosen.push(one);
    }
    chosen
}

/// Ends of a candidate that others may share.
pub(crate) struct Ends<K> {
    pub(crate) interface: K,
    pub(crate) source: K,
    pub(crate) relay: Option<K>,
    pub(crate) remote: K,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    Interface,
    Source,
    Relay,
    Remote,
}

/// Slot of a path that is open or being opened.
#[derive(Clone, Debug)]
pub(crate) struct PathSlot {
    pub(crate) path: u32,
    pub(crate) interface: String,
    /// It has been silent for long.
    pub(crate) dead: bool,
}

/// Selects the path to give up for a candidate of an interface, where all places are taken: one of the interface with most paths, if it has at least
/// two more, and a dead one first. An interface without paths also takes the place of a dead path. A pair that was `tried` in vain gets
/// one only where its interface has none.
pub(crate) fn victim(slots: &[PathSlot], interface: &str, tried: bool) -> Option<u32> {
    let of = |interface: &str| slots.iter().filter(|place| place.interface == interface).count();
    let own = of(interface);
    if tried && own > 0 {
        return None;
    }
    let counted = slots.iter().map(|place| (of(&place.interface), place.dead, place.path));
    // Of equals the newest, which has learnt least.
    let crowded = counted.filter(|(count, ..)| *count >= own + 2).max().map(|(.., path)| path);
    let dead = || slots.iter().find(|place| place.dead).filter(|_| own == 0 && slots.len() > 1);
    crowded.or_else(|| dead().map(|place| place.path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn order(all: Vec<(&'static str, u8, u8)>) -> Vec<(&'static str, u8, u8)> {
        order_by_diversity(all, |one| Ends {
            interface: one.0.to_owned(),
            source: one.1.to_string(),
            relay: None,
            remote: one.2.to_string(),
        })
    }

    /// Sixteen pairs, eight places: each interface has four.
    #[test]
    fn interfaces_share_slots_regardless_of_address_count() {
        for (first, second) in [(8, 8), (8, 1), (20, 3)] {
            let of = |name, from: u8, count: u8| (from..from + count).map(move |source| (name, source, 0));
            let order = order(of("a", 0, first).chain(of("b", 100, second)).collect());
            let shared = order.iter().take(8).filter(|one| one.0 == "b").count();
            assert_eq!(shared, usize::from(second).min(4), "{first} {second}: {order:?}");
        }
    }

    #[test]
    fn pairs_of_unused_ends_come_before_second_uses() {
        let all =
            (0..2).flat_map(|source| (0..2).map(move |remote| (["a", "b"][source], source as u8, remote)));
        assert_eq!(order(all.collect()), [("a", 0, 0), ("b", 1, 1), ("a", 0, 1), ("b", 1, 0)]);
    }

    /// A host with 200 addresses and a peer with eight: names as they were compared took seconds.
    #[test]
    fn many_addresses_are_ordered_by_all_their_ends() {
        let all = (0..200u8).flat_map(|source| (0..8).map(move |remote| ("a", source, remote)));
        let order = order(all.collect());
        assert_eq!(order.len(), 1600);
        let distinct =
            |of: fn(&(&str, u8, u8)) -> u8| order[..8].iter().map(of).collect::<HashSet<_>>().len();
        assert_eq!((distinct(|one| one.1), distinct(|one| one.2)), (8, 8));
    }

    fn slots(interfaces: &[&str]) -> Vec<PathSlot> {
        let place =
            |(path, interface): (u32, &&str)| PathSlot { path, interface: (*interface).into(), dead: false };
        (0..).zip(interfaces).map(place).collect()
    }

    #[test]
    fn path_gives_way_to_another_interface_until_shares_are_even() {
        let mut all = slots(&["a"; 8]);
        for share in 1..=4 {
            let gone = victim(&all, "b", share == 1).unwrap() as usize;
            assert_eq!(all[gone].interface, "a", "{share}");
            all[gone].interface = "b".into();
        }
        let of = |interface| victim(&all, interface, false);
        assert_eq!((of("b"), of("a"), of("c")), (None, None, Some(7)));
        assert_eq!(victim(&slots(&["a", "b"]), "c", false), None);
        assert_eq!(victim(&slots(&["a", "a", "a", "b"]), "b", true), None, "it was tried, and has one");
    }

    /// A path that was cut is not given up for further pairs of an interface that has some.
    #[test]
    fn dead_path_gives_way_only_to_an_interface_without_paths() {
        let mut all = slots(&["a", "b", "c"]);
        all[1].dead = true;
        assert_eq!((victim(&all, "a", false), victim(&all, "d", false)), (None, Some(1)));
        assert_eq!(victim(&all[1..2], "d", false), None, "the last one stays");
        let mut crowded = slots(&["a", "a", "b"]);
        crowded[0].dead = true;
        assert_eq!(victim(&crowded, "c", true), Some(0), "of a crowded interface the dead one");
    }
}
