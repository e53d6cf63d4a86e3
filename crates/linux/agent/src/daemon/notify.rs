//! Telling the service manager that started us.

use sd_notify::NotifyState;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

const SOCKET: &str = "NOTIFY_SOCKET";

/// It does without what it is not told.
pub(super) fn notify(states: &[NotifyState<'_>]) {
    let socket = std::env::var_os(SOCKET).unwrap_or_default();
    let _ = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => to_abstract(OsStr::from_bytes(name), states),
        None => sd_notify::notify(states),
    };
}

/// The library reaches only sockets that have a path.
fn to_abstract(name: &OsStr, states: &[NotifyState<'_>]) -> io::Result<()> {
    let text: String = states.iter().map(|state| format!("{state}\n")).collect();
    let address = SocketAddr::from_abstract_name(name.as_bytes())?;
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifies_an_abstract_socket() {
        let name = format!("vmcc-notify-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        to_abstract(OsStr::new(&name), &[NotifyState::Ready, NotifyState::Watchdog]).unwrap();
        let mut bytes = [0; 64];
        let length = manager.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"READY=1\nWATCHDOG=1\n");
        to_abstract(OsStr::new(&(name + "-none")), &[NotifyState::Ready]).expect_err("nobody listens there");
    }
}
