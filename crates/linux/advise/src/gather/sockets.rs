//! Running connections with the peer.

use crate::facts::{Connections, Path};
use nix::unistd::geteuid;
use std::collections::BTreeMap;
use vmcc_system::diag::{Mptcp, Subflow};

/// Packets below which a share of retransmissions says nothing.
const MIN_DELIVERED_PKT: u32 = 100;

pub(super) fn counts(sockets: &[&Subflow]) -> Connections {
    // Of each MPTCP connection: its subflows, and whether all of them have ECN.
    let mut subflows: BTreeMap<u32, (usize, bool)> = BTreeMap::new();
    let (mut single, mut fell_back, mut ecn) = (0, 0, 0);
    for socket in sockets {
        match socket.mptcp {
            Some(mptcp) if !is_fallback(socket, &mptcp) => {
                let (count, all_ecn) = subflows.entry(mptcp.token_local).or_insert((0, true));
                *count += 1;
                *all_ecn &= socket.ecn;
            }
            mptcp => {
                single += 1;
                fell_back += usize::from(mptcp.is_some());
                ecn += usize::from(socket.ecn);
            }
        }
    }
    Connections {
        total: single + subflows.len(),
        // Others are shown every socket as TCP.
        mptcp: geteuid().is_root().then_some(subflows.len()),
        fell_back,
        multipath: subflows.values().filter(|(count, _)| *count > 1).count(),
        ecn: ecn + subflows.values().filter(|(_, all_ecn)| *all_ecn).count(),
    }
}

/// A client's socket keeps its MPTCP attributes after a fallback, and never completes the handshake although data were acknowledged.
fn is_fallback(socket: &Subflow, mptcp: &Mptcp) -> bool {
    // The SYN counts as a byte.
    !mptcp.established && !mptcp.joined && socket.bytes_acked > 1
}

/// Adds the least round-trip time and the share of retransmissions of each pair of addresses.
pub(super) fn add_measured(paths: &mut [Path], sockets: &[&Subflow]) {
    for path in paths {
        let of_path: Vec<&&Subflow> = sockets
            .iter()
            .filter(|one| {
                one.local.ip().to_canonical() == path.local && one.remote.ip().to_canonical() == path.remote
            })
            .collect();
        let measured = of_path.iter().filter_map(|one| one.min_rtt_us).map(u64::from);
        path.rtt_us = measured.chain(path.rtt_us).min();
        let delivered: u64 = of_path.iter().map(|one| u64::from(one.delivered_pkt)).sum();
        let again: u64 = of_path.iter().map(|one| u64::from(one.retransmitted_pkt)).sum();
        if delivered >= u64::from(MIN_DELIVERED_PKT) {
            path.retransmitted = Some(again as f64 / (delivered + again) as f64);
        }
    }
}
