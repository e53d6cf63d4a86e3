//! Advice on multipath: whether several paths help an application on this host, by how much, with which settings, and why a
//! connection has only one.
//!
//! | | |
//! |---|---|
//! | [`Facts`] | the host, the way to a peer, and the application, as data |
//! | [`gather`] | reads them; [`gather::watch()`] derives the application from running connections |
//! | [`advise()`] | facts to [`Advice`]: a pure function, whose numbers come from docs/evidence |
//!
//! Nothing here changes the host. [`Advice::file`] is for the agent.

pub mod facts;
pub mod gather;
mod rules;

pub use facts::Facts;
pub use rules::{Advice, Cause, CauseCode, Gain, Reason, Scope, Setting, Verdict, advise};
