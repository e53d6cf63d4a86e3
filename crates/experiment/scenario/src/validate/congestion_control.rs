//! Algorithms that a scenario names, resolved once: engines take parameters, and meet no name that nobody knows.

use std::sync::Arc;

use vmcc_cc::{Algorithm, Params};
use vmcc_config::BadValue;

use super::fault;
use crate::model::Host;

/// Congestion control of an entry of traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct CongestionControl {
    /// Name, as the scenario has it.
    pub name: Arc<str>,
    /// The algorithm, of the registry or of a file of the user's own, and the values that the scenario gives its parameters.
    pub params: Params,
}

impl CongestionControl {
    /// The one that the key `path` names.
    pub(super) fn resolve(host: &Host, name: &str, path: &str) -> Result<Arc<Self>, BadValue> {
        let params = params(host, algorithm(name, path)?)?;
        Ok(Arc::new(Self { name: name.into(), params }))
    }
}

/// The algorithm that the key `path` names.
pub(super) fn algorithm(name: &str, path: &str) -> Result<Algorithm, BadValue> {
    Algorithm::by_name(name).map_err(|error| fault(path, error.to_string()))
}

/// `algorithm` with the values that [`Host::params`] has under either of its names.
pub(super) fn params(host: &Host, algorithm: Algorithm) -> Result<Params, BadValue> {
    let mut params = Params::defaults(algorithm);
    for own in [algorithm.info().kernel_name, algorithm.name()] {
        for (name, value) in host.params.get(own).into_iter().flatten() {
            let set = params.set(name, value);
            set.map_err(|error| fault(format!("host.params.{own}.{name}"), error.to_string()))?;
        }
    }
    Ok(params)
}
