//! Two ends in memory whose packets the caller can write, with valid protection. Also what the fuzz target `packets` plays with.

use std::net::SocketAddr;
use std::sync::Arc;
use vmcc_transport::crypto::Side;
use vmcc_transport::null_crypto::{NullCrypto, TAG};
use vmcc_transport::{Dir, Ecn, Endpoint, Handle, Retry, Route, Server};
use vmcc_units::time::{Span, Time};

/// A client and a server.
pub struct Pair {
    /// The time of both.
    pub now: Time,
    /// Client and server.
    pub ends: [Endpoint; 2],
    /// Their connection at each end, once there is one.
    pub handles: [Option<Handle>; 2],
    /// Ids by which each end is known: of path 0.
    ids: [[u8; 8]; 2],
    /// Destination of the client's first packet, which the server knows still.
    original: [u8; 8],
}

impl Default for Pair {
    fn default() -> Pair {
        Pair::new()
    }
}

impl Pair {
    /// Two ends that have shaken hands and have a stream each.
    pub fn new() -> Pair {
        let now = Time::ZERO + Span::from_secs(1);
        let mut ends = [Endpoint::new(None, [1; 32]), Pair::server()];
        let tls = Arc::new(NullCrypto(Side::Client));
        let client = ends[0].connect(now, tls, Arc::default(), "", Pair::route(0), Vec::new()).unwrap();
        let mut pair = Pair { now, ends, handles: [Some(client), None], ids: [[0; 8]; 2], original: [0; 8] };
        pair.exchange();
        let stream = pair.ends[0].connection(client).unwrap().open_stream(Dir::Bi).expect("connected");
        pair.ends[0].connection(client).unwrap().write(stream, &[7; 5000]).unwrap();
        pair.exchange();
        pair
    }

    /// One that nobody has said anything to.
    pub fn server() -> Endpoint {
        let tls = Arc::new(NullCrypto(Side::Server));
        let server = Server { tls, config: Arc::default(), retry: Retry::Above(99), max_connections: 9 };
        Endpoint::new(Some(server), [2; 32])
    }

    /// Route from an end to the other.
    pub fn route(end: usize) -> Route {
        let address = |end: u8| SocketAddr::from(([10, 0, 0, 1 + end], 443));
        let (own, other) = (address(end as u8), address(1 - end as u8));
        Route { local: own, remote: other }
    }

    /// Hands everything over until nobody has anything to say.
    pub fn exchange(&mut self) {
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
                        if self.original == [0; 8] {
                            self.original.copy_from_slice(&datagram[6..14]);
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
    pub fn say(&mut self, end: usize, pn: u32, frames: &[u8]) {
        self.say_from(Pair::route(end), end, pn, frames);
    }

    /// A packet with a short header for an end.
    fn packet(&self, end: usize, pn: u32, frames: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x43];
        packet.extend_from_slice(&self.ids[end]);
        packet.extend_from_slice(&pn.to_be_bytes());
        packet.extend_from_slice(frames);
        packet.extend_from_slice(&TAG);
        packet
    }

    /// A datagram comes to the server whose first packet is to the id that the client chose, and whose second one, with these frames, is to
    /// the server's own id.
    pub fn say_behind_another_id(&mut self, pn: u32, frames: &[u8]) {
        // A Handshake packet of version 1 without a source id, of four bytes that nobody can read.
        let mut datagram = [&[0xe0, 0, 0, 0, 1, 8][..], &self.original, &[0, 4, 1, 2, 3, 4]].concat();
        datagram.extend_from_slice(&self.packet(1, pn, frames));
        self.ends[1].handle_datagram(self.now, Pair::route(1), Ecn::NotEct, &mut datagram);
    }

    /// As [`say`](Pair::say), from somewhere.
    pub fn say_from(&mut self, route: Route, end: usize, pn: u32, frames: &[u8]) {
        let mut packet = self.packet(end, pn, frames);
        self.ends[end].handle_datagram(self.now, route, Ecn::Ce, &mut packet);
    }

    /// Until the next thing that one of them waits for.
    pub fn pass_time(&mut self) {
        for end in 0..2 {
            if let Some(at) = self.ends[end].poll_timeout() {
                self.now = self.now.max(at);
                self.ends[end].handle_timeout(self.now);
            }
        }
    }
}
