//! The scenario language: typed TOML in, checked cases and claims out. Nothing is run here.
//!
//! [`Document`] is a file that was read and found valid; [`Document::plan`] gives its cases after scale,
//! overrides and sweep; [`Scenario`] is what an engine reads.
//!
//! ```
//! use vmcc_scenario::{Document, Overrides};
//!
//! let document = Document::open("demo")?;
//! let plan = document.plan(&Overrides { set: vec!["duration=11s".into()], ..Overrides::default() })?;
//! assert!(plan.cases.len() > 1);
//! # Ok::<(), vmcc_scenario::ScenarioError>(())
//! ```

pub mod builtin;
mod claim;
mod error;
mod load;
pub mod model;
pub mod papers;
mod plan;
mod schema;
pub mod sizes;
mod validate;
mod value;

pub use claim::{Bound, CaseFigures, Claim, ClaimError, Verdict, metrics};
pub use error::ScenarioError;
pub use load::document::Document;
pub use load::sweep::shell_word;
pub use model::{ClaimSpec, Scenario};
pub use plan::{Overrides, Plan, ResolvedCase, Scale};
pub use schema::schema;
pub use validate::CongestionControl;
