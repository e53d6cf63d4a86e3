//! The scenario language: messages, schema, robustness.

mod contract;
mod flow_lists;
mod linear;
mod messages;
mod recorded;
mod robust;
mod schema;
mod size_files;
