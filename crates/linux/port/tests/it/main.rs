//! Port configurations: plans, messages, robustness.

mod messages;
mod plan;
mod render;
mod robust;
