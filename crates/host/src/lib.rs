//! vmcc host.
