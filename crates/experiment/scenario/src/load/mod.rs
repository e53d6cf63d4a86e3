//! From text to typed cases: read with places, override, sweep, decode, validate.

pub(crate) mod apply;
mod beside;
pub(crate) mod document;
mod flow_list;
pub(crate) mod keys;
mod recorded;
mod scale;
pub(crate) mod set_option;
mod sizes;
pub(crate) mod sweep;
mod text_file;
