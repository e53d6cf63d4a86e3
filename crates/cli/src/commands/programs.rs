//! Connections that our programs have in user space, beside the kernel's: as `vmcc status` and `vmcc top` show them.

use crate::failure::{Exit, Failure};
use vmcc_agent::{Connection, HostStatus, Path, Program};
use vmcc_apps::status;
use vmcc_system::cpu_steal::CpuSteal;

/// State of this host, with the connections of programs. A user who may not read the kernel's state sees only those, if there are any.
/// `on_left_out` hears how many programs, or folders of one user, are left out.
pub(super) fn with(
    status: Result<HostStatus, Failure>,
    on_left_out: impl FnOnce(usize),
) -> Result<HostStatus, Failure> {
    let (programs, left_out) = status::programs();
    if left_out > 0 {
        on_left_out(left_out);
    }
    let own = connections(programs);
    match status {
        Ok(mut status) => {
            status.connections.extend(own);
            Ok(status)
        }
        Err(failure) if own.is_empty() || failure.exit != Exit::HostCannot || is_root() => Err(failure),
        Err(_) => Ok(HostStatus {
            algorithms: Vec::new(),
            lingering: Vec::new(),
            sockets: Vec::new(),
            connections: own,
            ports: Vec::new(),
            agent: None,
            fallbacks: None,
            blackhole_timeout_s: None,
            left: Vec::new(),
            taken: CpuSteal::now(),
        }),
    }
}

/// True for root, whose failures have another cause than a missing privilege.
fn is_root() -> bool {
    vmcc_agent::needs_root("status").is_ok()
}

/// True if only connections of programs are visible.
pub(super) fn are_all(status: &HostStatus) -> bool {
    let programs = status.connections.iter().all(|connection| connection.program.is_some());
    programs && !status.connections.is_empty() && status.algorithms.is_empty()
}

fn connections(programs: Vec<status::Program>) -> Vec<Connection> {
    let of = |program: status::Program| {
        let known = Program { name: program.name, pid: program.pid };
        program.connections.into_iter().map(move |connection| self::connection(&known, connection))
    };
    programs.into_iter().flat_map(of).collect()
}

fn connection(program: &Program, connection: status::Connection) -> Connection {
    let path = |path: status::Path| {
        // Not the kernel's: no socket of it has a number like this.
        let numbers = [u64::from(program.pid), connection.number, u64::from(path.number)];
        let cookie = numbers.iter().fold(u64::MAX, |all, number| all.rotate_left(21) ^ number);
        Path {
            cookie: cookie.to_ne_bytes(),
            local: path.local,
            remote: path.remote,
            device: path.device,
            backup: path.backup,
            silent: path.silent,
            cwnd_pkt: path.cwnd_pkt,
            srtt_us: path.srtt_us,
            ecn_feedback: None,
            alpha: None,
            ece_share: (path.acked_pkt > 0).then(|| path.marked_pkt as f64 / path.acked_pkt as f64),
            // Like the kernel's counters, which wrap at 2^32.
            delivered_pkt: path.acked_pkt as u32,
            delivered_ce_pkt: path.marked_pkt as u32,
            bytes_acked: path.acked_bytes,
            bytes_received: path.received_bytes,
            // What is in flight arrives within a round trip.
            delivery_rate_bps: path
                .in_flight_bytes
                .saturating_mul(8_000_000)
                .checked_div(path.srtt_us.into())
                .unwrap_or(0),
            uncoupled: None,
            siblings: Vec::new(),
        }
    };
    Connection {
        token: None,
        program: Some(program.clone()),
        algorithm: connection.algorithm,
        received_bytes: None,
        retransmitted_bytes: None,
        paths: connection.paths.into_iter().map(path).collect(),
        closed: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_connections_are_shown_like_kernel_connections() {
        let path = status::Path {
            number: 1,
            local: "10.0.0.1:7".parse().unwrap(),
            remote: "10.0.0.2:8".parse().unwrap(),
            device: Some("eth0".to_owned()),
            backup: false,
            silent: true,
            cwnd_pkt: 20,
            srtt_us: 10_000,
            in_flight_bytes: 12_500,
            acked_pkt: (1 << 32) + 100,
            marked_pkt: 25,
            lost_pkt: 3,
            acked_bytes: 1000,
            received_bytes: 2000,
        };
        let own = status::Connection { number: 5, algorithm: "lia".to_owned(), paths: vec![path] };
        let program = |pid| status::Program {
            name: "proxy".to_owned(),
            pid,
            namespace: String::new(),
            connections: vec![own.clone()],
            more: 0,
        };
        let all = connections(vec![program(9), program(10)]);
        let shown = &all[0].paths[0];
        assert_eq!(
            (shown.delivered_pkt, shown.delivered_ce_pkt, shown.delivery_rate_bps),
            (100, 25, 10_000_000)
        );
        assert!(shown.silent && shown.cookie != all[1].paths[0].cookie);
        assert_eq!(super::super::status::name(&all[0]), "proxy 9");
    }
}
