//! Messages on streams: their length in four bytes, and JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longer messages are refused: room for the longest list of names that a command line takes.
const MOST: usize = 8 << 20;

fn invalid(text: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

pub(crate) async fn write(to: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_vec(message).map_err(invalid)?;
    if body.len() > MOST {
        return Err(invalid("the list is longer than the other end takes; copy the folder with --recursive"));
    }
    let mut framed = (body.len() as u32).to_be_bytes().to_vec();
    framed.extend_from_slice(&body);
    to.write_all(&framed).await
}

pub(crate) async fn read<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let len = from.read_u32().await? as usize;
    if len > MOST {
        return Err(invalid("the peer sent a message that is too long"));
    }
    // As much memory as has come, not as was announced.
    let mut body = Vec::new();
    from.take(len as u64).read_to_end(&mut body).await?;
    if body.len() < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&body)
        .map_err(|error| invalid(format!("the peer sent a message that cannot be read: {error}")))
}
