// The body of the fuzz target `carriers`, included by it and by the tests of vmcc-tcp.

/// Records that a session may have to send at one moment.
const MAX_RECORDS: usize = 10_000;

struct Play {
    now: Time,
    /// The session under test, and the peer that gives it valid greetings.
    sessions: [Option<Session>; 2],
    acceptor: Acceptor,
    buffer: Vec<u8>,
}

impl Play {
    fn new(is_server: bool) -> Play {
        let now = Time::ZERO + Span::from_secs(1);
        let config = Config { connection_window: 1 << 16, stream_window: 1 << 15, ..Config::default() };
        let client = |seed| Session::connect(now, config.clone(), Secrets([seed; 32]));
        let tested = (!is_server).then(|| client(1));
        let mut play = Play { now, sessions: [tested, Some(client(2))], acceptor: Acceptor::default(), buffer: Vec::new() };
        play.dial();
        play
    }

    /// Adds a carrier: the client's own, or one of the peer whose greeting the server accepts.
    fn dial(&mut self) {
        let is_server = self.sessions[0].as_ref().is_none_or(|session| !session.is_client());
        if !is_server {
            let session = self.sessions[0].as_mut().expect("a client");
            session.add_carrier(self.now, Binding::PLAIN);
            return;
        }
        let peer = self.sessions[1].as_mut().expect("a peer");
        if peer.add_carrier(self.now, Binding::PLAIN).is_none() {
            return;
        }
        let mut greeting = Vec::new();
        peer.poll_transmit(self.now, &mut greeting);
        match Acceptor::default().read(&mut &greeting[..]) {
            Ok(Some(Greeting::Hello(hello))) => {
                let session = Session::accept(self.now, Config::default(), Secrets([3; 32]), &hello, Binding::PLAIN);
                self.sessions[0] = Some(session);
            }
            Ok(Some(Greeting::Join(join))) => {
                if let Some(session) = &mut self.sessions[0] {
                    let _ = session.join(self.now, &join, Binding::PLAIN);
                }
            }
            other => panic!("a session's own greeting: {other:?}"),
        }
    }

    /// Lets the session say everything; the peer hears it, so that it can join.
    fn drain(&mut self) {
        let [Some(session), peer] = &mut self.sessions else { return };
        for count in 0.. {
            assert!(count < MAX_RECORDS, "it never ends");
            self.buffer.clear();
            let Some(carrier) = session.poll_transmit(self.now, &mut self.buffer) else { break };
            assert!(!self.buffer.is_empty());
            if let Some(peer) = peer {
                peer.handle_bytes(self.now, carrier, &self.buffer);
            }
        }
        while session.poll_event().is_some() {}
        assert!(session.carrier_count() <= Config::default().max_carriers);
        assert!(session.poll_timeout().is_none_or(|at| at > self.now), "it is due, and nothing is done");
    }

    fn hear(&mut self, carrier: u64, bytes: &[u8]) {
        if let Some(session) = &mut self.sessions[0] {
            session.handle_bytes(self.now, carrier, bytes);
        }
    }

    /// Frames in a record with a right header.
    fn hear_record(&mut self, carrier: u64, frames: &[u8]) {
        let len = frames.len().min(16_000);
        if len > 0 {
            let mut record = (len as u16 | 0x4000).to_be_bytes().to_vec();
            record.extend_from_slice(&frames[..len]);
            self.hear(carrier, &record);
        }
    }

    fn use_streams(&mut self, what: u8, stream: u64) {
        let Some(session) = &mut self.sessions[0] else { return };
        // The session may be closed, and streams unknown.
        match what % 5 {
            0 => _ = session.open_stream(Dir::Bi),
            1 => _ = session.write(stream, &[7; 3000]),
            2 => _ = session.read(stream, &mut [0; 4000]),
            3 => _ = session.finish(stream),
            _ => _ = session.reset(stream, 1),
        }
    }
}

/// Each step: what (one byte), a carrier and a length (two bytes), and this many bytes.
fn fuzz_carriers(mut data: &[u8]) {
    let mut play = Play::new(data.first().is_some_and(|byte| byte & 0x80 != 0));
    play.drain();
    while let [what, carrier, len, rest @ ..] = data {
        let (bytes, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        data = rest;
        let id = u64::from(carrier % 10);
        match what & 15 {
            0..=2 => play.hear(id, bytes),
            3..=6 => play.hear_record(id, bytes),
            // A client's first answer: a WELCOME with limits that may be anything.
            7 => play.hear_record(id, &[b"\x21vmT1", &[5; 32][..], bytes].concat()),
            8 => _ = play.acceptor.read(&mut &bytes[..]),
            9 => play.dial(),
            10 => {
                play.now = play.sessions[0].as_ref().and_then(Session::poll_timeout).unwrap_or(play.now);
                if let Some(session) = &mut play.sessions[0] {
                    session.handle_timeout(play.now);
                }
            }
            11 | 12 => play.use_streams(what >> 4, u64::from(carrier % 8)),
            13 => {
                let (timeouts, queued, blocked) = (u32::from(*len) % 2, u64::from(*carrier) << 8, carrier & 16 != 0);
                let info = CarrierInfo { timeouts, queued, blocked, ..CarrierInfo::default() };
                if let Some(session) = &mut play.sessions[0] {
                    session.set_info(play.now, id, info);
                    session.set_backup(id, carrier & 8 != 0);
                }
            }
            14 => {
                if let Some(session) = &mut play.sessions[0] {
                    session.carrier_closed(play.now, id, "closed");
                }
            }
            _ => play.now += Span::from_ms(u64::from(*carrier)),
        }
        if let Some(session) = &mut play.sessions[0]
            && session.poll_timeout().is_some_and(|at| at <= play.now)
        {
            session.handle_timeout(play.now);
        }
        play.drain();
    }
}
