//! Desired state of a network namespace as it is now, from the configuration.

use super::cgroups;
use super::readiness::Ids;
use super::resource::{
    Limit, Resource, ResourceError, UPGRADED, endpoint_of, endpoint_text, params_text, port_text,
};
use crate::config::{CgroupRule, Config, EndpointFlag, EndpointRule, Family, Mptcp, Settings, SysctlName};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::{NonZeroU8, NonZeroU16};
use vmcc_bpf::{cgroup, reassign};
use vmcc_netlink::{Endpoint, HostAddress, PortInfo};
use wildmatch::WildMatch;

/// Resources with their desired values.
pub(crate) type Desired = Vec<(Resource, String)>;

pub(crate) fn algorithms(config: &Config) -> Desired {
    let resource = |name: &str| Resource::Algorithm(name.to_owned());
    config.algorithms.iter().map(|p| (resource(p.algorithm().info().kernel_name), params_text(p))).collect()
}

pub(crate) fn ports(config: &Config) -> Desired {
    config.ports.iter().map(|(name, config)| (Resource::Port(name.clone()), port_text(config))).collect()
}

/// Values of the cgroups that exist.
pub(crate) fn cgroups(config: &Config) -> Result<Desired, ResourceError> {
    // Who names none has no business with where they are.
    if config.cgroups.is_empty() {
        return Ok(Vec::new());
    }
    let root = cgroup::root()?;
    let mut desired = BTreeMap::new();
    for rule in &config.cgroups {
        let failed = |source| ResourceError::File { file: root.display().to_string(), source };
        for path in cgroups::find(&root, &rule.path).map_err(failed)? {
            desired.entry(path).or_insert(rule);
        }
    }
    Ok(desired.into_iter().flat_map(|(path, rule)| of_cgroup(path, rule)).collect())
}

/// Rules that no cgroup fits where that is no wonder.
pub(crate) fn cgroup_warnings(config: &Config) -> Vec<String> {
    if config.cgroups.is_empty() || !cgroup::is_hybrid() {
        return Vec::new();
    }
    let Ok(root) = cgroup::root() else { return Vec::new() };
    let fits_none = |rule: &&CgroupRule| cgroups::find(&root, &rule.path).is_ok_and(|found| found.is_empty());
    let text = |rule: &CgroupRule| {
        format!(
            "no cgroup fits `{}`: this host has cgroups of both versions, where podman and Docker put containers into those of \
             the first, which cannot be covered; boot with `systemd.unified_cgroup_hierarchy=1`, or cover the containers' network \
             namespaces",
            rule.path
        )
    };
    config.cgroups.iter().filter(fits_none).map(text).collect()
}

/// By the first rule that fits.
fn of_cgroup(path: String, rule: &CgroupRule) -> impl Iterator<Item = (Resource, String)> + use<> {
    let upgraded = rule.upgrade.then(|| (Resource::Upgrade(path.clone()), UPGRADED.to_owned()));
    let given = rule.congestion_control.clone().map(|name| (Resource::Cgroup(path), name));
    upgraded.into_iter().chain(given)
}

/// Sysctls and limits of a namespace.
pub(crate) fn settings(settings: &Settings) -> Desired {
    let sysctls = settings.sysctls().into_iter();
    let live = settings.live && reassign::check_support().is_ok();
    let resource = |name: SysctlName| match live && name == SysctlName::congestion_control() {
        true => Resource::LiveDefault,
        false => Resource::Sysctl(name.as_str().to_owned()),
    };
    let mut desired: Desired = sysctls.map(|(name, value)| (resource(name), value)).collect();
    desired.extend(limits(&settings.mptcp));
    desired
}

/// A limit that is not given is somebody else's.
fn limits(mptcp: &Mptcp) -> Desired {
    let given = [(Limit::Subflows, mptcp.subflows), (Limit::Accept, mptcp.accept)];
    given
        .into_iter()
        .filter_map(|(which, limit)| Some((Resource::Limit(which), limit?.to_string())))
        .collect()
}

