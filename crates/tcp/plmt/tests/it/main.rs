//! Sessions over loopback sockets, and between network namespaces.

mod hostile;
mod pair;
mod pipes;
mod root_carriers;
mod sessions;
