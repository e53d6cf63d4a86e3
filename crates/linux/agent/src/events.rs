//! Live events of a host: of the subflows of this network namespace, and of the agent.

use crate::Error;
use crate::daemon::{listen, poll, timestamped};
use serde_json::{Value, json};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vmcc_netlink::{Event, Events};

/// Interval at which [`Follower::follow`] checks whether to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// An event is shorter.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Subscribers to events.
pub struct Follower {
    kernel: Events,
    agent: Option<UnixStream>,
    /// The beginning of a line whose end has not come yet.
    begun: Vec<u8>,
}

impl Follower {
    /// From now on nothing is missed.
    ///
    /// # Errors
    /// The kernel does not announce what becomes of subflows, or the agent does not let us listen.
    pub fn new() -> Result<Self, Error> {
        crate::needs_root("events: only root may listen")?;
        let agent = listen()?;
        if let Some(agent) = &agent {
            agent.set_nonblocking(true).map_err(Error::Wait)?;
        }
        Ok(Self { kernel: Events::open().map_err(Error::Wait)?, agent, begun: Vec::new() })
    }

    /// True if an agent sends its events.
    pub fn hears_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// Calls `each` with every event, which has a key `text` for people, until `stop` is set.
    ///
    /// # Errors
    /// Events were lost because they came faster than they could be read, or cannot be read.
    pub fn follow(mut self, stop: &AtomicBool, each: &mut dyn FnMut(&Value)) -> Result<(), Error> {
        while !stop.load(Ordering::SeqCst) {
            let fds: Vec<RawFd> = [self.kernel.as_raw_fd()]
                .into_iter()
                .chain(self.agent.as_ref().map(AsRawFd::as_raw_fd))
                .collect();
            if !poll(&fds, STOP_POLL_INTERVAL).map_err(Error::Wait)? {
                continue;
            }
            self.kernel.pending().map_err(Error::Wait)?.iter().for_each(|event| each(&of_kernel(event)));
            for line in self.of_agent().map_err(Error::Wait)? {
                each(&line);
            }
        }
        Ok(())
    }

    fn of_agent(&mut self) -> io::Result<Vec<Value>> {
        let Some(agent) = &mut self.agent else { return Ok(Vec::new()) };
        let mut bytes = [0; 8192];
        let mut ended = false;
        loop {
            match agent.read(&mut bytes) {
                Ok(0) => {
                    ended = true;
                    break;
                }
                Ok(length) if self.begun.len() + length <= MAX_LINE_BYTES => {
                    self.begun.extend_from_slice(&bytes[..length]);
                }
                Ok(_) => return Err(io::Error::other("the agent sent no end of a line")),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let mut lines = whole_lines(&mut self.begun);
        if ended {
            self.agent = None;
            lines.push(timestamped(
                json!({ "event": "agent-ended", "text": "the agent has ended, or we did not keep up" }),
            ));
        }
        Ok(lines)
    }
}

/// Takes the lines that are whole; one that is no JSON is left out.
fn whole_lines(begun: &mut Vec<u8>) -> Vec<Value> {
    let Some(last) = begun.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
    let whole: Vec<u8> = begun.drain(..=last).collect();
    whole.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

fn of_kernel(event: &Event) -> Value {
    timestamped(match event {
        Event::Established(ends) => json!({
            "event": "subflow-joined",
            "local": ends.local,
            "remote": ends.remote,
            "text": format!("subflow {} -> {} joined", ends.local, ends.remote),
        }),
        Event::Closed { ends, token, error, reset, .. } => json!({
            "event": "subflow-closed",
            "local": ends.local,
            "remote": ends.remote,
            "token": token,
            "errno": error,
            "reset": reset,
            "text": format!("subflow {} -> {} closed (connection {token:08x}){}", ends.local, ends.remote, why(*error, *reset)),
        }),
        Event::Withdrawn { token, remote_id } => json!({
            "event": "address-withdrawn",
            "token": token,
            "remote_id": remote_id,
            "text": format!("connection {token:08x}: the other end withdrew its address {remote_id}"),
        }),
    })
}

fn why(error: Option<i32>, reset: bool) -> String {
    match error {
        _ if reset => ": the other end reset it".to_owned(),
        Some(number) if number != 0 => format!(": {}", nix::errno::Errno::from_raw(number).desc()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_lines_are_buffered() {
        let mut begun = b"{\"event\":\"a\"}\nnonsense\n{\"eve".to_vec();
        assert_eq!(whole_lines(&mut begun), [json!({ "event": "a" })]);
        assert!(whole_lines(&mut begun).is_empty());
        begun.extend_from_slice(b"nt\":\"b\"}\n");
        assert_eq!(whole_lines(&mut begun), [json!({ "event": "b" })]);
        assert!(begun.is_empty());
    }

    #[test]
    fn subflow_events_have_text() {
        let ends = vmcc_netlink::Ends {
            local: "10.0.0.1:1".parse().unwrap(),
            remote: "10.0.0.2:2".parse().unwrap(),
        };
        let closed =
            |error, reset| of_kernel(&Event::Closed { ends, token: 0xab, remote_id: 1, error, reset });
        assert_eq!(
            closed(Some(110), false)["text"],
            "subflow 10.0.0.1:1 -> 10.0.0.2:2 closed (connection 000000ab): Connection timed out"
        );
        assert!(closed(None, true)["text"].as_str().unwrap().ends_with("the other end reset it"));
        assert!(closed(None, false)["text"].as_str().unwrap().ends_with(')'));
    }
}
