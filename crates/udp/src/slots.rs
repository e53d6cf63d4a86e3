//! Which pairs of addresses get a place among the paths of a connection, of which there are few.

use std::collections::HashMap;
use std::hash::Hash;

/// Orders candidates: those that share least with the ones before come first, so that the first few use as many interfaces, addresses and relays
/// as there are. `ends` tells of each from where it is (interface, address), to where, and by what.
pub(crate) fn diverse<T, K: Hash + Eq + Clone>(mut left: Vec<T>, ends: impl Fn(&T) -> Ends<K>) -> Vec<T> {
    let mut uses: HashMap<(Role, K), usize> = HashMap::new();
    let mut chosen = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let count = |role, key: K| uses.get(&(role, key)).copied().unwrap_or(0);
        let cost = |one: &T| {
            let Ends { interface, source, relay, remote } = ends(one);
            let interface = count(Role::Interface, interface);
            let (from, to) = (count(Role::Source, source), count(Role::Remote, remote));
            let by = relay.map_or(0, |relay| count(Role::Relay, relay));
            (from.max(by).max(to), interface + from + by + to)
        };
        let next = (0..left.len()).min_by_key(|&i| cost(&left[i])).unwrap_or(0);
        let one = left.remove(next);
        let Ends { interface, source, relay, remote } = ends(&one);
        let used = [(Role::Interface, interface), (Role::Source, source), (Role::Remote, remote)];
        for key in used.into_iter().chain(relay.map(|relay| (Role::Relay, relay))) {
            *uses.entry(key).or_default() += 1;
        }
        chosen.push(one);
    }
    chosen
}

/// What a candidate shares with others.
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

/// A path that is open or being opened.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: u32,
    pub(crate) interface: String,
    /// It has been silent for long.
    pub(crate) dead: bool,
}

/// The path to give up for a candidate of an interface, where all places are taken: one that is dead, or one of an interface that has at least
/// two more. None if the candidate would be worth no more than what is there.
pub(crate) fn victim(places: &[Place], interface: &str) -> Option<u32> {
    let of = |interface: &str| places.iter().filter(|place| place.interface == interface).count();
    let own = of(interface);
    let dead = places.iter().find(|place| place.dead).filter(|_| places.len() > 1);
    let crowded = places.iter().map(|place| (of(&place.interface), place));
    // Of equals the newest, which has learnt least.
    let crowded =
        crowded.filter(|(count, _)| *count >= own + 2).max_by_key(|(count, place)| (*count, place.path));
    dead.or(crowded.map(|(_, place)| place)).map(|place| place.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(all: Vec<(&'static str, u8, u8)>) -> Vec<(&'static str, u8, u8)> {
        diverse(all, |one| Ends {
            interface: one.0.to_owned(),
            source: one.1.to_string(),
            relay: None,
            remote: one.2.to_string(),
        })
    }

    /// Sixteen pairs, eight places: each interface has four.
    #[test]
    fn interfaces_share_places_however_many_addresses_each_has() {
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

    fn places(interfaces: &[&str]) -> Vec<Place> {
        let place =
            |(path, interface): (u32, &&str)| Place { path, interface: (*interface).into(), dead: false };
        (0..).zip(interfaces).map(place).collect()
    }

    #[test]
    fn path_gives_way_to_another_interface_until_shares_are_even() {
        let mut all = places(&["a"; 8]);
        for share in 1..=4 {
            let gone = victim(&all, "b").unwrap() as usize;
            assert_eq!(all[gone].interface, "a", "{share}");
            all[gone].interface = "b".into();
        }
        assert_eq!((victim(&all, "b"), victim(&all, "a"), victim(&all, "c")), (None, None, Some(7)));
        assert_eq!(victim(&places(&["a", "b"]), "c"), None);
    }

    #[test]
    fn dead_path_gives_way_first_unless_it_is_the_last() {
        let mut all = places(&["a", "a", "a", "b"]);
        all[3].dead = true;
        assert_eq!(victim(&all, "b"), Some(3));
        assert_eq!(victim(&all[3..], "c"), None);
    }
}
