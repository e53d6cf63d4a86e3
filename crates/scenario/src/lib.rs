//! The scenario language: typed TOML in, checked cases and claims out. Nothing is run here.
//!
//! Start with [`Document`] (a checked file) and [`Document::plan`] (its cases after overrides, scale and
//! sweep); [`Scenario`] is what an engine reads.

pub mod model;
mod plan;
pub mod sizes;

pub use model::{ClaimSpec, Scenario};
pub use plan::{Overrides, Plan, ResolvedCase, Scale};
