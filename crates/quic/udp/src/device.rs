//! By which interface packets leave.

use std::os::fd::AsFd;

/// Packets of this socket leave by this interface, whatever the routing table says of their destination. Linux allows it to everybody from
/// 5.7 on; where it does not, or there is no such interface, the routing table decides.
#[cfg(target_os = "linux")]
pub fn bind_device(socket: &impl AsFd, interface: &str) {
    use nix::sys::socket::{setsockopt, sockopt::BindToDevice};
    // No name would undo what was said before.
    if !interface.is_empty() {
        let _ = setsockopt(socket, BindToDevice, &interface.into());
    }
}

/// Packets of this socket leave by this interface, whatever the routing table says of their destination. Where there is no such interface,
/// the routing table decides.
#[cfg(target_os = "macos")]
pub fn bind_device(socket: &impl AsFd, interface: &str) {
    let index = nix::net::if_::if_nametoindex(interface).ok().and_then(std::num::NonZeroU32::new);
    let socket = socket2::SockRef::from(socket);
    // A socket of the one family refuses the other's.
    if index.is_some() && socket.bind_device_by_index_v4(index).is_err() {
        let _ = socket.bind_device_by_index_v6(index);
    }
}
