//! vmcc scenario.
