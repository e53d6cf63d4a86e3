//! Configuration files: bounded reading, TOML with a position for every key, strict typed decoding, and diagnostics.
//!
//! Scenarios, the agent's file and a port's file are read by this crate, and so have the same messages. The marking rules and
//! queueing disciplines, which all three name, are here too.
//!
//! ```
//! use serde::Deserialize;
//! use vmcc_config::Source;
//!
//! #[derive(Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Config {
//!     interval: String,
//! }
//!
//! let source = Source::parse("vmcc.toml", "intervall = '1s'").unwrap();
//! let diagnostic = source.decode::<Config>().err().unwrap();
//! assert_eq!(diagnostic.help.as_deref(), Some("did you mean `interval`?"));
//! ```

mod decode;
mod diagnostic;
mod files;
mod queueing;
mod schema;
mod source;
mod suggest;
pub mod tagged;

pub use decode::{BadValue, decode, join};
pub use diagnostic::{Diagnostic, Place};
pub use files::{ReadError, allow_open_files, open_regular, read, read_regular};
pub use queueing::{Discipline, LambdaRule, Marking, RedRule, ThresholdRule};
pub use schema::sorted;
pub use source::{MAX_BYTES, Source};
pub use suggest::{did_you_mean, nearest};
