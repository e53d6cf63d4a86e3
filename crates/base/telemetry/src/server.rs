//! Minimal HTTP server for `/metrics`: one request per connection, short timeouts, and slow clients delay no other.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Scope};
use std::time::{Duration, Instant};

/// Interval at which the thread checks for its end, in milliseconds.
const POLL_INTERVAL_MS: u16 = 200;
/// Timeout of a client's request, and of sending the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);
/// Clients served at a time; others wait for a free slot.
const MAX_CLIENTS: usize = 16;
/// A request with its headers is shorter.
const MAX_REQUEST_BYTES: usize = 8 << 10;
const MAX_HEADERS: usize = 64;
const PATH: &str = "/metrics";
const TEXT_FORMAT: &str = prometheus::TEXT_FORMAT;

/// A thread that answers until this is dropped.
#[derive(Debug)]
pub struct Server {
    at: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Both ends of the connection that asks, as sockets of IPv4 write an address of IPv4: the one here, and the one there.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Here.
    pub local: SocketAddr,
    /// Address of the client.
    pub remote: SocketAddr,
}

impl Server {
    /// Listens in the network namespace of the calling thread, and answers what asks for `/metrics` with `text`, or with its error, as
    /// status 500. `text` may run several times at once.
    ///
    /// # Errors
    /// The address cannot be listened at.
    pub fn start<F>(at: SocketAddr, text: F) -> io::Result<Self>
    where
        F: Fn(Question) -> Result<String, String> + Send + Sync + 'static,
    {
        Self::with_timeout(at, CLIENT_TIMEOUT, text)
    }

    fn with_timeout<F>(at: SocketAddr, timeout: Duration, text: F) -> io::Result<Self>
    where
        F: Fn(Question) -> Result<String, String> + Send + Sync + 'static,
    {
        let socket = TcpListener::bind(at)?;
        socket.set_nonblocking(true)?;
        let at = socket.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            let answering = AtomicUsize::new(0);
            let answer = |asker| answer(asker, timeout, &text);
            thread::scope(|scope| {
                while !told.load(Ordering::SeqCst) {
                    if let Some(asker) = next(&socket, &answering) {
                        begin(scope, asker, &answering, &answer);
                    }
                }
            });
        })?;
        Ok(Self { at, stop, thread: Some(thread) })
    }

    /// Address that it listens on, with the port that the system chose if 0 was asked for.
    #[must_use]
    pub fn at(&self) -> SocketAddr {
        self.at
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic of it was shown when it happened.
            let _ = thread.join();
        }
    }
}

/// The next client, if one comes soon and there is room.
fn next(socket: &TcpListener, answering: &AtomicUsize) -> Option<TcpStream> {
    let interval = PollTimeout::from(POLL_INTERVAL_MS);
    if answering.load(Ordering::SeqCst) >= MAX_CLIENTS {
        thread::sleep(Duration::from_millis(POLL_INTERVAL_MS.into()));
        return None;
    }
    poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], interval).ok().filter(|&ready| ready > 0)?;
    match socket.accept() {
        Ok((asker, _)) => Some(asker),
        // It went away again; or there are too many open files, which only time can mend.
        Err(error) => {
            if error.kind() != io::ErrorKind::WouldBlock {
                thread::sleep(Duration::from_millis(POLL_INTERVAL_MS.into()));
            }
            None
        }
    }
}

/// Serves one client in a thread of its own. Malformed requests, broken connections and a lack of threads affect that client only.
fn begin<'scope, F>(
    scope: &'scope Scope<'scope, '_>,
    asker: TcpStream,
    answering: &'scope AtomicUsize,
    answer: &'scope F,
) where
    F: Fn(TcpStream) -> io::Result<()> + Sync,
{
    answering.fetch_add(1, Ordering::SeqCst);
    let begun = thread::Builder::new().spawn_scoped(scope, move || {
        let _done = Done(answering);
        let _ = answer(asker);
    });
    if begun.is_err() {
        answering.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Also if the answer panics.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn answer(
    mut asker: TcpStream,
    timeout: Duration,
    text: &impl Fn(Question) -> Result<String, String>,
) -> io::Result<()> {
    asker.set_nonblocking(false)?;
    asker.set_write_timeout(Some(timeout))?;
    let question = Question { local: plain(asker.local_addr()?), remote: plain(asker.peer_addr()?) };
    let (status, kind, body) = match request(&mut asker, timeout)? {
        Some((method, path)) if method == "GET" && path == PATH => match text(question) {
            Ok(text) => ("200 OK", TEXT_FORMAT, text),
            Err(error) => ("500 Internal Server Error", "text/plain", format!("{error}\n")),
        },
        Some(_) => ("404 Not Found", "text/plain", format!("figures are at {PATH}\n")),
        None => ("400 Bad Request", "text/plain", "no request that can be read\n".to_owned()),
    };
    let length = body.len();
    write!(
        asker,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn plain(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

/// The method and path; `None` if it is no request of a sensible size, or not all of one in time.
fn request(asker: &mut TcpStream, timeout: Duration) -> io::Result<Option<(String, String)>> {
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    let until = Instant::now() + timeout;
    while bytes.len() <= MAX_REQUEST_BYTES {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        asker.set_read_timeout(Some(left))?;
        let length = asker.read(&mut part)?;
        bytes.extend_from_slice(&part[..length]);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(_)) => {
                let both = request.method.zip(request.path);
                return Ok(both.map(|(method, path)| (method.to_owned(), path.to_owned())));
            }
            Ok(httparse::Status::Partial) if length > 0 => {}
            _ => return Ok(None),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(timeout: Duration) -> Server {
        let text = |question: Question| Ok(format!("asked_at {}\n", question.local.port()));
        Server::with_timeout("127.0.0.1:0".parse().unwrap(), timeout, text).unwrap()
    }

    fn ask(server: &Server, request: &[u8]) -> String {
        let mut asker = TcpStream::connect(server.at()).unwrap();
        asker.write_all(request).unwrap();
        let mut answer = String::new();
        // What came before a reset counts: a request that is too long is not read to its end.
        let _ = asker.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn only_get_metrics_returns_samples() {
        let server = server(CLIENT_TIMEOUT);
        let figures = format!("\r\n\r\nasked_at {}\n", server.at().port());
        assert!(ask(&server, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").ends_with(&figures));
        assert!(ask(&server, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(&server, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(&server, b"\x16\x03\x01\x00\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert!(ask(&server, &[b'a'; MAX_REQUEST_BYTES + 1]).starts_with("HTTP/1.1 400 "));
    }

    #[test]
    fn silent_client_delays_no_other() {
        // Far beyond what a test may take: it must not be waited for.
        let server = server(Duration::from_secs(3600));
        let _silent: Vec<_> =
            (0..MAX_CLIENTS - 1).map(|_| TcpStream::connect(server.at()).unwrap()).collect();
        assert!(ask(&server, b"GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
    }

    #[test]
    fn clients_above_the_limit_are_queued() {
        let server = server(CLIENT_TIMEOUT);
        let _silent: Vec<_> =
            (0..2 * MAX_CLIENTS).map(|_| TcpStream::connect(server.at()).unwrap()).collect();
        assert!(ask(&server, b"GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
    }

    #[test]
    fn drop_closes_the_listener() {
        let server = server(CLIENT_TIMEOUT);
        let at = server.at();
        drop(server);
        assert!(TcpStream::connect(at).is_err());
    }
}
