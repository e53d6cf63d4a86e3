//! The scenario language: messages, schema, robustness.

mod contract;
mod linear;
mod messages;
mod recorded;
mod robust;
mod schema;
