//! Departure time of each packet of data from a port, as the kernel stamped it behind it.

use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, setsockopt,
    socket, sockopt,
};
use nix::sys::time::{TimeSpec, TimeVal};
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use vmcc_testkit::netns::Namespace;

/// Of an Ethernet frame; the rest is what the socket hands over.
const LINK_HEADER_BYTES: usize = 14;
/// More than IPv4 and TCP headers can be.
const SNAP_BYTES: usize = 128;
/// A second of 1 Gbit/s, whatever keeps this process from its processor.
const BUFFER_BYTES: usize = 128 << 20;

/// A packet of TCP with data.
#[derive(Debug, Clone, Copy)]
pub struct Departure {
    pub at_ns: u64,
    /// Destination port.
    pub port: u16,
    /// On the wire.
    pub bytes: u64,
}

/// Watches until it is stopped.
pub struct Capture {
    stop: Arc<AtomicBool>,
    seen: JoinHandle<Vec<Departure>>,
}

impl Capture {
    /// Of all that arrives in the namespace.
    pub fn start(namespace: &Namespace) -> Self {
        let open =
            || socket(AddressFamily::Packet, SockType::Datagram, SockFlag::empty(), SockProtocol::EthAll);
        let socket = namespace.within(open).expect("a packet socket");
        setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).expect("a long buffer");
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true).expect("times of packets");
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, 50_000)).expect("a timeout");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let seen = thread::spawn(move || {
            let mut seen = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                seen.extend(receive(&socket));
            }
            seen
        });
        Self { stop, seen }
    }

    /// In the order of their departure.
    pub fn stop(self) -> Vec<Departure> {
        self.stop.store(true, Ordering::Relaxed);
        self.seen.join().expect("the capture goes on until it is stopped")
    }
}

/// The next packet; `None` if it is of no interest, or none comes for a while.
fn receive(socket: &OwnedFd) -> Option<Departure> {
    let mut buffer = [0; SNAP_BYTES];
    let mut stamps = nix::cmsg_space!(TimeSpec);
    let mut pieces = [IoSliceMut::new(&mut buffer)];
    let message =
        recvmsg::<()>(socket.as_raw_fd(), &mut pieces, Some(&mut stamps), MsgFlags::MSG_TRUNC).ok()?;
    let whole = message.bytes;
    let at_ns = message.cmsgs().expect("all of it").find_map(|stamp| match stamp {
        ControlMessageOwned::ScmTimestampns(at) => {
            Some(u64::try_from(at.tv_sec()).ok()? * 1_000_000_000 + u64::try_from(at.tv_nsec()).ok()?)
        }
        _ => None,
    });
    let port = data_packet(&buffer[..whole.min(SNAP_BYTES)])?;
    Some(Departure { at_ns: at_ns?, port, bytes: (whole + LINK_HEADER_BYTES) as u64 })
}

/// Destination port of an IPv4 packet, if it is TCP and has data.
fn data_packet(packet: &[u8]) -> Option<u16> {
    let header = usize::from(packet.first()? & 15) * 4;
    if packet[0] >> 4 != 4 || *packet.get(9)? != 6 {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    let tcp = packet.get(header..)?;
    let tcp_header = usize::from(*tcp.get(12)? >> 4) * 4;
    (total > header + tcp_header).then(|| u16::from_be_bytes([tcp[2], tcp[3]]))
}
