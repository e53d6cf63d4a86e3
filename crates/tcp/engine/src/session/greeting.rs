//! Carriers that begin: HELLO and WELCOME make the session, JOIN and JOINED add to it.

use super::{Phase, Session};
use crate::carrier::{Carrier, State};
use crate::config::Config;
use crate::error::{CarrierError, JoinError, Refusal, SessionError};
use crate::event::{CarrierId, Event};
use crate::keys::{Binding, Mac, Role, Secrets, SessionKey};
use crate::wire::{self, Frame, Hello, Join, Welcome};
use vmcc_streams::PeerLimits;
use vmcc_streams::varint::Reader;
use vmcc_units::time::Time;

/// Numbers that a client may skip: joins that were lost on the way. Bounds the set of used numbers.
const MAX_SKIPPED_NUMBERS: u64 = 1024;

impl Session {
    /// A client's session. It begins with the first [`add_carrier`](Self::add_carrier).
    pub fn connect(_now: Time, config: Config, secrets: Secrets) -> Session {
        let (nonce, _) = secrets.split();
        Session::new(config, Role::Client, nonce, [0; 16])
    }

    /// A server's session, for a HELLO that came over the carrier with this binding. The carrier's number is 0.
    pub fn accept(now: Time, config: Config, secrets: Secrets, hello: &Hello, binding: Binding) -> Session {
        let (nonce, token) = secrets.split();
        let mut session = Session::new(config, Role::Server, nonce, token);
        session.begin(SessionKey::derive(&binding, &hello.nonce, &nonce, &token), &hello.limits);
        let welcome = Welcome { nonce, token, limits: session.own_limits() };
        session.used.insert(0..1);
        let carrier = session.new_carrier(now, 0, State::Open, binding);
        carrier.urgent = wire::record(|out| wire::put_welcome(out, &welcome));
        session.events.push_back(Event::CarrierOpened { carrier: 0 });
        session
    }

    fn own_limits(&self) -> PeerLimits {
        let stream = self.config.limits().initial_stream_limit();
        PeerLimits {
            max_data: self.config.connection_window,
            bidi_remote: stream,
            bidi_local: stream,
            uni: stream,
            max_streams_bidi: self.config.max_streams_bidi,
            max_streams_uni: self.config.max_streams_uni,
        }
    }

    fn begin(&mut self, key: SessionKey, limits: &PeerLimits) {
        self.key = Some(key);
        self.streams.set_peer(limits);
        self.phase = Phase::Open;
        self.events.push_back(Event::Connected);
    }

    /// Puts a carrier into a free slot.
    fn new_carrier(&mut self, now: Time, number: CarrierId, state: State, binding: Binding) -> &mut Carrier {
        let carrier = Carrier::new(now, number, state, binding, self.config.unsent_limit);
        let slot = self.carriers.iter().position(|own| own.state == State::Closed);
        let slot = slot.unwrap_or(self.carriers.len());
        if slot == self.carriers.len() {
            self.carriers.push(carrier);
        } else {
            self.carriers[slot] = carrier;
        }
        self.orphaned_at = None;
        self.refresh(slot);
        &mut self.carriers[slot]
    }

    /// Makes room for one more carrier, if need be by ending one that is silent.
    fn make_room(&mut self, now: Time) -> bool {
        let live = self.carriers.iter().filter(|own| own.state != State::Closed).count();
        if live < self.config.max_carriers() {
            return true;
        }
        let suspects = (0..self.carriers.len()).filter(|&slot| self.carriers[slot].is_suspect());
        let Some(slot) = suspects.min_by_key(|&slot| self.carriers[slot].suspect_since) else { return false };
        self.end_carrier(now, slot, CarrierError::Silent);
        true
    }

