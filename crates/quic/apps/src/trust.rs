//! TLS that knows peers by the SHA-256 of their certificate, in both directions.

use crate::keys::{Fingerprint, Identity};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    ServerConfig, SignatureScheme, version,
};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use vmcc_transport::crypto::{ClientTls, ServerTls};

/// Trusted peers.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Every peer, also one without a certificate.
    Any,
    /// Peers with these fingerprints.
    Only(BTreeSet<Fingerprint>),
}

#[derive(Debug)]
struct Pinned {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

/// The peer showed a certificate that is not trusted.
#[derive(thiserror::Error)]
#[error("not trusted: {0}")]
struct Untrusted(Fingerprint);

/// The TLS library prints an error that it does not know by this.
impl fmt::Debug for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Pinned {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let shown = Fingerprint::of(certificate);
        match &self.trust {
            Trust::Only(peers) if !peers.contains(&shown) => {
                let other = OtherError(Arc::new(Untrusted(shown)));
                Err(Error::InvalidCertificate(CertificateError::Other(other)))
            }
            _ => Ok(()),
        }
    }
}

/// The methods of a verifier that check signatures: the same for clients and servers.
macro_rules! signature_methods {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls12_signature(message, certificate, signed, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature(message, certificate, signed, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    signature_methods!();
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        matches!(self.trust, Trust::Only(_))
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    signature_methods!();
}

/// TLS configuration of a client that presents `identity` and accepts the peers in `trust`.
///
/// # Errors
/// The key does not suit the TLS library.
pub fn client(identity: &Identity, trust: Trust, alpn: &[u8]) -> Result<Arc<ClientTls>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(Pinned { trust, provider: provider.clone() });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(identity.chain(), identity.key())?;
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(Arc::new(ClientTls(Arc::new(config))))
}

/// TLS configuration of a server that presents `identity` and accepts the peers in `trust`.
///
/// # Errors
/// The key does not suit the TLS library.
pub fn server(identity: &Identity, trust: Trust, alpn: &[u8]) -> Result<Arc<ServerTls>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(Pinned { trust, provider: provider.clone() });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.chain(), identity.key())?;
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(Arc::new(ServerTls(Arc::new(config))))
}
