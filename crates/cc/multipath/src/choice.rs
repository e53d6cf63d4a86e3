//! Choices of a connection with several paths, by the names that scenarios give them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path of the acknowledgments of a multipath connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AckPath {
    /// Each subflow's on its own path, as MPTCP's.
    Own,
    /// All on the path with the lowest RTT, as the receiver measures it (mTCP).
    Best,
    /// All on the first subflow's path.
    Fixed,
}

/// Congestion windows of a QUIC connection: one per path, or one for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Coupling {
    /// Each has one, which the algorithm may couple with the others (mTCP's "separate").
    #[default]
    Separate,
    /// One window for all of them, which a loss on any reduces (mTCP's "combined"); the algorithm has one path then, and a detector
    /// of shared bottlenecks nothing to compare.
    Combined,
}
