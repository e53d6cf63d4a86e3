//! Ports of virtual switches as the command line speaks of them: options in, tables out.

mod classes;
#[cfg(feature = "kernel")]
pub(crate) mod live;
pub(crate) mod options;
#[cfg(feature = "kernel")]
pub(crate) mod said;
#[cfg(feature = "kernel")]
pub(crate) mod show;
