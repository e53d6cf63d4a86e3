//! Algorithms that are loaded for the time of a run.

use crate::Error;
use crate::spec::{Cc, Flow};
use std::collections::BTreeMap;
use vmcc_bpf::Loaded;

/// Loads each algorithm of the registry once.
pub(crate) fn load<'a>(flows: impl Iterator<Item = &'a Flow>) -> Result<Vec<Loaded>, Error> {
    let mut wanted = BTreeMap::new();
    for flow in flows {
        if let Cc::Registry(params) = &flow.cc {
            let other = wanted.insert(params.algorithm().name(), *params);
            if other.is_some_and(|other| other != *params) {
                let key = format!("traffic[{}].cc", flow.label);
                let problem =
                    format!("{} is used with two sets of parameters in one run", params.algorithm());
                return Err(Error::spec(key, problem));
            }
        }
    }
    let load = |(name, params): (&str, vmcc_cc::Params)| {
        Loaded::load(params.algorithm(), &params)
            .map_err(|e| Error::CongestionControl { name: name.to_owned(), cause: e.to_string() })
    };
    wanted.into_iter().map(load).collect()
}
