//! vmcc lab.
