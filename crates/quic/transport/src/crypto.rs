//! The seam to cryptography: TLS by `rustls`, everything else by the library beneath it.
//!
//! The engine knows [`Tls`] and [`Session`] only, so a simulator may bring one that keeps sizes and encrypts nothing.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{constant_time, hmac};
use rustls::pki_types::ServerName;
use rustls::quic::{self, Secrets, Suite, Version};
use rustls::{CipherSuite, SupportedCipherSuite};
use std::sync::Arc;

pub use rustls::Side;
pub use rustls::quic::{DirectionalKeys, HeaderProtectionKey, Keys, PacketKey, PacketKeySet, Tag};

/// Error of the handshake, as a TLS alert.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct TlsError {
    /// The alert's code.
    pub alert: u8,
    /// The fault.
    pub reason: String,
}

/// Keys that the handshake has brought.
pub enum NewKeys {
    /// For Handshake packets.
    Handshake(Keys),
    /// For packets with short headers.
    OneRtt(Keys, Box<dyn KeyUpdate>),
}

/// Makes the packet keys of one key phase after the other (RFC 9001 section 6).
pub trait KeyUpdate: Send {
    /// Those of the next phase.
    fn next_keys(&mut self) -> PacketKeySet;
}

/// One end of a handshake.
pub trait Session: Send {
    /// Takes what arrived in CRYPTO frames of one encryption level, in order.
    ///
    /// # Errors
    /// The handshake has failed.
    fn read(&mut self, data: &[u8]) -> Result<(), TlsError>;
    /// Appends what is to be sent at the present level; keys begin the next one.
    fn write(&mut self, out: &mut Vec<u8>) -> Option<NewKeys>;
    /// Returns true while the handshake goes on.
    fn is_handshaking(&self) -> bool;
    /// Transport parameters of the peer, once they have come.
    fn peer_params(&self) -> Option<&[u8]>;
    /// The application protocol that was agreed.
    fn alpn(&self) -> Option<&[u8]>;
    /// The peer's certificates, its own first; none if it showed none.
    fn peer_certificates(&self) -> Vec<Vec<u8>>;
}

/// Begins handshakes of one side.
pub trait Tls: Send + Sync {
    /// Keys of Initial packets, which follow from the first destination connection id of the client.
    fn initial_keys(&self, dcid: &[u8], side: Side) -> Keys;
    /// Begins a handshake; a client says with whom.
    ///
    /// # Errors
    /// The name is none, or the configuration cannot be used for QUIC.
    fn start(&self, server_name: &str, params: Vec<u8>) -> Result<Box<dyn Session>, TlsError>;
}

/// A client's handshakes, by `rustls`.
#[derive(Clone, Debug)]
pub struct ClientTls(pub Arc<rustls::ClientConfig>);

/// A server's handshakes, by `rustls`.
#[derive(Clone, Debug)]
pub struct ServerTls(pub Arc<rustls::ServerConfig>);

impl Tls for ClientTls {
    fn initial_keys(&self, dcid: &[u8], side: Side) -> Keys {
        initial_suite(self.0.crypto_provider()).keys(dcid, side, Version::V1)
    }

    fn start(&self, server_name: &str, params: Vec<u8>) -> Result<Box<dyn Session>, TlsError> {
        let refuse = |reason: String| TlsError { alert: 80, reason };
        let name = ServerName::try_from(server_name.to_owned()).map_err(|_| {
            refuse(format!("`{server_name}` is no server name; give a DNS name or an address"))
        })?;
        let session = quic::ClientConnection::new(self.0.clone(), Version::V1, name, params);
        Ok(Box::new(quic::Connection::Client(session.map_err(|e| refuse(e.to_string()))?)))
    }
}

impl Tls for ServerTls {
    fn initial_keys(&self, dcid: &[u8], side: Side) -> Keys {
        initial_suite(self.0.crypto_provider()).keys(dcid, side, Version::V1)
    }

    fn start(&self, _: &str, params: Vec<u8>) -> Result<Box<dyn Session>, TlsError> {
        let session = quic::ServerConnection::new(self.0.clone(), Version::V1, params)
            .map_err(|e| TlsError { alert: 80, reason: e.to_string() })?;
        Ok(Box::new(quic::Connection::Server(session)))
    }
}

/// The suite of Initial packets, which are protected with AES-128-GCM (RFC 9001 section 5.2).
fn initial_suite(provider: &rustls::crypto::CryptoProvider) -> Suite {
    let quic = |suite: &SupportedCipherSuite| match suite {
        SupportedCipherSuite::Tls13(suite) if suite.common.suite == CipherSuite::TLS13_AES_128_GCM_SHA256 => {
            suite.quic_suite()
        }
        _ => None,
    };
    let own = provider.cipher_suites.iter().find_map(quic);
    let usual = || quic(&rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256);
    own.or_else(usual).expect("AES-128-GCM is made for QUIC")
}

