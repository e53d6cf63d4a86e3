//! The engine over networks that are simulated, and against other implementations over real ones.

mod arbitrary;
mod corners;
mod coupling;
mod cuts;
mod datagrams;
mod features;
mod heal;
mod interop;
mod link;
mod lossy;
mod marks;
mod multipath;
mod net;
mod pair;
mod qlog;
mod resets;
mod silent;
mod tls;
mod udp;
