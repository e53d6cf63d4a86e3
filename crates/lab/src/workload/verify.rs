//! Requests to the servers of objects, and verification of the responses as they arrive.

use super::object_store::key;
use std::io;
use vmcc_scenario::model::ObjectProgram;

/// Apache's, with all its lines, has a quarter of a kilobyte.
const MAX_HEAD_BYTES: usize = 16 << 10;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// The request for an object. The client closes the connection, so that its sockets' last counts are seen.
pub(super) fn request(of: ObjectProgram, number: usize) -> String {
    match of {
        ObjectProgram::Memcached => format!("get {}\r\n", key(number)),
        ObjectProgram::Apache => format!("GET /{} HTTP/1.1\r\nHost: vmcc\r\n\r\n", key(number)),
    }
}

/// Response that is expected, or the rest of it.
pub(super) struct ExpectedResponse {
    /// Bytes received of a header that varies; `None` if there is none or it is complete.
    head: Option<Vec<u8>>,
    wanted: Vec<u8>,
    got: usize,
}

impl ExpectedResponse {
    /// The answer to a request for an object.
    pub(super) fn of(holder: ObjectProgram, number: usize, object: &[u8]) -> Self {
        match holder {
            ObjectProgram::Memcached => {
                let head = format!("VALUE {} 0 {}\r\n", key(number), object.len());
                let wanted = [head.as_bytes(), object, b"\r\nEND\r\n"].concat();
                Self { head: None, wanted, got: 0 }
            }
            ObjectProgram::Apache => Self { head: Some(Vec::new()), wanted: object.to_vec(), got: 0 },
        }
    }

    /// Takes what has come next; whether that was all.
    ///
    /// # Errors
    /// If it is not what the object's holder was given.
    pub(super) fn take(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let Some(mut head) = self.head.take() else { return self.compare(bytes) };
        head.extend_from_slice(bytes);
        let end = head.windows(END_OF_HEAD.len()).position(|window| window == END_OF_HEAD);
        let Some(end) = end.map(|at| at + END_OF_HEAD.len()) else {
            if head.len() > MAX_HEAD_BYTES {
                return Err(io::Error::other("its head does not end"));
            }
            self.head = Some(head);
            return Ok(false);
        };
        check_head(&String::from_utf8_lossy(&head[..end]), self.wanted.len())?;
        self.compare(&head[end..])
    }

    fn compare(&mut self, bytes: &[u8]) -> io::Result<bool> {
        if self.wanted.get(self.got..self.got + bytes.len()) != Some(bytes) {
            let got = self.got;
            return Err(io::Error::other(format!(
                "it is not what was put there, from byte {got} of the answer on"
            )));
        }
        self.got += bytes.len();
        Ok(self.got == self.wanted.len())
    }
}

/// Checks that the HTTP header announces a whole object of this length.
fn check_head(head: &str, length: usize) -> io::Result<()> {
    let status = head.lines().next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200 ") {
        return Err(io::Error::other(format!("the server answers {status:?}")));
    }
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut said =
        fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length")).map(|(_, value)| value.trim());
    match said.next_back().map(str::parse::<usize>) {
        Some(Ok(said)) if said == length => Ok(()),
        _ => Err(io::Error::other(format!("the server does not say that {length} bytes follow: {head:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &[u8] = b"0123456789";

    /// Result of an answer that arrives in pieces of `piece` bytes.
    fn verify_chunks(holder: ObjectProgram, answer: &[u8], piece: usize) -> io::Result<bool> {
        let mut response = ExpectedResponse::of(holder, 3, OBJECT);
        let mut done = false;
        for bytes in answer.chunks(piece) {
            assert!(!done, "more than was wanted");
            done = response.take(bytes)?;
        }
        Ok(done)
    }

    #[test]
    fn response_is_complete_with_its_last_byte() {
        let cache = b"VALUE object3 0 10\r\n0123456789\r\nEND\r\n".to_vec();
        let web = b"HTTP/1.1 200 OK\r\nDate: now\r\ncontent-length: 10\r\n\r\n0123456789".to_vec();
        for (holder, answer) in [(ObjectProgram::Memcached, cache), (ObjectProgram::Apache, web)] {
            for piece in [1, 3, 7, answer.len()] {
                assert!(verify_chunks(holder, &answer, piece).unwrap(), "{holder:?} {piece}");
                assert!(
                    !verify_chunks(holder, &answer[..answer.len() - 1], piece).unwrap(),
                    "{holder:?} {piece}"
                );
            }
        }
    }

    #[test]
    fn wrong_bytes_and_refusals_are_reported() {
        let web = |head: &str, body: &str| format!("HTTP/1.1 {head}\r\n\r\n{body}").into_bytes();
        for (holder, answer, expected) in [
            (ObjectProgram::Memcached, b"VALUE object3 0 10\r\n0123456780".to_vec(), "from byte 0"),
            (ObjectProgram::Memcached, b"END\r\n".to_vec(), "not what was put there"),
            (
                ObjectProgram::Apache,
                web("200 OK\r\nContent-Length: 10", "0123456780"),
                "not what was put there",
            ),
            (ObjectProgram::Apache, web("200 OK\r\nContent-Length: 9", "012345678"), "10 bytes follow"),
            (
                ObjectProgram::Apache,
                web("404 Not Found\r\nContent-Length: 10", "0123456789"),
                "404 Not Found",
            ),
            (ObjectProgram::Apache, vec![b'x'; MAX_HEAD_BYTES + 1], "does not end"),
        ] {
            let error = verify_chunks(holder, &answer, answer.len()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
