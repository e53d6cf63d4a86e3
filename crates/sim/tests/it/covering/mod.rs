//! The design, its points, and the laws.

pub(crate) mod design;
pub(crate) mod laws;
pub(crate) mod point;
