//! Anything that a relay, or who is on the way to it, may send: no datagram is taken from outside of what came, nothing is said without end,
//! and there is always a timer as long as it is not over.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::SocketAddr;
use vmcc_turn::{Credentials, Session};
use vmcc_units::time::{Span, Time};

/// Datagrams that a session may have to send at one moment: a request for each peer, and one for itself.
const MOST_AT_ONCE: usize = 100;
const HEADER: usize = 20;

struct Play {
    session: Session,
    now: Time,
    /// The identifiers of the last requests: without them nothing is an answer.
    ids: Vec<[u8; 12]>,
}

impl Play {
    fn say(&mut self) {
        for count in 0.. {
            assert!(count < MOST_AT_ONCE, "it never ends");
            let Some(request) = self.session.poll_transmit(self.now) else { break };
            self.ids.push(request[8..HEADER].try_into().unwrap());
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

    /// A message that answers one of the last requests: type, then attributes.
    fn answer(&mut self, which: u8, rest: &[u8]) {
        let Some(id) = self.ids.iter().rev().nth(usize::from(which & 3)).copied() else { return };
        let (kind, attributes) = rest.split_at(rest.len().min(2));
        let mut message = kind.to_vec();
        message.resize(2, 0);
        message.extend_from_slice(&(attributes.len() as u16).to_be_bytes());
        message.extend_from_slice(&[0x21, 0x12, 0xa4, 0x42]);
        message.extend_from_slice(&id);
        message.extend_from_slice(attributes);
        self.hear(&message);
    }
}

/// Each step: what (one byte), how many bytes (two), and these.
fn play(mut data: &[u8]) {
    let credentials = Credentials::new("user", "secret").unwrap();
    let session = Session::new(Time::ZERO, credentials, data.first().is_some_and(|byte| byte & 1 == 1), [7; 32]);
    let mut play = Play { session, now: Time::ZERO, ids: Vec::new() };
    play.say();
    while let [what, high, low, rest @ ..] = data {
        let len = (usize::from(*high) << 8 | usize::from(*low)) % 1400;
        let (bytes, rest) = rest.split_at(len.min(rest.len()));
        data = rest;
        let port = u16::from(*high);
        let peer = match what & 0x80 {
            0 => SocketAddr::from(([192, 0, 2, *low], port)),
            _ => SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, u16::from(*low)], port)),
        };
        match what & 7 {
            0 => play.hear(bytes),
            1..=3 => play.answer(what >> 3, bytes),
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
