//! Facts of made-up hosts.

use std::net::IpAddr;
use vmcc_advise::Facts;
use vmcc_advise::facts::{Application, Endpoint, Kind, Limits, Mptcp, MptcpState, Nic, Path, Peer, Route};

pub(crate) const MBIT: u64 = 1_000_000;

/// A client whose interfaces have these rates and round-trip times to a peer, ready for several paths.
pub(crate) fn client(paths: &[(u64, u64)]) -> Facts {
    let remote: IpAddr = "10.9.0.1".parse().unwrap();
    let address = |number: usize| IpAddr::from([10, 0, u8::try_from(number).unwrap(), 1]);
    let nics = paths.iter().enumerate().map(|(number, (rate_bps, _))| Nic {
        name: format!("eth{number}"),
        running: true,
        addresses: vec![address(number)],
        rate_bps: Some(*rate_bps),
        lower: None,
    });
    let to_peer = paths.iter().enumerate().map(|(number, (_, rtt_us))| Path {
        nic: format!("eth{number}"),
        local: address(number),
        remote,
        route: Route::Own { gateway: Some(IpAddr::from([10, 0, u8::try_from(number).unwrap(), 2])) },
        rtt_us: Some(*rtt_us),
        retransmitted: None,
    });
    let endpoint = |number: usize| Endpoint {
        address: address(number),
        signal: false,
        subflow: true,
        laminar: false,
        backup: false,
        bound: true,
    };
    Facts {
        mptcp: Mptcp {
            state: MptcpState::On,
            kernel_path_manager: true,
            limits: Some(Limits { subflows: 2, accept: 0 }),
            endpoints: Some((1..paths.len()).map(endpoint).collect()),
            ..Mptcp::default()
        },
        nics: nics.collect(),
        first_nic: Some("eth0".to_owned()),
        paths: to_peer.collect(),
        peer: Some(Peer { name: "peer".to_owned(), addresses: vec![remote], ..Peer::default() }),
        ..Facts::default()
    }
}

/// The same with this application.
pub(crate) fn with(facts: Facts, application: Application) -> Facts {
    Facts { application, ..facts }
}

pub(crate) fn bulk(size_bytes: Option<u64>) -> Application {
    Application { kind: Some(Kind::Bulk), size_bytes, ..Application::default() }
}

pub(crate) fn responses(size_bytes: u64, concurrency: u32) -> Application {
    Application {
        kind: Some(Kind::RequestResponse),
        size_bytes: Some(size_bytes),
        concurrency: Some(concurrency),
        ..Application::default()
    }
}
