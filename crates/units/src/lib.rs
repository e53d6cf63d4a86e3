//! vmcc units.
