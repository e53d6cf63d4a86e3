//! CONNECT requests to HTTP proxies (RFC 9110, section 9.3.6; RFC 9112).

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes of an answer's head.
const MAX_HEAD: usize = 8 << 10;
const HEAD_END: &[u8] = b"\r\n\r\n";
const PREFIX: &[u8] = b"HTTP/1.";

/// Asks the proxy at the other end of `stream` for a tunnel to `target`.
pub(crate) async fn connect(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    target: &str,
) -> io::Result<()> {
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    // Byte by byte, once per connection: what follows the head is the tunnel's.
    while !head.ends_with(HEAD_END) {
        if head.len() == MAX_HEAD {
            return Err(other("the HTTP proxy's answer is longer than 8 kB; it is probably no HTTP proxy"));
        }
        let byte = stream.read_u8().await.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => other("the HTTP proxy ended the connection instead of answering"),
            _ => error,
        })?;
        head.push(byte);
        if !PREFIX.starts_with(&head[..head.len().min(PREFIX.len())]) {
            return Err(other("what answers is no HTTP proxy; check its address and port"));
        }
    }
    check_status(&head)
}

fn check_status(head: &[u8]) -> io::Result<()> {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line).chars().filter(|c| !c.is_control()).collect::<String>();
    let mut words = line.split(' ').skip(1);
    match words.next().and_then(|code| code.parse::<u16>().ok()) {
        Some(200..=299) => Ok(()),
        Some(407) => Err(other("the HTTP proxy wants a password (407), which is not supported")),
        Some(code) => {
            let reason: Vec<&str> = words.collect();
            Err(other(&format!(
                "the HTTP proxy refuses to connect: {code} {}; it has to allow CONNECT to this host and port",
                reason.join(" ")
            )))
        }
        None => Err(other("what answers is no HTTP proxy; check its address and port")),
    }
}

fn other(text: &str) -> io::Error {
    io::Error::other(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outcome of an answer, the request that was sent, and the bytes that are left for the tunnel.
    async fn ask(answer: &[u8]) -> (Result<(), String>, String, Vec<u8>) {
        let (mut near, mut far) = tokio::io::duplex(64 << 10);
        far.write_all(answer).await.unwrap();
        far.shutdown().await.unwrap();
        let outcome = connect(&mut near, "db.test:443").await.map_err(|error| error.to_string());
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        drop(near);
        let mut request = String::new();
        far.read_to_string(&mut request).await.unwrap();
        (outcome, request, rest)
    }

    #[tokio::test]
    async fn tunnel_data_begins_after_the_response_head() {
        let (outcome, request, rest) = ask(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nab").await;
        assert_eq!(outcome, Ok(()));
        assert_eq!(request, "CONNECT db.test:443 HTTP/1.1\r\nHost: db.test:443\r\n\r\n");
        assert_eq!(rest, b"ab");
    }

    #[tokio::test]
    async fn refusals_and_other_protocols_are_named() {
        let long = [&b"HTTP/1.1 200 OK\r\n"[..], &[b'x'; MAX_HEAD]].concat();
        for (answer, said) in [
            (&b"HTTP/1.1 403 Forbidden\r\n\r\n"[..], "403 Forbidden"),
            (b"HTTP/1.0 407 Proxy Authentication Required\r\n\r\n", "(407)"),
            (b"HTTP/1.1 \x1b[2J\r\n\r\n", "no HTTP proxy"),
            (b"SSH-2.0-OpenSSH_9.2\r\n", "no HTTP proxy"),
            (b"HTTP/1.1 200 OK\r\n", "ended the connection"),
            (b"", "ended the connection"),
            (&long, "longer than 8 kB"),
        ] {
            let outcome = ask(answer).await.0;
            assert!(outcome.as_ref().is_err_and(|error| error.contains(said)), "{outcome:?}, not {said}");
        }
    }
}
