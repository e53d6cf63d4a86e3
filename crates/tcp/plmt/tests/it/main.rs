//! Sessions over loopback sockets.

mod hostile;
mod pair;
mod pipes;
mod sessions;
