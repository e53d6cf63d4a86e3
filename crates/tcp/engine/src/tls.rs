//! TLS 1.3 over one carrier, without I/O: ciphertext and plaintext are buffers.

use crate::keys::{Binding, EXPORTER_LABEL};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ProtocolVersion, ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::sync::Arc;

/// Bytes of plaintext that are taken out of TLS at a time.
const CHUNK: usize = 16 << 10;

/// One end of a carrier's TLS.
#[derive(Debug)]
pub struct Tls(Connection);

impl Tls {
    /// The client's end; `name` is verified as its configuration says.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Tls, rustls::Error> {
        ClientConnection::new(config, name).map(Connection::Client).map(Tls::new)
    }

    /// The server's end.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn server(config: Arc<ServerConfig>) -> Result<Tls, rustls::Error> {
        ServerConnection::new(config).map(Connection::Server).map(Tls::new)
    }

    fn new(mut connection: Connection) -> Tls {
        // The session bounds what is written.
        connection.set_buffer_limit(None);
        Tls(connection)
    }

    /// Takes ciphertext and appends the plaintext in it.
    ///
    /// # Errors
    /// The peer's TLS is wrong or not trusted. What [`write`](Self::write) then gives is an alert for the peer.
    pub fn read(&mut self, mut input: &[u8], plain: &mut Vec<u8>) -> Result<(), rustls::Error> {
        while !input.is_empty() {
            let io = |error: std::io::Error| rustls::Error::General(error.to_string());
            if self.0.read_tls(&mut input).map_err(io)? == 0 {
                break;
            }
            let state = self.0.process_new_packets()?;
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let start = plain.len();
                plain.resize(start + left.min(CHUNK), 0);
                let len = self.0.reader().read(&mut plain[start..]).map_err(io)?;
                plain.truncate(start + len);
                left -= len;
            }
        }
        Ok(())
    }

    /// Encrypts plaintext and appends all ciphertext that is due, that of the handshake too.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn write(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), rustls::Error> {
        let io = |error: std::io::Error| rustls::Error::General(error.to_string());
        self.0.writer().write_all(plain).map_err(io)?;
        while self.0.wants_write() {
            self.0.write_tls(out).map_err(io)?;
        }
        Ok(())
    }

    /// The carrier's binding; none before the handshake is complete.
    ///
    /// # Errors
    /// The peer speaks an older version, whose exporter does not name the connection.
    pub fn binding(&self) -> Result<Option<Binding>, rustls::Error> {
        if self.0.is_handshaking() {
            return Ok(None);
        }
        if self.0.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
            return Err(rustls::Error::General("TLS 1.3 is needed".into()));
        }
        self.0.export_keying_material([0; 32], EXPORTER_LABEL, None).map(|secret| Some(Binding(secret)))
    }
}
