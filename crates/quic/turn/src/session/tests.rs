//! Against a server that is written down here.

use super::*;
use crate::message::ERROR_CODE;

const SEED: [u8; 32] = [7; 32];
const USER: &str = "user";

/// A server: what it wants to be signed with, and what it says to which request instead of what is right.
struct Server {
    nonce: &'static [u8],
    refuses: Option<(u16, u16)>,
    secret: &'static str,
    lifetime: u32,
    asked: Vec<u16>,
}

impl Server {
    fn new() -> Server {
        Server { nonce: b"first", refuses: None, secret: "secret", lifetime: 600, asked: Vec::new() }
    }

    fn key(&self) -> [u8; 16] {
        Md5::digest(format!("{USER}:realm:{}", self.secret)).into()
    }

    fn answer(&mut self, request: &[u8]) -> Vec<u8> {
        let message = Message::read(request).unwrap();
        assert_eq!(message.class, Class::Request);
        self.asked.push(message.method);
        let error = |code: u16| {
            let code = [0, 0, (code / 100) as u8, (code % 100) as u8];
            let writer = Writer::new(message.method, Class::Error, message.id).put(ERROR_CODE, &code);
            writer.put(REALM, b"realm").put(NONCE, self.nonce).finish()
        };
        if message.value(USERNAME).is_none() || !message.is_signed(&self.key()) {
            return error(401);
        }
        if message.value(NONCE) != Some(self.nonce) {
            return error(438);
        }
        if let Some((_, code)) = self.refuses.filter(|(method, _)| *method == message.method) {
            return error(code);
        }
        let lifetime = message.number(LIFETIME).unwrap_or(self.lifetime).to_be_bytes();
        let writer = Writer::new(message.method, Class::Success, message.id).put(LIFETIME, &lifetime);
        writer.put_address(XOR_RELAYED_ADDRESS, relayed()).sign(&self.key()).finish()
    }
}

fn relayed() -> SocketAddr {
    "192.0.2.1:50000".parse().unwrap()
}

