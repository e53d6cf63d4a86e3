//! Topology builders.

mod fat_tree;

pub use fat_tree::{FatTree, FatTreeError, FatTreeSpec};
