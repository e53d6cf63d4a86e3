//! Facts and advice of real network namespaces.

mod causes;
mod watch;
mod world;
