//! Settings of hosts.

use vmcc_units::{Bytes, Nanos};

use super::congestion_control::{algorithm, params};
use super::{Check, require};
use crate::model::{Host, Protocol};

pub(super) fn check(host: &Host) -> Check {
    algorithm(&host.cc, "host.cc")?;
    for name in host.params.keys() {
        params(host, algorithm(name, &format!("host.params.{name}"))?)?;
    }
    subflows(host.subflows, host.protocol, "host.subflows")?;
    let most = vmcc_cc::MAX_PATHS as u32;
    let valid = host.min_paths.is_none_or(|least| (1..=most).contains(&least));
    require(valid, "host.min_paths", &format!("from 1 to {most} subflows stay open"))?;
    let mtu = (Bytes::new(256)..=Bytes::new(65_535)).contains(&host.mtu);
    require(mtu, "host.mtu", "the MTU must be from 256B to 65535B")?;
    let least = host.mtu.checked_mul(2).unwrap_or(Bytes::MAX);
    let most = Bytes::new(1 << 34);
    for (buffer, path) in
        [(host.receive_buffer, "host.receive_buffer"), (host.send_buffer, "host.send_buffer")]
    {
        require(buffer >= least, path, "a buffer holds at least two packets of the MTU")?;
        require(buffer <= most, path, "a buffer is at most 16 GiB")?;
    }
    let packet = host.packet_memory.is_none_or(|memory| memory >= host.mtu && memory <= Bytes::new(1 << 20));
    require(
        packet,
        "host.packet_memory",
        "a packet takes from its MTU to 1 MiB; leave the key out for twice its payload",
    )?;
    let lowat = (Bytes::new(1)..=Bytes::new(u32::MAX.into())).contains(&host.notsent_lowat);
    require(lowat, "host.notsent_lowat", "what is not sent yet is limited to from 1B to 4294967295B")?;
    let iw = (1..=10_000).contains(&host.initial_window.get());
    require(iw, "host.initial_window", "the initial window must be from 1pkt to 10000pkt")?;
    require(!host.min_rto.is_zero(), "host.min_rto", "the floor of the timeout must not be zero")?;
    require(
        host.min_rto <= Nanos::from_secs(120),
        "host.min_rto",
        "the floor of the timeout is at most 120s",
    )?;
    let initial = (Nanos::from_micros(1)..=Nanos::from_secs(120)).contains(&host.initial_rto);
    require(initial, "host.initial_rto", "the initial timeout is from 1us to 120s")?;
    // RFC 5681 section 4.2: an ACK must be sent within 500 ms.
    let delayed = host.delayed_ack <= Nanos::from_millis(500);
    require(delayed, "host.delayed_ack", "an ACK may be delayed by at most 500ms")?;
    require(host.join_delay <= Nanos::from_secs(3600), "host.join_delay", "at most one hour")
}

/// The number of subflows, which plain TCP does not have.
pub(super) fn subflows(count: Option<u32>, protocol: Protocol, path: &str) -> Check {
    let Some(count) = count else { return Ok(()) };
    let most = vmcc_cc::MAX_PATHS as u32;
    require((1..=most).contains(&count), path, &format!("a connection has from 1 to {most} subflows"))?;
    let contradiction = protocol == Protocol::Tcp && count > 1;
    require(!contradiction, path, "plain TCP has one path; use protocol = \"mptcp\" for more subflows")
}