impl Session for quic::Connection {
    fn read(&mut self, data: &[u8]) -> Result<(), TlsError> {
        self.read_hs(data).map_err(|error| TlsError {
            // `internal_error` where TLS names none.
            alert: self.alert().map_or(80, u8::from),
            reason: error.to_string(),
        })
    }

    fn write(&mut self, out: &mut Vec<u8>) -> Option<NewKeys> {
        Some(match self.write_hs(out)? {
            quic::KeyChange::Handshake { keys } => NewKeys::Handshake(keys),
            quic::KeyChange::OneRtt { keys, next } => NewKeys::OneRtt(keys, Box::new(next)),
        })
    }

    fn is_handshaking(&self) -> bool {
        (**self).is_handshaking()
    }

    fn peer_params(&self) -> Option<&[u8]> {
        self.quic_transport_parameters()
    }

    fn alpn(&self) -> Option<&[u8]> {
        self.alpn_protocol()
    }

    fn peer_certificates(&self) -> Vec<Vec<u8>> {
        let certificates = (**self).peer_certificates().unwrap_or_default();
        certificates.iter().map(|certificate| certificate.to_vec()).collect()
    }
}

impl KeyUpdate for Secrets {
    fn next_keys(&mut self) -> PacketKeySet {
        self.next_packet_keys()
    }
}

/// The integrity tag of a Retry (RFC 9001 section 5.8).
pub(crate) fn retry_tag(original_dcid: &[u8], retry: &[u8]) -> [u8; 16] {
    const KEY: [u8; 16] = 0xbe0c_690b_9f66_575a_1d76_6b54_e368_c84e_u128.to_be_bytes();
    const NONCE: [u8; 12] = [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];
    let mut pseudo = vec![original_dcid.len() as u8];
    pseudo.extend_from_slice(original_dcid);
    pseudo.extend_from_slice(retry);
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &KEY).expect("a key of 16 bytes"));
    let nonce = Nonce::assume_unique_for_key(NONCE);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(pseudo), &mut []).expect("nothing to encrypt");
    tag.as_ref().try_into().expect("a tag of 16 bytes")
}

/// A key of an endpoint: tokens and random bytes follow from it.
#[derive(Clone, Debug)]
pub(crate) struct Secret(hmac::Key);

impl Secret {
    pub(crate) fn new(bytes: &[u8]) -> Secret {
        Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Sixteen bytes that only who has the key can make.
    pub(crate) fn tag(&self, data: &[u8]) -> [u8; 16] {
        let tag = hmac::sign(&self.0, data);
        *tag.as_ref().first_chunk().expect("32 bytes")
    }

    pub(crate) fn is_tag(&self, data: &[u8], tag: &[u8]) -> bool {
        is_same(&self.tag(data), tag)
    }

    fn derive(&self, data: &[u8]) -> Secret {
        Secret::new(hmac::sign(&self.0, data).as_ref())
    }
}

/// Returns true if two secrets are equal, in a time that does not depend on the first difference.
pub(crate) fn is_same(a: &[u8], b: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(a, b).is_ok()
}

/// Random bytes from a seed: HMAC-SHA256 over a counter.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    secret: Secret,
    counter: u64,
}

impl Random {
    pub(crate) fn new(seed: &[u8]) -> Random {
        Random { secret: Secret::new(seed), counter: 0 }
    }

    /// Another source, which tells nothing of this one.
    pub(crate) fn split(&mut self) -> Random {
        let label = self.next_label(b's');
        let secret = self.secret.derive(&label);
        Random { secret, counter: 0 }
    }

    /// A key.
    pub(crate) fn secret(&mut self) -> Secret {
        let label = self.next_label(b'k');
        self.secret.derive(&label)
    }

    fn next_label(&mut self, kind: u8) -> [u8; 9] {
        self.counter += 1;
        let mut label = [kind; 9];
        label[1..].copy_from_slice(&self.counter.to_be_bytes());
        label
    }

    pub(crate) fn bytes(&mut self) -> [u8; 16] {
        let label = self.next_label(b'b');
        self.secret.tag(&label)
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_be_bytes(*self.bytes().first_chunk().expect("16 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_integrity_tag_of_rfc_9001() {
        // RFC 9001 appendix A.4.
        let retry = [
            0xff, 0, 0, 0, 1, 0, 8, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62, 0xb5, 0x74, 0x6f, 0x6b, 0x65,
            0x6e,
        ];
        let dcid = 0x8394_c8f0_3e51_5708_u64.to_be_bytes();
        let tag = 0x04a2_65ba_2eff_4d82_9058_fb3f_0f24_96ba_u128.to_be_bytes();
        assert_eq!(retry_tag(&dcid, &retry), tag);
    }

    #[test]
    fn equal_seeds_agree_and_split_generators_differ() {
        let (mut a, mut b) = (Random::new(b"seed"), Random::new(b"seed"));
        assert_eq!((a.bytes(), a.u64()), (b.bytes(), b.u64()));
        let (mut c, mut d) = (a.split(), a.split());
        assert_ne!(c.bytes(), d.bytes());
        assert_ne!(Random::new(b"other").bytes(), Random::new(b"seed").bytes());
    }
}
