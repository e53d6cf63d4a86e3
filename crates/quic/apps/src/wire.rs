//! Messages on streams: their length in four bytes, and JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest message of an item or a connection: two paths of the longest that systems take, as JSON.
const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// The longest list, which a peer sends once per connection: as many names as a command line takes.
const MAX_LIST_BYTES: usize = 8 << 20;

fn invalid(text: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// True if a message is no longer than lists may be.
pub(crate) fn fits_list(message: &impl Serialize) -> bool {
    serde_json::to_vec(message).is_ok_and(|body| body.len() <= MAX_LIST_BYTES)
}

pub(crate) async fn write(to: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_vec(message).map_err(invalid)?;
    if body.len() > MAX_LIST_BYTES {
        return Err(invalid("the list is longer than the other end takes; copy the folder with --recursive"));
    }
    let mut framed = (body.len() as u32).to_be_bytes().to_vec();
    framed.extend_from_slice(&body);
    to.write_all(&framed).await
}

/// Reads a message of which a peer may send many at a time.
pub(crate) async fn read<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    read_at_most(from, MAX_MESSAGE_BYTES).await
}

/// Reads a message with names of all that is asked for.
pub(crate) async fn read_list<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    read_at_most(from, MAX_LIST_BYTES).await
}

/// Reads a message of at most `limit` bytes.
pub(crate) async fn read_at_most<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> io::Result<T> {
    let len = from.read_u32().await? as usize;
    if len > limit {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn list_needs_the_larger_limit() {
        let (mut list, mut message) = (Vec::new(), Vec::new());
        write(&mut list, &vec![0; MAX_MESSAGE_BYTES / 2 + 1]).await.unwrap();
        write(&mut message, &vec![0; MAX_MESSAGE_BYTES / 2 - 1]).await.unwrap();
        assert!(read::<Vec<u8>>(&mut &list[..]).await.is_err());
        assert_eq!(read_list::<Vec<u8>>(&mut &list[..]).await.unwrap().len(), MAX_MESSAGE_BYTES / 2 + 1);
        assert_eq!(read::<Vec<u8>>(&mut &message[..]).await.unwrap().len(), MAX_MESSAGE_BYTES / 2 - 1);
    }

    #[tokio::test]
    async fn oversized_message_is_refused_by_its_length() {
        let (mut far, mut near) = tokio::io::duplex(64);
        write(&mut far, &"12345").await.unwrap();
        assert_eq!(read_at_most::<String>(&mut near, 7).await.unwrap(), "12345");
        // Nothing follows the length, and nothing is waited for.
        far.write_u32(8).await.unwrap();
        let error = read_at_most::<String>(&mut near, 7).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