/// The interfaces that some rule names, each with the rules that do.
pub(crate) fn named<'a>(
    rules: &'a [EndpointRule],
    nics: &'a [PortInfo],
) -> Vec<(&'a PortInfo, Vec<&'a EndpointRule>)> {
    let patterns: Vec<WildMatch> = rules.iter().map(|rule| WildMatch::new(&rule.nic)).collect();
    let names = |nic: &PortInfo, pattern: &WildMatch| {
        pattern.matches(&nic.name) || nic.other_names.iter().any(|name| pattern.matches(name))
    };
    let of_nic = |nic| rules.iter().zip(&patterns).filter(move |(_, pattern)| names(nic, pattern));
    let all = nics.iter().map(|nic| (nic, of_nic(nic).map(|(rule, _)| rule).collect::<Vec<_>>()));
    all.filter(|(_, rules)| !rules.is_empty()).collect()
}

/// The usable addresses of interfaces that are `ready`, each by the first rule that fits, with the numbers that they have,
/// had, or get; and warnings of those that have none.
pub(crate) fn endpoints(
    named: &[(&PortInfo, Vec<&EndpointRule>)],
    ready: &BTreeSet<u32>,
    addresses: &[HostAddress],
    there: &[Endpoint],
    ids: &mut Ids,
) -> (Desired, Vec<String>) {
    let by_index: BTreeMap<u32, (bool, &Vec<&EndpointRule>)> =
        named.iter().map(|(nic, rules)| (nic.index, (nic.up, rules))).collect();
    let endpoint = |found: &HostAddress| {
        let (up, rules) = by_index.get(&found.port)?;
        let rule = rules.iter().find(|rule| fits(rule.family, found.address))?;
        let flags = rule.flags.iter().map(|flag| bit(*flag)).fold(0, std::ops::BitOr::bitor);
        let (id, port) = (rule.id.map_or(0, NonZeroU8::get), rule.port.map(NonZeroU16::get));
        let endpoint = Endpoint { id, address: found.address, port, flags, device: found.port };
        // Linux uses a laminar endpoint when the peer announces an address: removed with the carrier, it would open no path
        // when that returns.
        let is_kept = || *up && flags & Endpoint::LAMINAR != 0 && is_there(&endpoint, there);
        (ready.contains(&found.port) || is_kept()).then_some(endpoint)
    };
    let mut warnings = Vec::new();
    let all = addresses.iter().filter(|address| address.usable).filter_map(endpoint);
    let names = named.iter().map(|(nic, _)| (nic.index, nic.name.as_str())).collect();
    let unique = one_interface_each(all, &names, &mut warnings);
    let mut desired = one_address_each(unique, there, &mut warnings);
    let reserved = named.iter().flat_map(|(_, rules)| rules).filter_map(|rule| rule.id.map(NonZeroU8::get));
    ids.number(&mut desired, there, &reserved.collect());
    // Those whose number another one gets are moved first.
    let numbers: BTreeMap<Resource, u8> = there.iter().map(|one| (Resource::endpoint(one), one.id)).collect();
    desired.sort_by_key(|one| numbers.get(&Resource::endpoint(one)).is_none_or(|id| *id == one.id));
    (desired.iter().map(|one| (Resource::endpoint(one), endpoint_text(one))).collect(), warnings)
}

/// Of endpoints whose id changes those that need the id of another one of them, and these; empty if no id is waited for.
/// `is_fixed`: the endpoint cannot be removed now.
pub(crate) fn exchanges(
    desired: &Desired,
    there: &[Endpoint],
    mut is_fixed: impl FnMut(&Endpoint) -> bool,
) -> Vec<Resource> {
    let present: BTreeMap<Resource, &Endpoint> =
        there.iter().map(|one| (Resource::endpoint(one), one)).collect();
    let owners = owners(there);
    let mut ids: BTreeMap<&Resource, u8> = desired
        .iter()
        .filter_map(|(resource, value)| {
            let id = endpoint_of(resource, value)?.id;
            (present.get(resource)?.id != id).then_some((resource, id))
        })
        .collect();
    let waits = |ids: &BTreeMap<_, u8>, id| owners.get(&id).is_some_and(|one| ids.contains_key(one));
    if !ids.values().any(|id| waits(&ids, *id)) {
        return Vec::new();
    }
    ids.retain(|resource, _| !is_fixed(present[resource]));
    // The id of one that stays is not free.
    loop {
        let before = ids.clone();
        ids.retain(|_, id| !owners.contains_key(id) || waits(&before, *id));
        if ids.len() == before.len() {
            break;
        }
    }
    ids.into_keys().cloned().collect()
}

