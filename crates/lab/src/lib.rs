//! The kernel engine's lab: real kernels, real programs, real packets.
//!
//! [`run`] builds what a [`LabSpec`] asks for out of network namespaces, sends with `iperf3`, samples the
//! kernel while it runs, and returns what it measured. Everything that it makes is named after the run, written
//! into a record before it is made, and removed on return, error and panic; what a killed run leaves is removed
//! by [`clean`].
//!
//! | module | |
//! |---|---|
//! | `spec`, `convert` | the input, and how a scenario's case becomes one |
//! | `topology` | namespaces, bridges, addresses, MPTCP endpoints |
//! | `ports` | the virtual switches' ports: rates, queues, marks |
//! | `workload`, `sampler` | traffic, and what the kernel says meanwhile |
//! | `traffic_gen` | ends of QUIC traffic over the user-space transport |
//! | `userspace_link` | delay and loss where the kernel has no netem |
//! | `vm` | hosts that are virtual machines, which are off now and then |
//! | `measure`, `cpu`, `energy`, `instructions` | the figures: exactly what each is |
//! | [`engine`] | the lab as an engine beside the simulator, on this host or in a guest |
//! | [`bench`] | what the kernel programs cost, and whether they work here |
//! | `run`, `algorithms`, `clock` | one run; what it loads; its time and the grid of its samples |
//! | `netns`, `process`, `registry` | what exists while a run lives |
//! | `clean` | removal of what killed runs left |

mod algorithms;
pub mod bench;
mod clean;
mod clock;
mod convert;
mod cpu;
mod energy;
pub mod engine;
mod error;
mod guard;
pub mod guest;
mod instructions;
mod measure;
mod netns;
mod ports;
mod process;
mod registry;
mod rng;
mod run;
mod sampler;
mod spec;
mod throttle;
mod topology;
mod traffic_gen;
mod userspace_link;
mod vm;
mod workload;

pub use clean::{Busy, Cleaned, clean};
pub use convert::OWN_DELAY;
pub use error::{Error, ErrorKind};
pub use measure::TOO_BUSY;
pub use netns::Netns;
pub use run::{Control, Progress, run};
pub use spec::{
    Cc, Cut, Deschedule, Direction, Flow, Generating, Job, LabSpec, Layout, Lengths, Machines, OfPaths, Path,
    Probing, Quic, Remap, Requests, Role, Routed, RoutedLink, Shape, Sharing, Throttle, Transport,
    VirtualHost, Wire,
};
pub use vm::{VirtualMachine, sender};
pub use vmcc_network::Guarantee;
pub use workload::{Programs, quic_end};
