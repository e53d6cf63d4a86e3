//! Control socket of the agent, for root alone.
//!
//! A request is one short line, the answer lines of JSON. A client that requests `events` receives events from then on. Slow
//! clients are disconnected.

use super::event::Event;
use crate::Error;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, umask};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SOCKET: &str = "/run/vmcc/agent.sock";
/// A request's length, at most.
const MAX_REQUEST_BYTES: u64 = 64;
/// An answer's length, at most.
const MAX_ANSWER_BYTES: u64 = 64 << 20;
/// Those who listen at a time, at most.
const MAX_LISTENERS: usize = 16;
/// Timeouts: of the agent for a client, and of a client for the agent, which may be loading algorithms.
const AGENT_IO_TIMEOUT: Duration = Duration::from_millis(200);
const CLIENT_IO_TIMEOUT: Duration = Duration::from_secs(60);

/// The agent's end.
pub(crate) struct Control {
    socket: UnixListener,
    listeners: Vec<UnixStream>,
}

impl Control {
    /// Only for who holds the lock: it takes the place of what another one left.
    pub(crate) fn open() -> io::Result<Self> {
        remove_socket()?;
        // From the first moment on nobody else can connect.
        let before = umask(Mode::from_bits_truncate(0o177));
        let socket = UnixListener::bind(SOCKET);
        umask(before);
        let socket = socket?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, listeners: Vec::new() })
    }

    /// Answers pending requests; `view` makes the status document.
    pub(crate) fn serve(&mut self, view: impl Fn() -> Value) {
        while let Ok((client, _)) = self.socket.accept() {
            // Who does not ask properly, or goes away, is nobody's concern but its own.
            let _ = self.answer(client, &view);
        }
    }

    fn answer(&mut self, mut client: UnixStream, view: &impl Fn() -> Value) -> io::Result<()> {
        if getsockopt(&client, PeerCredentials)?.uid() != 0 {
            return Ok(());
        }
        client.set_nonblocking(false)?;
        client.set_read_timeout(Some(AGENT_IO_TIMEOUT))?;
        client.set_write_timeout(Some(AGENT_IO_TIMEOUT))?;
        let mut request = String::new();
        BufReader::new((&client).take(MAX_REQUEST_BYTES)).read_line(&mut request)?;
        match request.trim_end() {
            "status" => writeln!(client, "{}", view()),
            "events" if self.listeners.len() < MAX_LISTENERS => {
                client.set_nonblocking(true)?;
                self.listeners.push(client);
                Ok(())
            }
            "events" => writeln!(client, "{}", json!({ "error": format!("{MAX_LISTENERS} listen already") })),
            _ => writeln!(client, "{}", json!({ "error": "ask for `status` or `events`" })),
        }
    }

    /// Sends an event to every subscriber.
    pub(crate) fn publish(&mut self, event: &Event) {
        let line = format!("{}\n", line(event));
        // Half a line would corrupt the next: a subscriber without room for all of it is disconnected.
        self.listeners.retain_mut(|listener| listener.write(line.as_bytes()).is_ok_and(|n| n == line.len()));
    }
}

/// An event, its text for people, and when it was.
fn line(event: &Event) -> Value {
    let mut line = serde_json::to_value(event).unwrap_or_default();
    line["text"] = json!(event.to_string());
    timestamped(line)
}

/// Adds the current time to an event, in seconds since 1970.
pub(crate) fn timestamped(mut event: Value) -> Value {
    event["time"] = json!(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64()));
    event
}

impl AsRawFd for Control {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Removes the socket; only for who holds the lock.
pub(crate) fn remove_socket() -> io::Result<()> {
    match fs::remove_file(SOCKET) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Sends a request; `None` if no agent runs.
fn send_request(request: &str) -> Result<Option<UnixStream>, Error> {
    let failed = |source| Error::State { path: SOCKET.into(), source };
    let mut agent = match UnixStream::connect(SOCKET) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
        agent => agent.map_err(failed)?,
    };
    // Who was stopped cannot say so; who is busy will answer.
    let pid = getsockopt(&agent, PeerCredentials).map_err(|e| failed(e.into()))?.pid();
    if is_stopped(&fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default()) {
        return Err(Error::AgentStopped { pid });
    }
    agent
        .set_read_timeout(Some(CLIENT_IO_TIMEOUT))
        .and_then(|()| writeln!(agent, "{request}"))
        .map_err(failed)?;
    Ok(Some(agent))
}

/// True if a process is stopped according to its file `stat`: by a signal, or by a tracer.
fn is_stopped(stat: &str) -> bool {
    // The name before it, in parentheses, may contain anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| matches!(state, 'T' | 't'))
}

/// Requests the agent's status document; `None` if no agent runs.
///
/// # Errors
/// The agent does not answer, or only root may ask it.
pub fn view() -> Result<Option<Value>, Error> {
    let failed = |source| Error::State { path: SOCKET.into(), source };
    let Some(agent) = send_request("status")? else { return Ok(None) };
    let mut text = String::new();
    agent.take(MAX_ANSWER_BYTES).read_to_string(&mut text).map_err(failed)?;
    // Nothing at all: it ended meanwhile.
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(&text).map(Some).map_err(|e| failed(e.into()))
}

/// Subscribes to the agent's events, one JSON object per line; `None` if no agent runs.
pub(crate) fn listen() -> Result<Option<UnixStream>, Error> {
    send_request("events")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_process_is_detected_for_any_process_name() {
        for (stat, stopped) in
            [("7 (vmcc) T 1 7", true), ("7 (vmcc) t 1 7", true), ("7 (a) T b) S 1 7", false), ("", false)]
        {
            assert_eq!(is_stopped(stat), stopped, "{stat}");
        }
    }
}
