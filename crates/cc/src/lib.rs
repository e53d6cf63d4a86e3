//! vmcc cc.
