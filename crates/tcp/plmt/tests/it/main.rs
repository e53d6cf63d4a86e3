//! Sessions over loopback sockets.

mod hostile;
mod pair;
mod sessions;
