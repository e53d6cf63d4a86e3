//! `TCP_INFO` of a socket.

use std::os::fd::AsFd;
use vmcc_tcp::CarrierInfo;

/// Snapshot of a socket's TCP.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "neither nix nor socket2 reads TCP_INFO")]
pub(crate) fn read(socket: &impl AsFd) -> CarrierInfo {
    use nix::libc;
    use std::os::fd::AsRawFd;
    use vmcc_units::time::Span;

    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `tcp_info` is integers alone, for which zeros are valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer and the length describe `info`, which outlives the call; the descriptor is open while it is borrowed.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    if failed != 0 {
        return CarrierInfo::default();
    }
    // A socket that has sent nothing since its handshake has no better guess of either.
    let mss = info.tcpi_snd_mss.max(1);
    CarrierInfo {
        mss,
        cwnd_pkt: info.tcpi_snd_cwnd.max(1),
        srtt: Span::from_us(info.tcpi_rtt.into()),
        rttvar: Span::from_us(info.tcpi_rttvar.into()),
        in_flight: u64::from(info.tcpi_unacked) * u64::from(mss),
        queued: info.tcpi_notsent_bytes.into(),
        blocked: false,
        since_ack: Span::from_ms(info.tcpi_last_ack_recv.into()),
        timeouts: info.tcpi_retransmits.into(),
        slow_start: info.tcpi_snd_cwnd < info.tcpi_snd_ssthresh,
    }
}

/// Without `TCP_INFO` only the bytes in user space limit a carrier: the socket says by `EWOULDBLOCK` when it is full.
#[cfg(not(target_os = "linux"))]
pub(crate) fn read(_: &impl AsFd) -> CarrierInfo {
    CarrierInfo { cwnd_pkt: u32::MAX >> 12, ..CarrierInfo::default() }
}
