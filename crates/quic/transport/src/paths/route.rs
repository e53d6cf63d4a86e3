//! Addresses of a path.

use std::net::SocketAddr;

/// From where to where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route {
    /// Here.
    pub local: SocketAddr,
    /// There.
    pub remote: SocketAddr,
}
