//! What a configuration means in a network namespace as it is now.

use super::cgroups;
use super::item::{Fault, Item, Limit, UPGRADED, endpoint_text, params_text, port_text};
use crate::config::{CgroupRule, Config, EndpointFlag, EndpointRule, Family, Mptcp, Settings, SysctlName};
use std::collections::BTreeMap;
use std::net::IpAddr;
use vmcc_host::{cgroup, live};
use vmcc_netlink::{Endpoint, HostAddress, Links, PortInfo};
use wildmatch::WildMatch;

/// Things and their values.
pub(crate) type Wanted = Vec<(Item, String)>;

pub(crate) fn algorithms(config: &Config) -> Wanted {
    let item = |name: &str| Item::Algorithm(name.to_owned());
    config.algorithms.iter().map(|p| (item(p.algorithm().info().kernel_name), params_text(p))).collect()
}

pub(crate) fn ports(config: &Config) -> Wanted {
    config.ports.iter().map(|(name, config)| (Item::Port(name.clone()), port_text(config))).collect()
}

/// Of the cgroups that are there.
pub(crate) fn cgroups(config: &Config) -> Result<Wanted, Fault> {
    // Who names none has no business with where they are.
    if config.cgroups.is_empty() {
        return Ok(Vec::new());
    }
    let root = cgroup::root()?;
    let mut wanted = BTreeMap::new();
    for rule in &config.cgroups {
        let failed = |source| Fault::File { file: root.display().to_string(), source };
        for path in cgroups::find(&root, &rule.path).map_err(failed)? {
            wanted.entry(path).or_insert(rule);
        }
    }
    Ok(wanted.into_iter().flat_map(|(path, rule)| of_cgroup(path, rule)).collect())
}

/// By the first rule that fits.
fn of_cgroup(path: String, rule: &CgroupRule) -> impl Iterator<Item = (Item, String)> + use<> {
    let upgraded = rule.upgrade.then(|| (Item::Upgrade(path.clone()), UPGRADED.to_owned()));
    let given = rule.congestion_control.clone().map(|name| (Item::Cgroup(path), name));
    upgraded.into_iter().chain(given)
}

/// What is wanted in the calling thread's namespace.
pub(crate) fn settings(settings: &Settings) -> Result<Wanted, Fault> {
    let sysctls = settings.sysctls().into_iter();
    let live = settings.live && live::possible().is_ok();
    let item = |name: SysctlName| match live && name == SysctlName::congestion_control() {
        true => Item::LiveDefault,
        false => Item::Sysctl(name.as_str().to_owned()),
    };
    let mut wanted: Wanted = sysctls.map(|(name, value)| (item(name), value)).collect();
    wanted.extend(limits(&settings.mptcp));
    if !settings.mptcp.endpoints.is_empty() {
        let failed = |source| Fault::Netlink { action: "list addresses", source };
        let mut links = Links::open().map_err(failed)?;
        let (nics, addresses) = (links.list().map_err(failed)?, links.addresses().map_err(failed)?);
        wanted.extend(endpoints(&settings.mptcp.endpoints, &nics, &addresses));
    }
    Ok(wanted)
}

/// A limit that is not given is somebody else's.
fn limits(mptcp: &Mptcp) -> Wanted {
    let given = [(Limit::Subflows, mptcp.subflows), (Limit::Accept, mptcp.accept)];
    given.into_iter().filter_map(|(which, limit)| Some((Item::Limit(which), limit?.to_string()))).collect()
}

/// The addresses that can be used now on interfaces that are up, each by the first rule that fits.
fn endpoints(rules: &[EndpointRule], nics: &[PortInfo], addresses: &[HostAddress]) -> Wanted {
    let endpoint = |found: &HostAddress| {
        let nic = nics.iter().find(|nic| nic.index == found.port && nic.up)?;
        let rule = rules.iter().find(|rule| fits(rule, nic, found.address))?;
        let flags = rule.flags.iter().map(|flag| bit(*flag)).fold(0, std::ops::BitOr::bitor);
        Some((Item::Endpoint(found.address), endpoint_text(flags, nic.index)))
    };
    addresses.iter().filter(|address| address.usable).filter_map(endpoint).collect()
}

fn fits(rule: &EndpointRule, nic: &PortInfo, address: IpAddr) -> bool {
    let pattern = WildMatch::new(&rule.nic);
    let named = pattern.matches(&nic.name) || nic.other_names.iter().any(|name| pattern.matches(name));
    named
        && match rule.family {
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
            up,
        }
    }

    fn rule(nic: &str, flags: &[EndpointFlag], family: Family) -> EndpointRule {
        EndpointRule { nic: nic.to_owned(), flags: flags.to_vec(), family }
    }

    #[test]
    fn a_limit_that_the_file_does_not_name_is_not_ours() {
        let mptcp = |subflows, accept| Mptcp { subflows, accept, endpoints: Vec::new() };
        assert_eq!(limits(&mptcp(Some(3), None)), [(Item::Limit(Limit::Subflows), "3".to_owned())]);
        let both = limits(&mptcp(Some(3), Some(0)));
        assert_eq!(both[1], (Item::Limit(Limit::Accept), "0".to_owned()));
        assert_eq!((both.len(), limits(&mptcp(None, None)).len()), (2, 0));
    }

    #[test]
    fn addresses_are_endpoints_by_the_first_rule_that_fits() {
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
        let found = endpoints(&rules, &nics, &addresses);
        let shown: Vec<String> = found.iter().map(|(item, value)| format!("{item}: {value}")).collect();
        assert_eq!(
            shown,
            [
                "MPTCP endpoint 10.0.0.1: signal dev 2",
                "MPTCP endpoint fd00::1: subflow,backup dev 2",
                "MPTCP endpoint 10.0.2.1: subflow dev 4"
            ]
        );
        assert!(endpoints(&[], &nics, &addresses).is_empty());
    }
}
