//! Relays of a command line, with their secrets.

use crate::args::RelayOptions;
use crate::failure::{Failure, chain};
use vmcc_apps::relays::{NamedRelay, with_secrets};

pub(super) fn find(options: &RelayOptions) -> Result<Vec<NamedRelay>, Failure> {
    let found = with_secrets(&options.relays, options.relay_secrets.as_deref());
    found.map_err(|error| Failure::usage(chain(&error)))
}
