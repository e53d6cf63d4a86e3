//! Delay after which a network with several routes avoids a link that fails.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmcc_units::Nanos;

/// Time from a link's failure, or repair, until routes have followed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a time such as \"150ms\", or \"never\"")]
pub enum Reroute {
    /// Detection delay: what hashed onto a dead link is hashed over the live ones after it.
    After(Nanos),
    /// Routes stay as they are: what hashed onto a dead link is lost until the link is back.
    Never(Never),
}

/// The word for no rerouting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Never {
    /// `never`.
    #[serde(rename = "never")]
    Never,
}

impl Default for Reroute {
    /// BFD (RFC 5880) with three packets 50 ms apart.
    fn default() -> Self {
        Self::After(Nanos::from_millis(150))
    }
}

impl Reroute {
    /// The detection delay; `None`: never.
    pub fn delay(self) -> Option<Nanos> {
        match self {
            Self::After(delay) => Some(delay),
            Self::Never(Never::Never) => None,
        }
    }
}
