//! vmcc host: what vmcc does to a running kernel.
//!
//! The only crate that talks BPF: it loads the algorithms, marks on ports, probes what a kernel can do and reads
//! its sockets. Network namespaces, links and traffic belong to `vmcc-lab`.

pub mod diag;
