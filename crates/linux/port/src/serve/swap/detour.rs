//! The devices through which held packets go: a veth pair with a token bucket that is shut.

use super::super::device::Device;
use super::super::signed;
use nix::net::if_::if_nameindex;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, bind, send, socket,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use vmcc_netlink::{Links, Shaper};
use vmcc_units::BitsPerSec;

/// Name prefixes of the devices; the port's number follows.
const PREFIX: &str = "vmcch";
const BACK_PREFIX: &str = "vmccr";
/// The address of the device's own frames, which end at its other end. (Locally administered.)
pub(super) const ADDRESS: [u8; 6] = [0x02, 0x76, 0x6d, 0x63, 0x63, 0x68];
/// The most that a device takes.
const MTU: u32 = 65_535;
const ETHERNET_HEADER: usize = 14;
const SOURCE_AT: usize = 6;
/// Frames that take what a shut bucket lets out at once.
const FILLER: usize = MTU as usize + ETHERNET_HEADER;
const FILLERS: usize = 4;
/// A little more than they are, as the kernel rounds. The bucket takes trains of packets apart that are longer; a train
/// counts as what it will be on the wire, with a header for each of its packets.
const SHUT_BURST: u32 = (FILLERS * FILLER) as u32 + 64;
/// In bytes: one small packet in some milliseconds. Such a packet makes another round, see [`super`].
const SHUT_RATE: BitsPerSec = BitsPerSec::new(100_000);
/// 1 Tbit/s in bytes.
const OPEN_RATE: BitsPerSec = BitsPerSec::new(1_000_000_000_000);
const OPEN_BURST: u32 = 1 << 30;
/// Limit of the queue, in bytes: 5 ms at 100 Gbit/s, 50 ms at 10.
const LIMIT: u32 = 64 << 20;

/// Removed on drop.
pub(super) struct Detour {
    /// Device into which packets go.
    pub(super) device: u32,
    /// Device from which they come out.
    pub(super) back: u32,
}

impl Detour {
    /// Makes one for a port; it is not shut yet.
    pub(super) fn make(dev: &mut Device) -> io::Result<Self> {
        let [device, back] = [PREFIX, BACK_PREFIX].map(|prefix| format!("{prefix}{}", dev.index));
        let (device, back) = Links::open()?.add_detour(&device, &back, ADDRESS, MTU)?;
        let detour = Self { device, back };
        dev.tc.add_shaper(detour.device, &shaper(SHUT_RATE, SHUT_BURST))?;
        Ok(detour)
    }

    /// From now on packets wait.
    pub(super) fn shut(&self) -> io::Result<()> {
        self.send(FILLER, FILLERS)
    }

    /// From now on packets pass, those that wait first.
    pub(super) fn open(&self, dev: &mut Device) -> io::Result<()> {
        dev.tc.change_shaper(self.device, &shaper(OPEN_RATE, OPEN_BURST))?;
        // The bucket looks at its queue again when the next packet comes.
        self.send(ETHERNET_HEADER, 1)
    }

    /// Sends frames of the device's own: for nobody, of no protocol.
    fn send(&self, length: usize, count: usize) -> io::Result<()> {
        let mut frame = vec![0; length];
        frame[SOURCE_AT..SOURCE_AT + ADDRESS.len()].copy_from_slice(&ADDRESS);
        let socket = frames_to(self.device)?;
        for _ in 0..count {
            send(socket.as_raw_fd(), &frame, MsgFlags::empty())?;
        }
        Ok(())
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        // Should it stay, the next who looks at the port finds it.
        let _ = Links::open().and_then(|mut links| links.delete(self.device));
    }
}

/// Removes what a process left that died while it held a port (`Some`), or any port that is gone (`None`).
pub(in super::super) fn remove_left(port: Option<u32>) -> io::Result<()> {
    let links = if_nameindex()?;
    for link in &links {
        let name = link.name().to_string_lossy();
        let Some(held) = name.strip_prefix(PREFIX).and_then(|number| number.parse::<u32>().ok()) else {
            continue;
        };
        if port.map_or_else(|| links.iter().all(|link| link.index() != held), |port| port == held) {
            Links::open()?.delete(link.index())?;
        }
    }
    Ok(())
}

fn shaper(rate: BitsPerSec, burst_bytes: u32) -> Shaper {
    Shaper { rate, burst_bytes, limit_bytes: LIMIT, limit_pkt: None }
}

/// A socket whose frames leave at a device.
fn frames_to(device: u32) -> io::Result<OwnedFd> {
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
    let address = nix::libc::sockaddr_ll {
        sll_family: nix::libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: signed(device),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of_val(&address) as u32;
    // SAFETY: the pointer is to a whole `sockaddr_ll` of that length, which lives until the call returns.
    let address = unsafe { LinkAddr::from_raw((&raw const address).cast(), Some(length)) };
    bind(socket.as_raw_fd(), &address.ok_or(io::ErrorKind::InvalidInput)?)?;
    Ok(socket)
}
