//! TLS, or none, and the handshake of a new connection.

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use vmcc_tcp::Binding;
use vmcc_tcp::tls::Tls;

/// Bytes that are read at a time during the handshake.
const CHUNK: usize = 4 << 10;

/// A client's security.
#[derive(Clone, Debug)]
pub enum ClientSecurity {
    /// TLS 1.3, with the name that is verified.
    Tls(Arc<ClientConfig>, ServerName<'static>),
    /// Plain text, for trusted networks: anyone on the path can read, change and join the session.
    Plain,
}

/// A server's security.
#[derive(Clone, Debug)]
pub enum ServerSecurity {
    /// TLS 1.3.
    Tls(Arc<ServerConfig>),
    /// Plain text, for trusted networks: anyone on the path can read, change and join the session.
    Plain,
}

/// A secret of the system's random number generator, for a session or a pipe.
///
/// # Errors
/// The generator fails.
pub fn random_secret() -> io::Result<[u8; 32]> {
    let mut secret = [0; 32];
    aws_lc_rs::rand::fill(&mut secret).map_err(|_| io::Error::other("the random number generator failed"))?;
    Ok(secret)
}

/// A connection's TLS after its handshake, and what arrived with the end of that.
pub(crate) struct Secured {
    pub(crate) tls: Option<Tls>,
    pub(crate) binding: Binding,
    pub(crate) early: Vec<u8>,
}

impl ClientSecurity {
    pub(crate) async fn handshake(&self, stream: &mut TcpStream) -> io::Result<Secured> {
        match self {
            ClientSecurity::Tls(config, name) => {
                let tls = Tls::client(config.clone(), name.clone()).map_err(io::Error::other)?;
                handshake(tls, stream).await
            }
            ClientSecurity::Plain => Ok(plain()),
        }
    }
}

impl ServerSecurity {
    pub(crate) async fn handshake(&self, stream: &mut TcpStream) -> io::Result<Secured> {
        match self {
            ServerSecurity::Tls(config) => {
                handshake(Tls::server(config.clone()).map_err(io::Error::other)?, stream).await
            }
            ServerSecurity::Plain => Ok(plain()),
        }
    }
}

fn plain() -> Secured {
    Secured::by_pipe(Binding::PLAIN)
}

impl Secured {
    /// A pipe that secures its bytes itself, or not at all.
    pub(crate) fn by_pipe(binding: Binding) -> Secured {
        Secured { tls: None, binding, early: Vec::new() }
    }
}

async fn handshake(mut tls: Tls, stream: &mut TcpStream) -> io::Result<Secured> {
    let invalid = |error: rustls::Error| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut early = Vec::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        let mut out = Vec::new();
        tls.write(&[], &mut out).map_err(invalid)?;
        stream.write_all(&out).await?;
        if let Some(binding) = tls.binding().map_err(invalid)? {
            return Ok(Secured { tls: Some(tls), binding, early });
        }
        let len = stream.read(&mut buffer).await?;
        if len == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer ended the TLS handshake"));
        }
        if let Err(error) = tls.read(&buffer[..len], &mut early) {
            // The peer is sent the alert that says why.
            let mut alert = Vec::new();
            if tls.write(&[], &mut alert).is_ok() {
                stream.write_all(&alert).await?;
            }
            return Err(invalid(error));
        }
    }
}
