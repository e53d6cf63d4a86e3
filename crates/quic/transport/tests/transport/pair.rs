//! Two ends in one place whose packets anybody can write: what is said in them is believed. Also what the fuzz target `packets` plays with.

use std::net::SocketAddr;
use std::sync::Arc;
use vmcc_transport::crypto::Side;
use vmcc_transport::null_crypto::{NullCrypto, TAG};
use vmcc_transport::{Dir, Ecn, Endpoint, Handle, Retry, Route, Server};
use vmcc_units::time::{Span, Time};

/// A client and a server.
pub(crate) struct Pair {
    pub(crate) now: Time,
    pub(crate) ends: [Endpoint; 2],
    pub(crate) handles: [Option<Handle>; 2],
    /// Ids by which each end is known: of path 0.
    ids: [[u8; 8]; 2],
}

impl Pair {
    /// Two ends that have shaken hands and have a stream each.
    pub(crate) fn new() -> Pair {
        let now = Time::ZERO + Span::from_secs(1);
        let mut ends = [Endpoint::new(None, [1; 32]), Pair::server()];
        let tls = Arc::new(NullCrypto(Side::Client));
        let client = ends[0].connect(now, tls, Arc::default(), "", Pair::route(0), Vec::new()).unwrap();
        let mut pair = Pair { now, ends, handles: [Some(client), None], ids: [[0; 8]; 2] };
        pair.exchange();
        let stream = pair.ends[0].connection(client).unwrap().open_stream(Dir::Bi).expect("connected");
        pair.ends[0].connection(client).unwrap().write(stream, &[7; 5000]).unwrap();
        pair.exchange();
        pair
    }

    /// One that nobody has said anything to.
    pub(crate) fn server() -> Endpoint {
        let tls = Arc::new(NullCrypto(Side::Server));
        let server = Server { tls, config: Arc::default(), retry: Retry::Above(99), max_connections: 9 };
        Endpoint::new(Some(server), [2; 32])
    }

    pub(crate) fn route(end: usize) -> Route {
        let address = |end: u8| SocketAddr::from(([10, 0, 0, 1 + end], 443));
        let (own, other) = (address(end as u8), address(1 - end as u8));
        Route { local: own, remote: other }
    }

    /// Hands everything over until nobody has anything to say.
    pub(crate) fn exchange(&mut self) {
        let mut out = Vec::new();
        for _ in 0..100 {
            let mut quiet = true;
            for end in 0..2 {
                while let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut out) {
                    quiet = false;
                    for datagram in out.clone().chunks(transmit.segment) {
                        if datagram[0] & 0x80 == 0 && self.ids[1 - end] == [0; 8] {
                            self.ids[1 - end].copy_from_slice(&datagram[1..9]);
                        }
                        let mut datagram = datagram.to_vec();
                        self.ends[1 - end].handle_datagram(
                            self.now,
                            Pair::route(1 - end),
                            Ecn::NotEct,
                            &mut datagram,
                        );
                    }
                }
                while let Some((handle, _)) = self.ends[end].poll_event() {
                    self.handles[end] = Some(handle);
                }
            }
            if quiet {
                return;
            }
        }
    }

    /// A packet with these frames comes to an end.
    pub(crate) fn say(&mut self, end: usize, pn: u32, frames: &[u8]) {
        self.say_from(Pair::route(end), end, pn, frames);
    }

    /// As [`say`](Pair::say), from somewhere.
    pub(crate) fn say_from(&mut self, route: Route, end: usize, pn: u32, frames: &[u8]) {
        let mut packet = vec![0x43];
        packet.extend_from_slice(&self.ids[end]);
        packet.extend_from_slice(&pn.to_be_bytes());
        packet.extend_from_slice(frames);
        packet.extend_from_slice(&TAG);
        self.ends[end].handle_datagram(self.now, route, Ecn::Ce, &mut packet);
    }

    /// Until the next thing that one of them waits for.
    pub(crate) fn pass_time(&mut self) {
        for end in 0..2 {
            if let Some(at) = self.ends[end].poll_timeout() {
                self.now = self.now.max(at);
                self.ends[end].handle_timeout(self.now);
            }
        }
    }
}
