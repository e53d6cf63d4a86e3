//! The vmcc command line.
fn main() {}
