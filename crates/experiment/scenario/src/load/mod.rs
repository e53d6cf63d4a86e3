//! From text to typed cases: read with places, override, sweep, decode, validate.

pub(crate) mod apply;
pub(crate) mod document;
pub(crate) mod keys;
mod recorded;
mod scale;
pub(crate) mod set_option;
pub(crate) mod sweep;