    /// Adds a connection that a client has made. The first one makes the session; further ones can join once it is connected.
    /// None if that is not so yet, or there are as many as there may be.
    pub fn add_carrier(&mut self, now: Time, binding: Binding) -> Option<CarrierId> {
        let first = self.phase == Phase::Connecting && self.carriers.is_empty();
        if self.role != Role::Client || !(first || self.phase == Phase::Open) || !self.make_room(now) {
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        let greeting = match &self.key {
            None => {
                let hello = Hello { nonce: self.nonce, limits: self.own_limits() };
                wire::record(|out| wire::put_hello(out, &hello))
            }
            Some(key) => {
                let mac = key.prove(Role::Client, number, &binding);
                let join = Join { token: self.token, number, mac };
                wire::record(|out| wire::put_join(out, &join))
            }
        };
        self.new_carrier(now, number, State::Greeting, binding).urgent = greeting;
        Some(number)
    }

    /// Adds a carrier whose JOIN came over a connection with this binding.
    ///
    /// # Errors
    /// The join is wrong, was used before, or there are too many carriers: send [`refusal`](crate::refusal) and close the connection.
    pub fn join(&mut self, now: Time, join: &Join, binding: Binding) -> Result<CarrierId, JoinError> {
        let key = self.key.as_ref().filter(|_| self.phase == Phase::Open && self.role == Role::Server);
        let key = key.ok_or(Refusal::UnknownSession)?;
        let number = join.number;
        let contiguous = self.used.first().map_or(0, |first| first.end);
        let is_fresh = !self.used.contains(number) && number < contiguous + MAX_SKIPPED_NUMBERS;
        if join.token != self.token || !key.is_proof(Role::Client, number, &binding, &join.mac) || !is_fresh {
            return Err(Refusal::NotAuthentic);
        }
        let mac = key.prove(Role::Server, number, &binding);
        if !self.make_room(now) {
            return Err(Refusal::TooManyCarriers);
        }
        self.used.insert(number..number + 1);
        let carrier = self.new_carrier(now, number, State::Open, binding);
        carrier.urgent = wire::record(|out| wire::put_joined(out, &mac));
        self.events.push_back(Event::CarrierOpened { carrier: number });
        Ok(number)
    }

    /// Takes the answer to a client's greeting.
    pub(super) fn on_answer(&mut self, slot: usize, body: &[u8]) -> Result<(), CarrierError> {
        let mut reader = Reader::new(body);
        let frame = Frame::decode(&mut reader).map_err(|_| CarrierError::Malformed)?;
        if !reader.is_empty() {
            return Err(CarrierError::Malformed);
        }
        match frame {
            Frame::Welcome(welcome) if self.key.is_none() => self.on_welcome(slot, &welcome),
            Frame::Joined(mac) if self.key.is_some() => self.on_joined(slot, &mac)?,
            Frame::Refused(refusal) => {
                let refusal = refusal.unwrap_or(Refusal::NotAuthentic);
                if refusal == Refusal::UnknownSession && self.key.is_some() && !self.has_open_carrier() {
                    self.end(SessionError::Lost);
                }
                return Err(CarrierError::Refused(refusal));
            }
            _ => return Err(CarrierError::Malformed),
        }
        let carrier = &mut self.carriers[slot];
        carrier.state = State::Open;
        let number = carrier.number;
        self.refresh(slot);
        self.events.push_back(Event::CarrierOpened { carrier: number });
        Ok(())
    }

    fn on_welcome(&mut self, slot: usize, welcome: &Welcome) {
        self.token = welcome.token;
        let binding = self.carriers[slot].binding;
        let key = SessionKey::derive(&binding, &self.nonce, &welcome.nonce, &welcome.token);
        self.begin(key, &welcome.limits);
    }

    fn on_joined(&self, slot: usize, mac: &Mac) -> Result<(), CarrierError> {
        let carrier = &self.carriers[slot];
        let key = self.key.as_ref().ok_or(CarrierError::Malformed)?;
        let is_proof = key.is_proof(Role::Server, carrier.number, &carrier.binding, mac);
        if is_proof { Ok(()) } else { Err(CarrierError::WrongPeer) }
    }
}
