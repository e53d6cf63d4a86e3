//! Congestion control: the algorithms of the registry, driven as Linux and the simulator drive them, over what QUIC tells.
//!
//! Modelled: the recovery states of Linux, proportional rate reduction, growth only where the window limits. A reduction lasts until a
//! packet is acknowledged that was sent after its beginning (RFC 9002 section 7.3.2); persistent congestion (section 7.6) is what a
//! retransmission timeout is in TCP. Packets are those of the path's present size; marks are counted by ACK_ECN exactly. Whose window it is,
//! a path's or the connection's, says `windows`.

mod window;
mod windows;

pub(crate) use window::{Acked, Advice, CcContext, Window};
pub(crate) use windows::Windows;
