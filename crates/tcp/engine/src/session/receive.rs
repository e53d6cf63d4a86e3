//! Records received: frames of streams, acknowledgments, and what the peer says of carriers.

use super::{Phase, Session};
use crate::accept::MAX_GREETING;
use crate::carrier::{Control, Sent, State};
use crate::error::{CarrierError, SessionError};
use crate::event::{CarrierId, Event};
use crate::record::MAX_BODY;
use crate::wire::{Ack, Frame};
use vmcc_streams::varint::Reader;
use vmcc_units::time::Time;

/// Records after which an acknowledgment does not wait any longer.
const RECORDS_PER_ACK: u64 = 2;
/// Events that the peer can cause without bound; more are dropped until some were polled.
const MAX_ADDRESS_EVENTS: usize = 256;

/// Fault in a record, of the carrier or of the session.
enum Fault {
    Carrier(CarrierError),
    Session(SessionError),
}

impl Session {
    /// Takes bytes that a carrier's connection has delivered.
    pub fn handle_bytes(&mut self, now: Time, carrier: CarrierId, mut input: &[u8]) {
        let Some(slot) = self.slot_of(carrier) else { return };
        self.carriers[slot].bytes_in += input.len() as u64;
        let mut deframer = std::mem::take(&mut self.carriers[slot].deframer);
        let mut scratch = Vec::new();
        let mut fault = None;
        while fault.is_none() && self.phase != Phase::Closed && self.slot_of(carrier) == Some(slot) {
            // The answer to a greeting is short: other protocols are recognized by what would be a long record.
            let is_greeting = self.carriers[slot].state == State::Greeting;
            let max = if is_greeting { MAX_GREETING } else { MAX_BODY };
            match deframer.next(&mut input, &mut scratch, max) {
                Ok(Some(body)) => fault = self.on_record(now, slot, body).err(),
                Ok(None) => break,
                Err(_) => fault = Some(Fault::Carrier(CarrierError::Malformed)),
            }
        }
        if let Some(slot) = self.slot_of(carrier) {
            self.carriers[slot].deframer = deframer;
            if let Some(Fault::Carrier(error)) = &fault {
                self.end_carrier(now, slot, error.clone());
            }
        }
        if let Some(Fault::Session(error)) = fault {
            self.end(error);
        }
    }

    fn on_record(&mut self, now: Time, slot: usize, body: &[u8]) -> Result<(), Fault> {
        if self.carriers[slot].state == State::Greeting {
            return self.on_answer(slot, body).map_err(Fault::Carrier);
        }
        let mut reader = Reader::new(body);
        let mut counted = false;
        while !reader.is_empty() {
            let frame = Frame::decode(&mut reader).map_err(|_| Fault::Carrier(CarrierError::Malformed))?;
            counted |= frame.is_counted();
            self.on_frame(now, slot, frame)?;
        }
        let carrier = &mut self.carriers[slot];
        if counted && carrier.is_open() {
            carrier.received += 1;
            if carrier.received - carrier.reported >= RECORDS_PER_ACK {
                carrier.ack_now = true;
            } else if carrier.ack_due.is_none() {
                carrier.ack_due = Some(now + self.config.max_ack_delay);
            }
        }
        Ok(())
    }

    fn on_frame(&mut self, now: Time, slot: usize, frame: Frame<'_>) -> Result<(), Fault> {
        match frame {
            Frame::Ping => {}
            Frame::Ack(ack) => self.on_ack(now, &ack).map_err(Fault::Carrier)?,
            Frame::Stream(frame) => {
                self.streams
                    .on_frame(frame)
                    .map_err(|fault| Fault::Session(SessionError::Violation(fault)))?;
            }
            Frame::Close { code, reason } => {
                let reason = String::from_utf8_lossy(reason).into_owned();
                return Err(Fault::Session(SessionError::PeerClosed { code, reason }));
            }
            Frame::Abandon(number) => {
                if let Some(other) = self.slot_of(number).filter(|&other| other != slot) {
                    self.end_carrier(now, other, CarrierError::Abandoned);
                }
            }
            Frame::Address { added, address } => {
                if self.events.len() < MAX_ADDRESS_EVENTS {
                    let event = if added { Event::AddressAdded } else { Event::AddressRemoved };
                    self.events.push_back(event(address));
                }
            }
            Frame::Hello(_) | Frame::Welcome(_) | Frame::Join(_) | Frame::Joined(_) | Frame::Refused(_) => {
                return Err(Fault::Carrier(CarrierError::Malformed));
            }
        }
        Ok(())
    }

    fn on_ack(&mut self, now: Time, ack: &Ack<'_>) -> Result<(), CarrierError> {
        for (number, count) in ack.counts() {
            // One that has ended here has returned its records before.
            let Some(slot) = self.slot_of(number) else { continue };
            if count > self.carriers[slot].sent() {
                return Err(CarrierError::Malformed);
            }
            if count > self.carriers[slot].acked {
                self.on_records_acked(now, slot, count);
            }
        }
        Ok(())
    }

    fn on_records_acked(&mut self, now: Time, slot: usize, count: u64) {
        let carrier = &mut self.carriers[slot];
        let newly =
            usize::try_from(count - carrier.acked).unwrap_or(usize::MAX).min(carrier.outstanding.len());
        let records: Vec<_> = carrier.outstanding.drain(..newly).collect();
        carrier.acked = count;
        carrier.progress_at = now;
        if let Some(newest) = records.last().filter(|record| !record.returned) {
            // Counts stand for sequence numbers: all that matters is when a round trip has passed.
            let (una, nxt) = (carrier.acked as u32, carrier.sent() as u32);
            let rtt = now.since(newest.sent);
            carrier.rtt.sample_min(now, rtt);
            carrier.rtt.sample(rtt, una, nxt, self.config.rto_min);
            self.check_on_time(now, slot, rtt);
        }
        for frame in records.into_iter().flat_map(|record| record.frames) {
            match frame {
                Sent::Range(sent) => self.streams.on_acked(sent.id, sent.range, sent.fin),
                Sent::Control(Control::Stream(vmcc_streams::Control::ResetStream(id))) => {
                    self.streams.on_reset_acked(id);
                }
                Sent::Control(_) => {}
            }
        }
        self.revive(now, slot);
    }
}
