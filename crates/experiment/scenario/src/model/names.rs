//! Senders and receivers of traffic, by the names that a topology gives.

use wildmatch::WildMatch;

use super::Scenario;
use super::traffic::{Traffic, TrafficKind};

impl Scenario {
    /// The hosts that send an entry of traffic, and those that receive it, in the topology's order.
    ///
    /// A pattern that matches no host contributes none; validation refuses it.
    pub fn endpoints(&self, traffic: &Traffic) -> (Vec<String>, Vec<String>) {
        let (common, kind) = (&traffic.common, self.topology.as_kind());
        let ends = kind.ends();
        // A load is a load of every host where any host reaches any other.
        let everybody =
            kind.is_symmetric() && matches!(traffic.kind, TrafficKind::Poisson(_) | TrafficKind::Flows(_));
        let all = 0..ends.hosts.len();
        let (senders, receivers) =
            if everybody { (all.clone(), all) } else { (ends.senders.clone(), ends.receivers.clone()) };
        let chosen = |patterns: Option<&[String]>, default: std::ops::Range<usize>| match patterns {
            Some(patterns) => matching(&ends.hosts, patterns),
            None => ends.hosts[default].to_vec(),
        };
        let patterns = |of: &'_ Option<super::OneOrMany>| of.as_ref().map(|list| list.0.clone());
        let (from, to) = (patterns(&common.from), patterns(&common.to));
        (chosen(from.as_deref(), senders), chosen(to.as_deref(), receivers))
    }
}

/// The hosts that match any of the patterns.
pub(crate) fn matching(hosts: &[String], patterns: &[String]) -> Vec<String> {
    let patterns: Vec<WildMatch> = patterns.iter().map(|p| WildMatch::new(p)).collect();
    hosts.iter().filter(|host| patterns.iter().any(|p| p.matches(host))).cloned().collect()
}