fn peer() -> SocketAddr {
    "198.51.100.1:443".parse().unwrap()
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

fn session() -> Session {
    Session::new(at(0), Credentials::new(USER, "secret").unwrap(), false, SEED)
}

/// Everything that is to be said at `now`.
fn talk(session: &mut Session, server: &mut Server, now: Time) {
    while let Some(request) = session.poll_transmit(now).map(<[u8]>::to_vec) {
        let answer = server.answer(&request);
        assert_eq!(session.handle(now, &answer), None);
    }
}

fn ready() -> (Session, Server) {
    let (mut session, mut server) = (session(), Server::new());
    session.peer(at(0), peer());
    talk(&mut session, &mut server, at(0));
    assert_eq!(session.peer(at(0), peer()), PeerState::Ready);
    (session, server)
}

#[test]
fn channel_carries_datagrams_both_ways() {
    let (mut session, server) = ready();
    assert_eq!(server.asked, [ALLOCATE, ALLOCATE, CHANNEL_BIND]);
    assert_eq!(session.relayed(), Some(relayed()));
    assert_eq!(session.header(peer(), 258), Some([0x40, 0, 1, 2]));
    assert_eq!(session.header(relayed(), 1), None, "that is no peer");
    assert_eq!(session.handle(at(1), &[0x40, 0, 0, 2, 8, 9, 0, 0]), Some((peer(), 4..6)));
    for wrong in [&[0x40, 1, 0, 0][..], &[0x40, 0, 0, 3, 8, 9], &[0x40, 0, 0], &[0x50, 0, 0, 0], &[]] {
        assert_eq!(session.handle(at(1), wrong), None);
    }
    // Before a channel is bound a server may also say it this way.
    let said = |from| {
        let writer =
            Writer::new(DATA_INDICATION, Class::Indication, [1; 12]).put_address(XOR_PEER_ADDRESS, from);
        writer.put(DATA, b"abc").finish()
    };
    let (from, place) = session.handle(at(1), &said(peer())).unwrap();
    assert_eq!((from, &said(peer())[place]), (peer(), &b"abc"[..]));
    assert_eq!(session.handle(at(1), &said(relayed())), None);
}

#[test]
fn allocation_is_refreshed_and_released() {
    let (mut session, mut server) = ready();
    server.asked.clear();
    let mut moments = Vec::new();
    while let Some(next) = session.poll_timeout().filter(|next| *next < at(601)) {
        moments.push(next.since(Time::ZERO).ps() / Span::from_secs(1).ps());
        talk(&mut session, &mut server, next);
    }
    assert_eq!(moments, [200, 300, 400, 600]);
    assert_eq!(server.asked, [CHANNEL_BIND, REFRESH, CHANNEL_BIND, REFRESH, CHANNEL_BIND]);
    // A new nonce is learned on the way.
    server.nonce = b"second";
    session.close(at(700));
    assert_eq!(session.poll_timeout(), Some(at(700)));
    talk(&mut session, &mut server, at(700));
    assert_eq!((session.state(), session.poll_timeout()), (&State::Over(Failure::Closed), None));
}

#[test]
fn silent_server_is_detected_within_seconds() {
    let mut silent = session();
    let (mut session, _) = ready();
    session.check(at(10));
    session.check(at(10));
    for (session, begin, failure) in [(&mut silent, 0, Failure::Silent), (&mut session, 10, Failure::Silent)]
    {
        let mut sends = Vec::new();
        while let Some(next) = session.poll_timeout() {
            let sent = session.poll_transmit(next).is_some();
            sends.push((next.since(at(begin)).ps() / Span::from_ms(1).ps(), sent));
        }
        assert_eq!(sends, [(0, true), (500, true), (1500, true), (3500, true), (7500, false)]);
        assert_eq!(session.state(), &State::Over(failure));
    }
}

#[test]
fn close_does_not_wait_for_a_dead_server() {
    let (mut session, _) = ready();
    session.close(at(5));
    let mut last = Time::ZERO;
    while let Some(next) = session.poll_timeout() {
        session.poll_transmit(next);
        last = next;
    }
    assert_eq!((session.is_over(), last.since(at(5))), (true, Span::from_ms(1500)));
}

#[test]
fn allocation_granted_after_close_is_released() {
    let (mut session, mut server) = (session(), Server::new());
    session.peer(at(0), peer());
    let first = session.poll_transmit(at(0)).unwrap().to_vec();
    assert_eq!(session.handle(at(0), &server.answer(&first)), None);
    let signed = session.poll_transmit(at(0)).unwrap().to_vec();
    let granted = server.answer(&signed);
    session.close(at(1));
    session.close(at(1));
    assert!(!session.is_over() && session.poll_transmit(at(1)).is_none(), "it was asked already");
    assert_eq!(session.handle(at(1), &granted), None);
    let release = session.poll_transmit(at(1)).unwrap().to_vec();
    let message = Message::read(&release).unwrap();
    assert_eq!((message.method, message.number(LIFETIME)), (REFRESH, Some(0)));
    assert_eq!(session.poll_transmit(at(1)), None, "no channel is bound any more");
    session.handle(at(1), &server.answer(&release));
    assert_eq!((session.state(), session.poll_timeout()), (&State::Over(Failure::Closed), None));
}

/// Asked with a password, without an answer.
fn asking() -> (Session, Server, Vec<u8>) {
    let (mut session, mut server) = (session(), Server::new());
    let first = session.poll_transmit(at(0)).unwrap().to_vec();
    session.handle(at(0), &server.answer(&first));
    let signed = session.poll_transmit(at(0)).unwrap().to_vec();
    (session, server, signed)
}

#[test]
fn missing_allocation_reply_times_out() {
    // Nobody gives one to who has not said the password.
    let (mut session, _) = (session(), Server::new());
    session.poll_transmit(at(0)).unwrap();
    session.close(at(1));
    assert_eq!((session.state(), session.poll_timeout()), (&State::Over(Failure::Closed), None));
    // It is asked once more: the answer may be lost.
    let (mut session, _, signed) = asking();
    session.close(at(1));
    let mut said = Vec::new();
    while let Some(next) = session.poll_timeout() {
        said.push((
            next.since(at(1)).ps() / Span::from_ms(1).ps(),
            session.poll_transmit(next).map(<[u8]>::to_vec),
        ));
    }
    assert_eq!(said, [(500, Some(signed)), (1500, None)]);
    for (method, code) in [(ALLOCATE, 486), (ALLOCATE, 438)] {
        let (mut session, mut server, signed) = asking();
        server.refuses = Some((method, code));
        session.close(at(1));
        session.handle(at(1), &server.answer(&signed));
        assert_eq!((session.state(), session.poll_timeout()), (&State::Over(Failure::Closed), None));
    }
}

#[test]
fn repeated_allocation_mismatch_is_not_retried() {
    let (mut session, mut server) = (session(), Server::new());
    session.peer(at(0), peer());
    server.refuses = Some((CHANNEL_BIND, 437));
    talk(&mut session, &mut server, at(0));
    assert_eq!(session.state(), &State::Over(Failure::Other(437, "Allocation Mismatch".to_owned())));
    // Where it knew it before, it has forgotten it.
    let (mut session, mut server) = ready();
    server.refuses = Some((CHANNEL_BIND, 437));
    session.peer(at(1), "198.51.100.2:443".parse().unwrap());
    talk(&mut session, &mut server, at(1));
    assert_eq!(session.state(), &State::Over(Failure::Lost));
}

#[test]
fn impossible_relayed_address_ends_the_session() {
    let (mut session, _) = ready();
    session.reject();
    session.close(at(1));
    assert_eq!((session.state(), session.poll_timeout()), (&State::Over(Failure::Taken(relayed())), None));
}

#[test]
fn refusals_are_reported_by_cause() {
    for (code, failure) in [
        (400, Failure::BadRequest(USER.to_owned())),
        (403, Failure::Forbidden("anybody".to_owned())),
        (437, Failure::Other(437, "Allocation Mismatch".to_owned())),
        (440, Failure::Family),
        (442, Failure::Transport),
        (486, Failure::Quota(USER.to_owned())),
        (508, Failure::Capacity),
        (500, Failure::Other(500, String::new())),
    ] {
        let (mut session, mut server) = (session(), Server::new());
        server.refuses = Some((ALLOCATE, code));
        talk(&mut session, &mut server, at(0));
        assert_eq!(session.state(), &State::Over(failure));
    }
    let (mut session, mut server) = (session(), Server::new());
    server.secret = "another";
    talk(&mut session, &mut server, at(0));
    assert_eq!(session.state(), &State::Over(Failure::Credentials(USER.to_owned())));
    assert_eq!(server.asked.len(), 2, "a password is not tried again");
}

#[test]
fn forbidden_peer_does_not_affect_others() {
    let (mut session, mut server) = ready();
    server.refuses = Some((CHANNEL_BIND, 403));
    let other: SocketAddr = "198.51.100.2:443".parse().unwrap();
    session.peer(at(1), other);
    talk(&mut session, &mut server, at(1));
    assert_eq!(session.peer(at(1), other), PeerState::Refused(Failure::Forbidden(other.to_string())));
    assert_eq!(session.peers().collect::<Vec<_>>(), [peer()]);
    // A repeated call sends one more request.
    server.refuses = None;
    server.asked.clear();
    assert_eq!([0; 2].map(|_| session.peer(at(2), other)), [0; 2].map(|_| PeerState::Asking));
    talk(&mut session, &mut server, at(2));
    assert_eq!((session.peer(at(2), other), &server.asked[..]), (PeerState::Ready, &[CHANNEL_BIND][..]));
    let v6 = "[2001:db8::1]:1".parse().unwrap();
    assert_eq!(session.peer(at(1), v6), PeerState::Refused(Failure::Family));
}

#[test]
fn server_that_lost_the_allocation_is_detected() {
    let (mut session, mut server) = ready();
    server.refuses = Some((REFRESH, 437));
    server.nonce = b"after a restart";
    session.check(at(3));
    talk(&mut session, &mut server, at(3));
    assert_eq!(session.state(), &State::Over(Failure::Lost));
}

#[test]
fn endless_stale_nonce_ends_the_session() {
    let (mut session, mut server) = ready();
    server.asked.clear();
    session.check(at(3));
    while let Some(request) = session.poll_transmit(at(3)).map(<[u8]>::to_vec) {
        server.nonce = if server.nonce == b"one" { b"another" } else { b"one" };
        let answer = server.answer(&request);
        session.handle(at(3), &answer);
    }
    assert_eq!(session.state(), &State::Over(Failure::Nonsense));
    assert_eq!(server.asked.len(), 5);
}

#[test]
fn unauthenticated_messages_are_ignored() {
    let (mut session, mut server) = (session(), Server::new());
    let first = session.poll_transmit(at(0)).unwrap().to_vec();
    let answer = server.answer(&first);
    session.handle(at(0), &answer);
    let second = session.poll_transmit(at(0)).unwrap().to_vec();
    let id = Message::read(&second).unwrap().id;
    let forged = Writer::new(ALLOCATE, Class::Success, id).put(LIFETIME, &[0, 0, 2, 0]);
    let forged = forged.put_address(XOR_RELAYED_ADDRESS, peer()).sign(b"not the key").finish();
    session.handle(at(0), &forged);
    assert_eq!(session.state(), &State::Asking);
    session.handle(at(0), &server.answer(&second));
    assert_eq!(session.relayed(), Some(relayed()));
}

#[test]
fn secrets_are_not_formatted() {
    let credentials = Credentials::new(USER, "hidden").unwrap();
    assert!(!format!("{credentials:?}").contains("hidden"));
    assert!(Credentials::new("", "a").is_none() && Credentials::new("a", "b\n").is_none());
}
