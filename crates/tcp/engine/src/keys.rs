//! Keys of a session: the token that names it, and MACs that prove a carrier to belong to it.

use aws_lc_rs::{constant_time, hmac};

/// Public name of a session, chosen by the server at random.
pub type Token = [u8; 16];
/// Truncated HMAC-SHA256.
pub(crate) type Mac = [u8; 16];
/// Random contribution of one end to the session's key.
pub(crate) type Nonce = [u8; 16];

/// Label of the TLS exporter (RFC 8446 section 7.5) whose value is a carrier's [`Binding`].
pub(crate) const EXPORTER_LABEL: &[u8] = b"EXPORTER vmcc tcp carrier";

/// Secret that only the two ends of one carrier know: its TLS exporter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Binding(pub [u8; 32]);

impl Binding {
    /// A carrier without TLS. Keys then protect against off-path attackers only: anyone on the path of the first carrier reads them.
    pub const PLAIN: Binding = Binding([0; 32]);
}

impl std::fmt::Debug for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Binding::PLAIN { "Binding(plain)" } else { "Binding(TLS)" })
    }
}

/// Random bytes of the caller from which a session draws its nonce and token.
#[derive(Clone, Copy)]
pub struct Secrets(pub [u8; 32]);

impl Secrets {
    /// Halves that tell nothing of each other: this end's nonce, and the token.
    pub(crate) fn split(&self) -> (Nonce, Token) {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        (sign(&key, &[b"nonce"]), sign(&key, &[b"token"]))
    }
}

/// Sender of a MAC, so that none can be reflected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// Key that both ends of a session derive from its first carrier.
#[derive(Clone)]
pub(crate) struct SessionKey(hmac::Key);

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey")
    }
}

impl SessionKey {
    pub(crate) fn derive(binding: &Binding, client: &Nonce, server: &Nonce, token: &Token) -> SessionKey {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &binding.0));
        [&b"vmcc tcp session key"[..], client, server, token]
            .into_iter()
            .for_each(|part| context.update(part));
        SessionKey(hmac::Key::new(hmac::HMAC_SHA256, context.sign().as_ref()))
    }

    /// Proof of a carrier, for its number and its own binding.
    pub(crate) fn prove(&self, role: Role, number: u64, binding: &Binding) -> Mac {
        let role: &[u8] = if role == Role::Client { b"join" } else { b"joined" };
        sign(&self.0, &[role, &number.to_be_bytes(), &binding.0])
    }

    pub(crate) fn is_proof(&self, role: Role, number: u64, binding: &Binding, mac: &Mac) -> bool {
        constant_time::verify_slices_are_equal(&self.prove(role, number, binding), mac).is_ok()
    }
}

fn sign(key: &hmac::Key, parts: &[&[u8]]) -> [u8; 16] {
    let mut context = hmac::Context::with_key(key);
    parts.iter().for_each(|part| context.update(part));
    *context.sign().as_ref().first_chunk().expect("32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_depend_on_role_number_binding_and_session() {
        let key = |token| SessionKey::derive(&Binding([1; 32]), &[2; 16], &[3; 16], &[token; 16]);
        let (binding, other) = (Binding([5; 32]), Binding([6; 32]));
        let mac = key(4).prove(Role::Client, 1, &binding);
        assert!(key(4).is_proof(Role::Client, 1, &binding, &mac));
        assert!(!key(4).is_proof(Role::Server, 1, &binding, &mac), "reflected");
        assert!(!key(4).is_proof(Role::Client, 2, &binding, &mac), "another carrier");
        assert!(!key(4).is_proof(Role::Client, 1, &other, &mac), "replayed over another connection");
        assert!(!key(7).is_proof(Role::Client, 1, &binding, &mac), "another session");
    }

    #[test]
    fn derived_secrets_are_unrelated() {
        let (nonce, token) = Secrets([1; 32]).split();
        assert_ne!(nonce, token);
        assert_ne!((nonce, token), Secrets([2; 32]).split());
    }
}
