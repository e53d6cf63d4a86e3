//! Anything that a relay, or who is on the way to it, may send: no datagram is taken from outside of what came, nothing is said without end,
//! and there is always a timer as long as it is not over.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::SocketAddr;
use vmcc_turn::{Credentials, Session};
use vmcc_units::time::{Span, Time};

/// Datagrams that a session may have to send at one moment: a request for each peer, and one for itself.
const MAX_AT_ONCE: usize = 100;
const HEADER: usize = 20;

struct Play {
    session: Session,
    now: Time,
    v6: bool,
    /// Types and identifiers of requests: without them nothing is an answer.
    asked: Vec<(u16, [u8; 12])>,
}

impl Play {
    fn say(&mut self) {
        for count in 0.. {
            assert!(count < MAX_AT_ONCE, "it never ends");
            let Some(request) = self.session.poll_transmit(self.now) else { break };
            let kind = u16::from_be_bytes([request[0], request[1]]);
            self.asked.push((kind, request[8..HEADER].try_into().unwrap()));
        }
        let next = self.session.poll_timeout();
        assert_eq!(next.is_none(), self.session.is_over());
        assert!(next.is_none_or(|next| next > self.now), "it is due, and nothing is done");
    }

    fn hear(&mut self, datagram: &[u8]) {
        if let Some((_, place)) = self.session.handle(self.now, datagram) {
            assert!(place.start > 0 && place.end <= datagram.len());
        }
    }

    /// A message that answers one of the last requests: with `class` in its type, and such attributes.
    fn answer(&mut self, which: u8, class: u16, attributes: &[u8]) {
        let Some((kind, id)) = self.asked.iter().rev().nth(usize::from(which & 3)).copied() else { return };
        let mut message = (kind | class).to_be_bytes().to_vec();
        message.extend_from_slice(&(attributes.len() as u16).to_be_bytes());
        message.extend_from_slice(&[0x21, 0x12, 0xa4, 0x42]);
        message.extend_from_slice(&id);
        message.extend_from_slice(attributes);
        self.hear(&message);
    }

    /// An address and a time, as most answers have them; what follows may be anything.
    fn granted(&self, rest: &[u8]) -> Vec<u8> {
        let len = if self.v6 { 20 } else { 8 };
        let mut attributes = vec![0, 0x16, 0, len, 0, if self.v6 { 2 } else { 1 }];
        attributes.resize(4 + usize::from(len), 0x55);
        let lifetime = rest.first().map_or(600, |byte| u32::from(*byte));
        attributes.extend_from_slice(&[0, 0x0d, 0, 4]);
        attributes.extend_from_slice(&lifetime.to_be_bytes());
        attributes.extend_from_slice(rest);
        attributes
    }
}

const SUCCESS: u16 = 0x100;
const ERROR: u16 = 0x110;

/// A code, and what a server wants requests to be signed with.
fn refused(code: &[u8], rest: &[u8]) -> Vec<u8> {
    let (class, number) =
        (code.first().map_or(4, |byte| byte & 7), code.get(1).map_or(38, |byte| byte % 100));
    let realm = [0, 0x14, 0, 1, b'r', 0, 0, 0, 0, 0x15, 0, 1, b'n', 0, 0, 0];
    [&[0, 9, 0, 4, 0, 0, class, number][..], &realm, rest].concat()
}

/// Each step: what (one byte), how many bytes (two), and these.
fn play(mut data: &[u8]) {
    let credentials = Credentials::new("user", "secret").unwrap();
    let v6 = data.first().is_some_and(|byte| byte & 0x80 != 0);
    let session = Session::new(Time::ZERO, credentials, v6, [7; 32]);
    let mut play = Play { session, now: Time::ZERO, v6, asked: Vec::new() };
    play.say();
    while let [what, high, low, rest @ ..] = data {
        let len = (usize::from(*high) << 8 | usize::from(*low)) % 1400;
        let (bytes, rest) = rest.split_at(len.min(rest.len()));
        data = rest;
        let port = u16::from(*high);
        let peer = match v6 {
            false => SocketAddr::from(([192, 0, 2, *low], port)),
            true => SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, u16::from(*low)], port)),
        };
        match what & 7 {
            0 => play.hear(bytes),
            1 => play.answer(what >> 3, u16::from(*low) << 4, bytes),
            2 => play.answer(what >> 3, SUCCESS, &play.granted(bytes)),
            3 => play.answer(what >> 3, ERROR, &refused(&[*high, *low], bytes)),
            4 => drop(play.session.peer(play.now, peer)),
            5 => play.now = play.session.poll_timeout().unwrap_or(play.now),
            6 => play.session.check(play.now),
            _ if *what > 0xf0 => play.session.close(play.now),
            _ => play.now += Span::from_ms(u64::from(*low)),
        }
        play.say();
        let header = play.session.header(peer, len);
        assert!(header.is_none() || play.session.relayed().is_some());
    }
}

fuzz_target!(|data: &[u8]| play(data));
