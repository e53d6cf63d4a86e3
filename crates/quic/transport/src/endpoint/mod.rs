//! Endpoint: demultiplexes datagrams to connections by connection id, admits clients, and sends stateless replies.

mod demux;
mod stateless;
mod token;

pub use demux::{Endpoint, Handle, Retry, Server};
