//! Subnets and subflows that an entry of traffic asks for.

use crate::Error;
use crate::spec::Path;
use vmcc_scenario::Scenario;
use vmcc_scenario::model::Traffic;

pub(super) fn subflows(scenario: &Scenario, traffic: &Traffic) -> Option<u32> {
    traffic.common.subflows.or(scenario.host.subflows)
}

pub(super) fn named(traffic: &Traffic, paths: &[Path], key: &str) -> Result<Vec<usize>, Error> {
    let number = |name: &String| {
        let found = paths.iter().position(|path| path.name == *name);
        found.ok_or_else(|| Error::spec(key, format!("there is no path {name:?}")))
    };
    traffic.common.path.iter().flat_map(|names| &names.0).map(number).collect()
}

pub(super) fn subnet_on(path: usize, subnets: &[usize], key: &str) -> Result<usize, Error> {
    let subnet = subnets.iter().position(|of_subnet| *of_subnet == path);
    subnet.ok_or_else(|| Error::spec(key, "no vNIC uses this path, or it does not join these hosts"))
}
