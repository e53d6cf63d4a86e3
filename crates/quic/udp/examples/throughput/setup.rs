//! Common settings: certificate, cipher, windows, packet size, socket buffers.

use crate::Result;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme, version};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

/// Bytes of a stream and of a connection that may be under way, and that are kept for sending again: those of `vmcc_transport::Config`.
pub(crate) const STREAM_WINDOW: u32 = 8 << 20;
pub(crate) const CONNECTION_WINDOW: u32 = 16 << 20;
pub(crate) const SEND_WINDOW: u64 = 8 << 20;
/// Bytes of a UDP payload, without a search for more.
pub(crate) const MTU: u16 = 1452;
/// Bytes of a socket's buffers.
const SOCKET_BUFFER: usize = 4 << 20;
const ALPN: &[u8] = b"speed";

/// One cipher for all, in the same implementation.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
    Arc::new(CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() })
}

pub(crate) fn server() -> Result<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let builder =
        ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&version::TLS13])?;
    let mut config = builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

pub(crate) fn client() -> Result<ClientConfig> {
    let builder =
        ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&version::TLS13])?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider())));
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

/// Verifier that accepts every certificate: the identity does not matter to the cost.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A socket as `vmcc_udp` opens its own.
pub(crate) fn socket(at: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    setsockopt(&socket, sockopt::SndBuf, &SOCKET_BUFFER)?;
    setsockopt(&socket, sockopt::RcvBuf, &SOCKET_BUFFER)?;
    Ok(socket)
}

/// Tells the sender where the receiver is.
pub(crate) fn tell(addresses: &[SocketAddr]) {
    println!("{}", crate::options::join(addresses));
}
