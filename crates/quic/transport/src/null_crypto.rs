//! Null cipher suite: a handshake and ciphers that keep packet sizes and protect nothing. For simulations, and for tests that put
//! arbitrary frames into authenticated packets. **Never for a network.**

use crate::crypto::{
    DirectionalKeys, HeaderProtectionKey, KeyUpdate, Keys, NewKeys, PacketKey, PacketKeySet, Session, Side,
    Tag, Tls, TlsError,
};
use rustls::Error;
use std::collections::VecDeque;

/// Stand-in for a cipher's tag.
pub const TAG: [u8; 16] = [0; 16];

struct NullKey;

impl HeaderProtectionKey for NullKey {
    fn encrypt_in_place(&self, _: &[u8], _: &mut u8, _: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }

    fn decrypt_in_place(&self, _: &[u8], _: &mut u8, _: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }

    fn sample_len(&self) -> usize {
        16
    }
}

impl PacketKey for NullKey {
    fn encrypt_in_place(&self, _: u64, _: &[u8], _: &mut [u8]) -> Result<Tag, Error> {
        Ok(Tag::from(&TAG[..]))
    }

    fn encrypt_in_place_for_path(&self, _: u32, _: u64, _: &[u8], _: &mut [u8]) -> Result<Tag, Error> {
        Ok(Tag::from(&TAG[..]))
    }

    fn decrypt_in_place<'a>(&self, _: u64, _: &[u8], payload: &'a mut [u8]) -> Result<&'a [u8], Error> {
        payload.strip_suffix(&TAG).ok_or(Error::DecryptError)
    }

    fn decrypt_in_place_for_path<'a>(
        &self,
        _: u32,
        _: u64,
        _: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        payload.strip_suffix(&TAG).ok_or(Error::DecryptError)
    }

    fn tag_len(&self) -> usize {
        16
    }

    fn confidentiality_limit(&self) -> u64 {
        u64::MAX
    }

    fn integrity_limit(&self) -> u64 {
        u64::MAX
    }
}

impl KeyUpdate for NullKey {
    fn next_keys(&mut self) -> PacketKeySet {
        PacketKeySet { local: Box::new(NullKey), remote: Box::new(NullKey) }
    }
}

fn keys() -> Keys {
    let one = || DirectionalKeys { header: Box::new(NullKey), packet: Box::new(NullKey) };
    Keys { local: one(), remote: one() }
}

/// Null TLS of one side. Its handshakes have as many flights as TLS 1.3, and hardly any bytes (no certificates).
#[derive(Clone, Copy, Debug)]
pub struct NullCrypto(pub Side);

impl Tls for NullCrypto {
    fn initial_keys(&self, _: &[u8], _: Side) -> Keys {
        keys()
    }

    fn start(&self, _: &str, params: Vec<u8>) -> Result<Box<dyn Session>, TlsError> {
        let mut session = NullSession { side: self.0, params, ..NullSession::default() };
        if self.0 == Side::Client {
            session.send(0, true);
        }
        Ok(Box::new(session))
    }
}

/// Three messages, each a length and bytes: the client's parameters, nothing and then the server's, and nothing.
struct NullSession {
    side: Side,
    params: Vec<u8>,
    peer: Option<Vec<u8>>,
    received: Vec<u8>,
    messages: usize,
    out: VecDeque<(Vec<u8>, Option<NewKeys>)>,
}

impl Default for NullSession {
    fn default() -> NullSession {
        let (params, received) = (Vec::new(), Vec::new());
        NullSession { side: Side::Client, params, peer: None, received, messages: 0, out: VecDeque::new() }
    }
}

impl NullSession {
    /// Queues a message, with the keys that follow it.
    fn send(&mut self, keys_after: u8, with_params: bool) {
        let body = if with_params { self.params.clone() } else { Vec::new() };
        let mut message = (body.len() as u32).to_be_bytes().to_vec();
        message.extend(body);
        self.queue(message, keys_after);
    }

    fn queue(&mut self, message: Vec<u8>, keys_after: u8) {
        let keys = match keys_after {
            0 => None,
            1 => Some(NewKeys::Handshake(keys())),
            _ => Some(NewKeys::OneRtt(keys(), Box::new(NullKey))),
        };
        self.out.push_back((message, keys));
    }

    fn on_message(&mut self, message: Vec<u8>) {
        self.messages += 1;
        match (self.side, self.messages) {
            (Side::Server, 1) => {
                self.peer = Some(message);
                self.send(1, false);
                self.send(2, true);
            }
            (Side::Client, 1) => self.queue(Vec::new(), 1),
            (Side::Client, 2) => {
                self.peer = Some(message);
                self.send(2, false);
            }
            _ => {}
        }
    }
}

impl Session for NullSession {
    fn read(&mut self, data: &[u8]) -> Result<(), TlsError> {
        self.received.extend_from_slice(data);
        while let Some(head) = self.received.first_chunk::<4>() {
            let len = u32::from_be_bytes(*head) as usize;
            if len > 10_000 {
                return Err(TlsError { alert: 50, reason: "no message".to_owned() });
            }
            if self.received.len() < 4 + len {
                break;
            }
            let message = self.received.drain(..4 + len).skip(4).collect();
            self.on_message(message);
        }
        Ok(())
    }

    fn write(&mut self, out: &mut Vec<u8>) -> Option<NewKeys> {
        let (message, keys) = self.out.pop_front()?;
        out.extend(message);
        keys
    }

    fn is_handshaking(&self) -> bool {
        self.messages < 2
    }

    fn peer_params(&self) -> Option<&[u8]> {
        self.peer.as_deref()
    }

    fn alpn(&self) -> Option<&[u8]> {
        None
    }

    fn peer_certificates(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}
