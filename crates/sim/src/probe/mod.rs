//! Probes: small requests at a steady pace, answered at once. What packets on a path go through, measured by packets.
//!
//! Modelled: a request carries its number and the time when it left; the far end sends both back, with whether the request was
//! marked. Requests are equally spaced, or a Poisson process (RFC 2330, section 11.1.1), so that they cannot fall into step with what
//! they measure. ECN-capable if asked for.
//! Not modelled: any reaction to loss or marks; clocks that differ.

mod message;
#[cfg(test)]
mod tests;
mod transport;

use message::Message;
pub(crate) use transport::make;

use crate::endpoint::{Purpose, Table, Wire, kind};
use crate::engine::{Timer, TimerId};
use crate::packet::{Packet, RouteId, Sack};
use crate::rng::{Stream, exponential_span};
use crate::time::{Span, Time};

/// Those of one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes {
    probers: Vec<Prober>,
    echoes: Vec<Echo>,
}

/// Sending parameters of an end.
#[derive(Clone, Copy, Debug)]
struct Sending {
    /// The node.
    host: u32,
    route: RouteId,
    /// Index of the other end in its shard.
    to: u32,
    size_bytes: u16,
    class: u8,
    /// Packets are ECN-capable.
    ecn: bool,
}

/// Sender of requests.
#[derive(Clone, Debug)]
struct Prober {
    sending: Sending,
    /// No request at or after this time.
    stop: Time,
    interval: Span,
    /// Draws the gaps, whose mean the interval is then.
    random: Option<Stream>,
    next: Time,
    /// The path that it is on now.
    path: Option<usize>,
    timer: Timer,
    /// By number.
    sent: Vec<Record>,
}

/// Sender of answers.
#[derive(Clone, Copy, Debug)]
struct Echo {
    sending: Sending,
}

/// One request.
#[derive(Clone, Copy, Debug)]
struct Record {
    at: Time,
    path: Option<usize>,
    answer: Option<Answer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    rtt: Span,
    /// The request arrived with congestion experienced.
    marked: bool,
}

impl Sending {
    fn send<W: Wire>(&self, wire: &mut W, flags: u16, message: &Message) {
        let packet = Packet {
            sent: wire.now(),
            to: self.to,
            route: self.route,
            size_bytes: self.size_bytes,
            flags: flags | if self.ecn { Packet::ECT } else { 0 },
            class: self.class,
            kind: kind::PROBE,
            ..Packet::default()
        };
        wire.send_with_payload(packet, &message.encode());
    }
}

impl Prober {
    fn arm<W: Wire>(&mut self, wire: &mut W, index: u32) {
        if self.next < self.stop {
            wire.arm(&mut self.timer, Purpose::PROBE.id(index), self.next);
        }
    }

    /// A request is due; a host that was off sends late, and keeps its pace from then.
    fn ask<W: Wire>(&mut self, wire: &mut W, index: u32) {
        let now = wire.now();
        let number = self.sent.len() as u32;
        self.sent.push(Record { at: now, path: self.path, answer: None });
        self.sending.send(wire, 0, &Message { number, sent: now, marked: false });
        let gap = match &mut self.random {
            Some(stream) => exponential_span(stream, self.interval),
            None => self.interval,
        };
        self.next = now + gap.max(Span::from_ps(1));
        self.arm(wire, index);
    }

    fn answered(&mut self, now: Time, message: &Message) {
        let Some(record) = self.sent.get_mut(message.number as usize) else { return };
        record.answer = Some(Answer { rtt: now.since(message.sent), marked: message.marked });
    }
}

impl Table for Probes {
    fn start<W: Wire>(&mut self, wire: &mut W) {
        for (i, prober) in self.probers.iter_mut().enumerate() {
            prober.arm(wire, i as u32);
        }
    }

    /// Nothing of ours comes without a payload.
    fn on_packet<W: Wire>(&mut self, _wire: &mut W, _packet: &Packet, _sack: &Sack) {}

    fn on_payload<W: Wire>(&mut self, wire: &mut W, packet: &Packet, payload: &[u8]) {
        let Some(message) = Message::decode(payload) else { return };
        if packet.has(Packet::ACK) {
            self.probers[packet.to as usize].answered(wire.now(), &message);
        } else {
            let answer = Message { marked: packet.has(Packet::CE), ..message };
            self.echoes[packet.to as usize].sending.send(wire, Packet::ACK, &answer);
        }
    }

    fn host_of(&self, packet: &Packet) -> Option<u32> {
        let to = packet.to as usize;
        let answer = packet.has(Packet::ACK);
        Some(if answer { self.probers[to].sending.host } else { self.echoes[to].sending.host })
    }

    fn timer(&mut self, id: TimerId) -> Option<(Option<u32>, &mut Timer)> {
        let prober = self.probers.get_mut(Purpose::of(id).1 as usize)?;
        Some((Some(prober.sending.host), &mut prober.timer))
    }

    fn on_timer<W: Wire>(&mut self, wire: &mut W, id: TimerId) {
        let index = Purpose::of(id).1;
        let prober = &mut self.probers[index as usize];
        if wire.now() < prober.stop {
            prober.ask(wire, index);
        }
    }
}
