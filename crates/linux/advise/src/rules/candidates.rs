//! Interfaces that can be paths.

use crate::facts::{Facts, Nic, Path};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Interfaces that have an address of the peer's family, TCP's first. One that is down counts: it can be brought up.
pub(super) struct Candidates<'a> {
    nics: Vec<&'a Nic>,
}

impl<'a> Candidates<'a> {
    pub(super) fn of(facts: &'a Facts) -> Self {
        let mut nics: Vec<&Nic> = facts.nics.iter().filter(|nic| address(facts, nic).is_some()).collect();
        if let Some(first) = nics.iter().position(|nic| Some(&nic.name) == facts.first_nic.as_ref()) {
            nics[..=first].rotate_right(1);
        }
        Self { nics }
    }

    /// All, TCP's path first.
    pub(super) fn all(&self) -> &[&'a Nic] {
        &self.nics
    }

    /// TCP's path.
    pub(super) fn first(&self) -> Option<&'a Nic> {
        self.nics.first().copied()
    }

    /// The others.
    pub(super) fn further(&self) -> &[&'a Nic] {
        self.nics.get(1..).unwrap_or_default()
    }

    pub(super) fn several(&self) -> bool {
        self.nics.len() > 1
    }

    /// True if several are up.
    pub(super) fn several_running(&self) -> bool {
        self.nics.iter().filter(|nic| nic.running).count() > 1
    }

    /// True if all are parts of one interface.
    pub(super) fn share_one(&self) -> bool {
        self.several() && self.links().len() == 1
    }

    /// Links below them, each once.
    fn links(&self) -> BTreeSet<&'a str> {
        self.nics.iter().map(|nic| link(nic)).collect()
    }

    /// Rate of TCP's path, and of all together: parts of one interface count once. `None` if one is not known.
    pub(super) fn rates_bps(&self) -> Option<(u64, u64)> {
        let first = self.first()?.rate_bps?;
        let mut total = 0_u64;
        for of in self.links() {
            let parts = self.nics.iter().filter(|nic| link(nic) == of);
            total = total.saturating_add(parts.map(|nic| nic.rate_bps).max().flatten()?);
        }
        self.nics.iter().all(|nic| nic.rate_bps.is_some()).then_some((first, total))
    }

    /// Names of those whose rate is not known.
    pub(super) fn unknown_rates(&self) -> Vec<&'a str> {
        self.nics.iter().filter(|nic| nic.rate_bps.is_none()).map(|nic| nic.name.as_str()).collect()
    }

    /// Number of links that do not share their rate.
    pub(super) fn apart(&self) -> usize {
        self.links().len()
    }
}

fn link(nic: &Nic) -> &str {
    nic.lower.as_deref().unwrap_or(&nic.name)
}

/// Address of the interface in the peer's family, or any.
pub(super) fn address(facts: &Facts, nic: &Nic) -> Option<IpAddr> {
    let remotes = facts.peer_addresses();
    let fits = |local: &IpAddr| {
        remotes.is_empty() || remotes.iter().any(|remote| remote.is_ipv4() == local.is_ipv4())
    };
    nic.addresses.iter().copied().find(fits)
}

/// Paths of an interface.
pub(super) fn paths<'a>(facts: &'a Facts, nic: &'a Nic) -> impl Iterator<Item = &'a Path> {
    facts.paths.iter().filter(move |path| path.nic == nic.name)
}

/// Round-trip time of the paths that have a route of their own: least of each interface, and of these the largest.
pub(super) fn largest_rtt_us(facts: &Facts, candidates: &Candidates<'_>) -> Option<u64> {
    let least = |nic: &Nic| {
        let own = paths(facts, nic).filter(|path| path.route.is_own());
        own.filter_map(|path| path.rtt_us).min()
    };
    candidates.nics.iter().filter_map(|nic| least(nic)).max()
}
