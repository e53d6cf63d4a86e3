//! Certificates and configurations for both ends.

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, version};
use std::sync::{Arc, OnceLock};
use vmcc_transport::crypto::{ClientTls, ServerTls};

/// The application protocol of all tests.
const ALPN: &[u8] = b"vmcc-test";

/// The certificate and its key, in DER.
pub fn identity() -> &'static (CertificateDer<'static>, Vec<u8>) {
    static IDENTITY: OnceLock<(CertificateDer<'static>, Vec<u8>)> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        (made.cert.der().clone(), made.signing_key.serialize_der())
    })
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Client that trusts [`identity`].
pub fn client_config() -> rustls::ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(identity().0.clone()).unwrap();
    let builder = rustls::ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(&[&version::TLS13]).unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

/// Server that presents [`identity`].
pub fn server_config() -> rustls::ServerConfig {
    let (certificate, key) = identity();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.clone()));
    let builder = rustls::ServerConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(&[&version::TLS13]).unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![certificate.clone()], key).unwrap();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

/// [`client_config`] for the engine.
pub fn client() -> Arc<ClientTls> {
    Arc::new(ClientTls(Arc::new(client_config())))
}

/// [`server_config`] for the engine.
pub fn server() -> Arc<ServerTls> {
    Arc::new(ServerTls(Arc::new(server_config())))
}
