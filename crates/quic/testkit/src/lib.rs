//! Ends of QUIC connections for tests, examples and fuzzing.

#[cfg(all(feature = "tls", target_os = "linux", target_env = "gnu"))]
pub mod crowd;
pub mod pair;
#[cfg(feature = "tls")]
pub mod tls;
