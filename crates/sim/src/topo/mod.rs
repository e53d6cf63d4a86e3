//! Topology builders.

mod fabric;
mod fat_tree;
mod graph;
mod queue;
mod simple;
mod tree;
mod two_pod;
mod virtual_host;

pub use fabric::{Fabric, FabricError, NamedPath, Way};
pub use fat_tree::{FatTree, FatTreeError, FatTreeSpec};

pub(crate) use fabric::{Router, span};
pub(crate) use queue::loss;
pub(crate) use virtual_host::through;

#[cfg(test)]
mod tests;