/// The endpoint that has each id.
fn owners(there: &[Endpoint]) -> BTreeMap<u8, Resource> {
    there.iter().map(|one| (one.id, Resource::endpoint(one))).collect()
}

fn is_there(endpoint: &Endpoint, there: &[Endpoint]) -> bool {
    there
        .iter()
        .any(|one| Resource::endpoint(one) == Resource::endpoint(endpoint) && one.device == endpoint.device)
}

/// Of endpoints with the same address those of the interface with the lowest index: the kernel takes one.
fn one_interface_each(
    all: impl Iterator<Item = Endpoint>,
    names: &BTreeMap<u32, &str>,
    warnings: &mut Vec<String>,
) -> Vec<Endpoint> {
    let (mut chosen, mut at) = (Vec::<Endpoint>::new(), BTreeMap::new());
    for one in all {
        let place = *at.entry(Resource::endpoint(&one)).or_insert(chosen.len());
        let Some(other) = chosen.get_mut(place) else {
            chosen.push(one);
            continue;
        };
        let (first, second) = if one.device < other.device { (one, *other) } else { (*other, one) };
        *other = first;
        let name = |endpoint: Endpoint| names.get(&endpoint.device).copied().unwrap_or_default();
        warnings.push(format!(
            "{} is an address of {} and of {}: its MPTCP endpoint is bound to the former; remove it from one of them, or name one \
             in `nic`",
            one.address,
            name(first),
            name(second)
        ));
    }
    chosen
}

/// Of endpoints with the same `id` in the file the one that has it already, or else that of the lowest address.
fn one_address_each(mut all: Vec<Endpoint>, there: &[Endpoint], warnings: &mut Vec<String>) -> Vec<Endpoint> {
    let owners = owners(there);
    let mut chosen: BTreeMap<u8, Endpoint> = BTreeMap::new();
    for one in all.iter().filter(|one| one.id != 0) {
        let rank = |one: &Endpoint| (owners.get(&one.id) != Some(&Resource::endpoint(one)), one.address);
        let best = chosen.entry(one.id).or_insert(*one);
        if rank(one) < rank(best) {
            *best = *one;
        }
    }
    all.retain(|one| {
        let Some(best) = chosen.get(&one.id).filter(|best| *best != one) else { return true };
        warnings.push(format!(
            "{} has no MPTCP endpoint: its `id` {} is that of {}, and an id is one endpoint's; add `family` to the rule, or leave \
             `id` out",
            one.address, one.id, best.address
        ));
        false
    });
    all
}

fn fits(family: Family, address: IpAddr) -> bool {
    match family {
        Family::Any => true,
        Family::Ipv4 => address.is_ipv4(),
        Family::Ipv6 => address.is_ipv6(),
    }
}

