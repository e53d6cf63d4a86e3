//! Reading TOML so that errors point at the key that caused them: for other configuration in the scenario
//! language's words.

pub use crate::load::source::{MAX_BYTES, Source};
pub use crate::load::sweep::shell_word;
pub use crate::schema::sorted;
