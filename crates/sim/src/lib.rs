//! vmcc sim.