fn bit(flag: EndpointFlag) -> u32 {
    match flag {
        EndpointFlag::Signal => Endpoint::SIGNAL,
        EndpointFlag::Subflow => Endpoint::SUBFLOW,
        EndpointFlag::Backup => Endpoint::BACKUP,
        EndpointFlag::Fullmesh => Endpoint::FULLMESH,
        EndpointFlag::Laminar => Endpoint::LAMINAR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nic(index: u32, name: &str, up: bool) -> PortInfo {
        PortInfo {
            index,
            name: name.to_owned(),
            other_names: vec![format!("alt-{name}")],
            mtu: 1500,
            on_bus: false,
            ethernet: true,
            link_layer: 1,
            kind: None,
            lower: None,
            controller: None,
            up,
            running: up,
        }
    }

    fn rule(nic: &str, flags: &[EndpointFlag], family: Family) -> EndpointRule {
        EndpointRule { nic: nic.to_owned(), flags: flags.to_vec(), family, port: None, id: None }
    }

    #[test]
    fn unconfigured_limit_is_not_managed() {
        let mptcp = |subflows, accept| Mptcp { subflows, accept, endpoints: Vec::new() };
        assert_eq!(limits(&mptcp(Some(3), None)), [(Resource::Limit(Limit::Subflows), "3".to_owned())]);
        let both = limits(&mptcp(Some(3), Some(0)));
        assert_eq!(both[1], (Resource::Limit(Limit::Accept), "0".to_owned()));
        assert_eq!((both.len(), limits(&mptcp(None, None)).len()), (2, 0));
    }

    #[test]
    fn first_matching_rule_makes_an_address_an_endpoint() {
        let nics = [nic(1, "lo", true), nic(2, "eth0", true), nic(3, "eth1", false), nic(4, "wlan0", true)];
        let at = |port, text: &str, usable| HostAddress { port, address: text.parse().unwrap(), usable };
        let addresses = [
            at(1, "127.0.0.1", false),
            at(2, "10.0.0.1", true),
            at(2, "fd00::1", true),
            at(2, "fd00::2", false),
            at(3, "10.0.1.1", true),
            at(4, "10.0.2.1", true),
        ];
        let rules = [
            rule("eth*", &[EndpointFlag::Signal], Family::Ipv4),
            rule("eth?", &[EndpointFlag::Subflow, EndpointFlag::Backup], Family::Any),
            rule("alt-wlan0", &[EndpointFlag::Subflow], Family::Any),
        ];
        let ready: BTreeSet<u32> = [1, 2, 4].into();
        let found = |rules: &[EndpointRule]| {
            let named = named(rules, &nics);
            let (desired, warnings) = endpoints(&named, &ready, &addresses, &[], &mut Ids::default());
            assert!(warnings.is_empty(), "{warnings:?}");
            desired
        };
        let none = found(&[]);
        let found = found(&rules);
        let shown: Vec<String> =
            found.iter().map(|(resource, value)| format!("{resource}: {value}")).collect();
        assert_eq!(
            shown,
            [
                "MPTCP endpoint 10.0.0.1: signal dev 2 id 1",
                "MPTCP endpoint fd00::1: subflow,backup dev 2 id 2",
                "MPTCP endpoint 10.0.2.1: subflow dev 4 id 3"
            ]
        );
        assert!(none.is_empty());
    }

    #[test]
    fn endpoints_that_exchange_ids_move_together() {
        let one = |host: u8, id| {
            let address = IpAddr::from([10, 0, host, 1]);
            Endpoint { id, address, port: None, flags: Endpoint::SUBFLOW, device: u32::from(host) }
        };
        let there = [one(1, 1), one(2, 2), one(3, 3), one(4, 4)];
        let moved = |ids: [u8; 4], fixed: &[u8]| {
            let desired: Desired = (1..)
                .zip(ids)
                .map(|(host, id)| (Resource::endpoint(&one(host, id)), endpoint_text(&one(host, id))))
                .collect();
            let moves = exchanges(&desired, &there, |one| fixed.contains(&one.id));
            let moved = desired.iter().filter(|(resource, _)| moves.contains(resource));
            moved.map(|(resource, text)| endpoint_of(resource, text).unwrap().id).collect::<Vec<_>>()
        };
        assert_eq!(moved([2, 3, 4, 1], &[]), [2, 3, 4, 1]);
        assert_eq!(moved([2, 1, 3, 4], &[]), [2, 1]);
        assert_eq!(moved([2, 5, 3, 4], &[]), [2, 5], "a chain");
        assert!(moved([7, 8, 3, 4], &[]).is_empty(), "nothing waits");
        assert!(moved([2, 3, 4, 1], &[3]).is_empty(), "a cycle with one that stays");
        assert_eq!(moved([2, 5, 4, 3], &[4]), [2, 5]);
    }

    #[test]
    fn laminar_endpoint_stays_without_a_carrier() {
        let nics = [nic(2, "eth0", true), nic(3, "eth1", true), nic(4, "eth2", false)];
        let at = |port, text: &str| HostAddress { port, address: text.parse().unwrap(), usable: true };
        let addresses = [at(2, "10.0.0.1"), at(3, "10.0.1.1"), at(4, "10.0.2.1")];
        let of_kernel = |id: u8, flags| {
            let HostAddress { port, address, .. } = addresses[usize::from(id) - 1];
            Endpoint { id, address, port: None, flags, device: port }
        };
        let kept = |flag, there: &[Endpoint]| {
            let rules = [rule("eth*", &[flag], Family::Any)];
            let (desired, _) =
                endpoints(&named(&rules, &nics), &[].into(), &addresses, there, &mut Ids::default());
            desired.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
        };
        let all = |flags| [of_kernel(1, flags), of_kernel(2, flags), of_kernel(3, flags)];
        let laminar = kept(EndpointFlag::Laminar, &all(Endpoint::LAMINAR));
        assert_eq!(laminar, ["laminar dev 2 id 1", "laminar dev 3 id 2"], "those of interfaces that are up");
        assert!(kept(EndpointFlag::Laminar, &[]).is_empty(), "none is added without a carrier");
        assert!(kept(EndpointFlag::Subflow, &all(Endpoint::SUBFLOW)).is_empty());
    }

    #[test]
    fn rule_gives_its_endpoint_port_and_id() {
        let nics = [nic(2, "eth0", true), nic(3, "eth1", true)];
        let at = |port, text: &str| HostAddress { port, address: text.parse().unwrap(), usable: true };
        let fixed = EndpointRule {
            port: NonZeroU16::new(5201),
            id: NonZeroU8::new(1),
            ..rule("eth1", &[EndpointFlag::Signal], Family::Any)
        };
        let rules = [fixed, rule("eth0", &[EndpointFlag::Laminar], Family::Any)];
        let (found, _) = endpoints(
            &named(&rules, &nics),
            &[2, 3].into(),
            &[at(2, "10.0.0.1"), at(3, "10.0.1.1")],
            &[],
            &mut Ids::default(),
        );
        let shown: Vec<String> =
            found.iter().map(|(resource, value)| format!("{resource}: {value}")).collect();
        assert_eq!(
            shown,
            [
                "MPTCP endpoint 10.0.0.1: laminar dev 2 id 2",
                "MPTCP endpoint 10.0.1.1:5201: signal dev 3 id 1"
            ]
        );
    }

    #[test]
    fn address_of_two_interfaces_is_one_endpoint() {
        let nics = [nic(2, "eth0", true), nic(3, "eth1", true)];
        let at = |port| HostAddress { port, address: "10.0.0.1".parse().unwrap(), usable: true };
        let rules = [rule("eth*", &[EndpointFlag::Signal], Family::Any)];
        for addresses in [[at(2), at(3)], [at(3), at(2)]] {
            let find = |ready: &[u32]| {
                let ready = ready.iter().copied().collect();
                endpoints(&named(&rules, &nics), &ready, &addresses, &[], &mut Ids::default())
            };
            let (desired, warnings) = find(&[2, 3]);
            assert_eq!(
                desired.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(),
                ["signal dev 2 id 1"]
            );
            assert!(warnings.len() == 1 && warnings[0].contains("eth0 and of eth1"), "{warnings:?}");
            let (desired, warnings) = find(&[3]);
            assert_eq!((desired[0].1.as_str(), warnings.len()), ("signal dev 3 id 1", 0));
        }
    }

    #[test]
    fn id_of_a_rule_is_one_endpoint_and_moves_an_automatic_one() {
        let nics = [nic(2, "eth0", true), nic(3, "eth1", true)];
        let at = |port, text: &str| HostAddress { port, address: text.parse().unwrap(), usable: true };
        let fixed =
            EndpointRule { id: NonZeroU8::new(1), ..rule("eth1", &[EndpointFlag::Signal], Family::Any) };
        let rules = [fixed, rule("eth0", &[EndpointFlag::Signal], Family::Any)];
        let addresses = [at(3, "fd00::1"), at(3, "10.0.1.1"), at(2, "10.0.0.1")];
        let automatic =
            Endpoint { id: 1, address: addresses[2].address, port: None, flags: Endpoint::SIGNAL, device: 2 };
        let (desired, warnings) =
            endpoints(&named(&rules, &nics), &[2, 3].into(), &addresses, &[automatic], &mut Ids::default());
        let texts: Vec<&str> = desired.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["signal dev 2 id 2", "signal dev 3 id 1"], "the one that moves is first");
        assert!(
            warnings.len() == 1 && warnings[0].starts_with("fd00::1 has no MPTCP endpoint"),
            "{warnings:?}"
        );
    }
}
