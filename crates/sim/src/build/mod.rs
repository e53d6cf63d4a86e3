//! A network's description as the simulator's ports and source routes.

mod error;
mod fabric;
mod net;
mod partition;
mod queue;

pub use error::FabricError;
pub use fabric::Fabric;
pub use net::net_spec;
pub use partition::partition;

pub(crate) use queue::loss;

#[cfg(test)]
mod tests;

pub(crate) fn span(time: vmcc_units::Nanos) -> crate::time::Span {
    crate::time::Span::from_ns(time.get())
}
