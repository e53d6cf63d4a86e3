//! An algorithm with its parameters in an order: its name, which the program that reads the order resolves, and the values as C has them.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use vmcc_cc::{Algorithm, MAX_PARAMS, Params};

pub(super) fn serialize<S: Serializer>(params: &Params, serializer: S) -> Result<S::Ok, S::Error> {
    (params.algorithm().name(), params.raw()).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Params, D::Error> {
    let (name, raw) = <(String, [u64; MAX_PARAMS])>::deserialize(deserializer)?;
    let algorithm = Algorithm::by_name(&name).map_err(D::Error::custom)?;
    Ok(Params::from_raw(algorithm, raw))
}
