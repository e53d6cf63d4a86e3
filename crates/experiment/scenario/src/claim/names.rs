//! The metrics a claim may ask for, and the axes it may select by.

use std::collections::BTreeSet;

use serde_json::Value;
use vmcc_metrics::catalogue::{self, Metric, Place, SIZES};
use vmcc_network::LinkId;

use super::{BadClaim, Filter, Selector};
use crate::model::{Scenario, Traffic};
use crate::value::plain;
use vmcc_config::did_you_mean;

/// Names of every metric that a run of the scenario can have.
pub fn metrics(scenario: &Scenario) -> Vec<String> {
    let of = |place: Place, at: &str| -> Vec<String> {
        let names = catalogue::of(place).flat_map(Metric::figure_names);
        names.map(|name| format!("{at}{name}")).collect()
    };
    let mut all = of(Place::Run, "");
    for path in scenario.topology.paths() {
        all.extend(of(Place::Path, &format!("paths.{path}.")));
        for class in scenario.topology.as_kind().path_classes() {
            all.extend(of(Place::Class, &format!("paths.{path}.class.{class}.")));
        }
    }
    let network = scenario.topology.network();
    let links = (0..network.links.len()).map(|link| LinkId(link as u32));
    for tier in links.filter_map(|link| network.tier(link)).collect::<BTreeSet<_>>() {
        all.extend(of(Place::Tier, &format!("tier.{tier}.")));
    }
    for (range, _) in SIZES {
        all.extend(of(Place::Size, &format!("size.{range}.")));
    }
    for label in Traffic::labels(&scenario.traffic) {
        all.extend(of(Place::Traffic, &format!("traffic.{label}.")));
    }
    all
}

pub(super) fn check(
    selector: &Selector,
    scenario: &Scenario,
    axes: &[(String, Vec<Value>)],
) -> Result<(), BadClaim> {
    let metrics = metrics(scenario);
    if !metrics.contains(&selector.metric) {
        return Err(BadClaim {
            offset: selector.metric_at,
            length: selector.metric.len(),
            message: format!("there is no metric `{}`", selector.metric),
            help: did_you_mean(&selector.metric, metrics.iter().map(String::as_str)),
        });
    }
    if let Some((axis, at)) = &selector.axis {
        find_axis(axis, *at, axes)?;
    }
    selector.filters.iter().try_for_each(|filter| check_filter(filter, axes))
}

fn find_axis<'a>(key: &str, at: usize, axes: &'a [(String, Vec<Value>)]) -> Result<&'a [Value], BadClaim> {
    axes.iter().find(|(axis, _)| axis == key).map(|(_, values)| values.as_slice()).ok_or_else(|| {
        let names: Vec<&str> = axes.iter().map(|(axis, _)| axis.as_str()).collect();
        let known = if names.is_empty() { "the scenario has no sweep".into() } else { names.join(", ") };
        BadClaim {
            offset: at,
            length: key.len(),
            message: format!("`{key}` is not an axis of the sweep ({known})"),
            help: did_you_mean(key, names),
        }
    })
}

fn check_filter(filter: &Filter, axes: &[(String, Vec<Value>)]) -> Result<(), BadClaim> {
    let values = find_axis(&filter.key, filter.key_at, axes)?;
    if super::evaluate::contains(values, &filter.value) {
        return Ok(());
    }
    let known: Vec<String> = values.iter().map(plain).collect();
    let wanted = plain(&filter.value);
    Err(BadClaim {
        offset: filter.value_at,
        length: wanted.len(),
        message: format!("`{}` never is `{wanted}` in the sweep (it is {})", filter.key, known.join(", ")),
        help: did_you_mean(&wanted, known.iter().map(String::as_str)),
    })
}
