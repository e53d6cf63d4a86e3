//! Nothing but UDP: packets of the same size as the others', in the fewest calls, with nothing in them, and no repair. What the kernel's way
//! costs by itself, which no transport over sockets can be faster than.

use crate::options::Case;
use crate::process::{Meter, Usage};
use crate::{Result, setup};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, sendmmsg};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::timeout;

const PACKET: usize = setup::MTU as usize;
/// Packets in one call: segments of one, or as many packets of their own.
const BATCH: usize = 44;
/// Packets on the way at most, which a socket's buffer has room for, and after how many the receiver says how many have come.
const WINDOW: u64 = 1024;
const SAID_EACH: u64 = 256;
/// Without a packet for so long, some were lost.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Joined segments in one call, and how many of these.
const RECEIVE_BYTES: usize = 65_536;
const RECEIVE_BUFFERS: usize = 8;

fn packets(case: &Case) -> u64 {
    case.bytes().div_ceil(PACKET as u64)
}

fn open(at: SocketAddr) -> Result<(UdpSocket, UdpSocketState)> {
    let socket = setup::socket(at)?;
    socket.set_nonblocking(true)?;
    let socket = UdpSocket::from_std(socket)?;
    let state = UdpSocketState::new((&socket).into())?;
    Ok((socket, state))
}

pub(crate) async fn receive(case: &Case) -> Result<Usage> {
    let (socket, state) = open(case.at[0])?;
    setup::tell(&[socket.local_addr()?]);
    let mut bytes = vec![0; RECEIVE_BYTES * RECEIVE_BUFFERS];
    let mut metas = [RecvMeta::default(); RECEIVE_BUFFERS];
    let (mut came, mut said, mut meter) = (0, 0, None);
    while came < packets(case) {
        timeout(RECEIVE_TIMEOUT, socket.readable()).await.map_err(|_| "packets were lost")??;
        meter.get_or_insert_with(Meter::start);
        let received = socket.try_io(Interest::READABLE, || {
            let mut slices: Vec<_> = bytes.chunks_mut(RECEIVE_BYTES).map(IoSliceMut::new).collect();
            state.recv((&socket).into(), &mut slices, &mut metas)
        });
        let count = match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            received => received?,
        };
        came += metas[..count].iter().map(|meta| meta.len.div_ceil(PACKET) as u64).sum::<u64>();
        if came - said >= SAID_EACH || came >= packets(case) {
            socket.send_to(&came.to_le_bytes(), metas[0].addr).await?;
            said = came;
        }
    }
    Ok(meter.ok_or("nothing was sent")?.stop())
}

pub(crate) async fn send(case: &Case) -> Result<Usage> {
    let (socket, state) = open(SocketAddr::new(case.from[0], 0))?;
    let SocketAddr::V4(to) = case.at[0] else { return Err("of IPv4 only".into()) };
    let (bytes, total) = (vec![0; BATCH * PACKET], packets(case));
    let (meter, mut sent, mut came) = (Meter::start(), 0, 0);
    while came < total {
        let count = (total - sent).min(came + WINDOW - sent).min(BATCH as u64) as usize;
        if count == 0 {
            let mut word = [0; 8];
            timeout(RECEIVE_TIMEOUT, socket.recv(&mut word)).await.map_err(|_| "packets were lost")??;
            came = u64::from_le_bytes(word);
            continue;
        }
        socket.writable().await?;
        let contents = &bytes[..count * PACKET];
        let taken = socket.try_io(Interest::WRITABLE, || match case.offload {
            true => whole(&socket, &state, to.into(), contents),
            false => apart(&socket, to.into(), contents),
        });
        match taken {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            taken => sent += taken? as u64,
        }
    }
    Ok(meter.stop())
}

/// One packet, which the kernel cuts into segments.
fn whole(socket: &UdpSocket, state: &UdpSocketState, to: SocketAddr, contents: &[u8]) -> io::Result<usize> {
    let segment_size = (contents.len() > PACKET).then_some(PACKET);
    let transmit = Transmit { destination: to, ecn: None, contents, segment_size, src_ip: None };
    state.try_send(socket.into(), &transmit).map(|()| contents.len() / PACKET)
}

/// Packets of their own, in one call.
fn apart(socket: &UdpSocket, to: SockaddrIn, contents: &[u8]) -> io::Result<usize> {
    let slices: Vec<_> = contents.chunks(PACKET).map(|one| [IoSlice::new(one)]).collect();
    let to = vec![Some(to); slices.len()];
    let mut headers = MultiHeaders::preallocate(slices.len(), None);
    Ok(sendmmsg(socket.as_raw_fd(), &mut headers, &slices, &to, [], MsgFlags::empty())?.count())
}
