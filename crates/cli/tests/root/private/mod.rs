//! Tests that load no algorithm. Each module has a `/run` and a BPF file system of its own.

mod advise;
mod carriers;
mod copy;
mod mark;
mod mark_budget;
mod mark_classes;
mod mark_faults;
mod mark_killed;
mod mark_names;
mod mark_truth;
mod relay;
