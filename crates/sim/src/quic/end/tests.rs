//! Tests of the memory that ends hold, which no figure of a run shows.

use std::collections::BTreeMap;

use super::stream::{CHUNK, MAX_UNSENT_WINDOWS};
use super::*;
use crate::engine::TimerId;
use crate::packet::Sack;
use vmcc_cc::{Algorithm, Params};

/// A path of one millisecond each way, of whatever rate.
struct Line {
    now: Time,
    flying: BTreeMap<(Time, usize), (u32, Vec<u8>)>,
    sent: usize,
    /// By the end.
    due: [Time; 2],
}

impl Wire for Line {
    fn now(&self) -> Time {
        self.now
    }

    fn send(&mut self, _packet: Packet) {}

    fn send_with_sack(&mut self, _packet: Packet, _sack: &Sack) {}

    fn send_with_payload(&mut self, packet: Packet, payload: &[u8]) {
        self.sent += 1;
        self.flying.insert((self.now + Span::from_us(1_000), self.sent), (packet.to, payload.to_vec()));
    }

    fn arm(&mut self, _timer: &mut Timer, id: TimerId, at: Time) {
        self.due[Purpose::of(id).1 as usize] = at;
    }

    fn expired(&mut self, _timer: &mut Timer, _id: TimerId) -> bool {
        true
    }
}

/// A sender, 0, and a reader, until a moment.
fn run(app: App, send_window: u64, stop: Time, until: Time) -> [End; 2] {
    let algorithm = Algorithm::by_name("reno").expect("it is registered");
    let params = Params::defaults(algorithm);
    let config = Arc::new(Config {
        algorithm,
        params,
        send_window,
        initial_mtu: 1400,
        max_mtu: 1400,
        ..Config::default()
    });
    let spec = |to: u32| Spec {
        host: 0,
        to,
        routes: vec![RouteId::default()],
        class: 0,
        config: config.clone(),
        seed: [to as u8; 32],
        start: Time::ZERO,
        stop,
        sample_every: Span::ZERO,
        group: 0,
        measured_from: Time::ZERO,
    };
    let mut ends = [End::new(spec(1), app), End::new(spec(0), App::Reads)];
    let mut line = Line { now: Time::ZERO, flying: BTreeMap::new(), sent: 0, due: [Time::NEVER; 2] };
    let mut rtts = RttGroups::default();
    (0..2).for_each(|index| ends[index].begin(&mut line, index as u32));
    loop {
        let arrives = line.flying.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
        let wakes = line.due[0].min(line.due[1]);
        line.now = arrives.min(wakes);
        if line.now >= until {
            return ends;
        }
        if arrives <= wakes {
            let Some((_, (to, payload))) = line.flying.pop_first() else { return ends };
            ends[to as usize].receive(&mut line, &Packet::default(), &payload, &mut rtts);
        } else {
            let index = usize::from(line.due[1] == wakes);
            line.due[index] = Time::NEVER;
            ends[index].wake(&mut line, &mut rtts);
        }
    }
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::from_us(ms * 1_000)
}

#[test]
fn completed_transfers_free_their_buffers() {
    let ends = run(App::Sends(Writer::new(Some(300_000))), 1 << 20, Time::NEVER, ms(5_000));
    assert_eq!(ends[1].delivered.bytes, 300_000);
    assert!(ends[1].delivered.complete < ms(100));
    for end in &ends {
        assert!(end.engine.is_none() && end.buffer.capacity() == 0 && end.out.capacity() == 0, "{end:?}");
    }
}

#[test]
fn memory_follows_the_windows_not_the_send_buffer() {
    let mut ends = run(App::Sends(Writer::new(None)), 64 << 20, Time::NEVER, ms(9));
    let (handle, stream) = (ends[0].connection.expect("connected"), ends[0].stream.expect("open"));
    let connection = ends[0].engine_of(handle).expect("not over");
    let window: u64 = connection.paths().map(|path| u64::from(path.cwnd_pkt) * u64::from(path.mtu)).sum();
    let unsent = connection.unsent(stream);
    assert!(
        unsent > window && unsent < (MAX_UNSENT_WINDOWS + 1) * window + CHUNK.len() as u64,
        "{unsent} of {window}"
    );
    assert!(unsent < 32 << 20, "{unsent}");
}

#[test]
fn endless_stream_stops_with_the_sent_bytes() {
    let ends = run(App::Sends(Writer::new(None)), 1 << 20, ms(8), ms(5_000));
    let delivered = ends[1].delivered;
    // Nothing was lost; what was on its way at the stop has come.
    assert!(delivered.complete > ms(8) && delivered.complete <= ms(10), "{delivered:?}");
    assert!(ends.iter().all(|end| end.engine.is_none()));
}
