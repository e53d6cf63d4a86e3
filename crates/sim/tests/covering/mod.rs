//! The design, its points, and the laws.

pub mod design;
pub mod laws;
pub mod point;
