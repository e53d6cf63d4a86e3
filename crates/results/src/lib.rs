//! vmcc results.
