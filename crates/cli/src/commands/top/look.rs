//! Looks at the host beside what draws: neither much to look at nor an agent that stands still holds up keys.

use crate::commands::programs;
use crate::failure::{Failure, agent_failure};
use serde_json::Value;
use std::io::ErrorKind;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use vmcc_agent::{Error, HostStatus, Observer, daemon};

/// A look waits that long for an agent that has answered so far, and not at all for one that has not.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);

/// Snapshot of the host, with its time.
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) status: Result<HostStatus, Failure>,
    /// For how long the agent has not answered; what is known of it is from before.
    pub(super) silent: Option<Duration>,
}

/// Looks when it is asked to, from a thread in the caller's network namespace.
pub(super) struct Looker(Sender<()>);

impl Looker {
    /// `tell` has each look, and says whether there shall be more.
    pub(super) fn start(tell: impl Fn(Look) -> bool + Send + 'static) -> Self {
        let (ask, asked) = channel();
        std::thread::spawn(move || {
            let (mut observer, mut agent) = (None, Agent::new(daemon::view));
            while asked.recv().is_ok() && tell(look(&mut observer, &mut agent)) {}
        });
        Self(ask)
    }

    pub(super) fn ask(&self) {
        // A thread that has ended was told to.
        let _ = self.0.send(());
    }
}

fn look(observer: &mut Option<Observer>, agent: &mut Agent) -> Look {
    let at = Instant::now();
    let mut seen = || {
        let observer = match observer {
            Some(observer) => observer,
            None => observer.insert(Observer::open()?),
        };
        observer.look(|| agent.view())
    };
    let status = programs::with(seen().map_err(|e| agent_failure(&e)), |_| {});
    Look { at, status, silent: agent.silent() }
}

type View = Result<Option<Value>, Error>;

/// The agent, asked by a thread that may wait for as long as it likes.
struct Agent {
    ask: Sender<()>,
    answers: Receiver<View>,
    /// Status document of the last reply.
    known: Option<Value>,
    /// True while a request has no reply.
    asked: bool,
    /// Time of the first of the requests that have had no reply.
    since: Option<Instant>,
}

impl Agent {
    fn new(view: impl Fn() -> View + Send + 'static) -> Self {
        let (ask, asked) = channel();
        let (answer, answers) = channel();
        std::thread::spawn(move || while asked.recv().is_ok() && answer.send(view()).is_ok() {});
        Self { ask, answers, known: None, asked: false, since: None }
    }

    /// Status document of the agent, or the last one while there is no reply.
    fn view(&mut self) -> View {
        let timeout = if self.since.is_some() { Duration::ZERO } else { REPLY_TIMEOUT };
        if !self.asked {
            self.since.get_or_insert_with(Instant::now);
            self.asked = self.ask.send(()).is_ok();
        }
        match self.answers.recv_timeout(timeout) {
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            Ok(answer) => {
                self.asked = false;
                match answer {
                    // Given up there, or stopped; it is asked once more.
                    Err(Error::State { source, .. }) if source.kind() == ErrorKind::WouldBlock => {}
                    Err(Error::AgentStopped { .. }) => {}
                    answer => {
                        self.since = None;
                        self.known = answer?;
                    }
                }
            }
        }
        Ok(self.known.clone())
    }

    fn silent(&self) -> Option<Duration> {
        self.since.map(|since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Mutex;

    #[test]
    fn stopped_agent_is_waited_for_once() {
        let (answer, answers) = channel();
        let answers = Mutex::new(answers);
        let mut agent = Agent::new(move || answers.lock().unwrap().recv().unwrap());
        answer.send(Ok(Some(json!(1)))).unwrap();
        assert_eq!(agent.view().unwrap(), Some(json!(1)));
        assert_eq!(agent.silent(), None);
        // One that waited each time would take longer than this test may.
        for _ in 0..1000 {
            assert_eq!(agent.view().unwrap(), Some(json!(1)), "what it said before");
        }
        let first = agent.since;
        let gave_up = std::io::Error::from(ErrorKind::WouldBlock);
        answer.send(Err(Error::State { path: "agent".into(), source: gave_up })).unwrap();
        while agent.asked {
            agent.view().unwrap();
        }
        agent.view().unwrap();
        assert!(
            agent.asked && agent.since == first && agent.silent() > Some(REPLY_TIMEOUT),
            "asked once more"
        );
        answer.send(Err(Error::AgentStopped { pid: 7 })).unwrap();
        while agent.asked {
            agent.view().unwrap();
        }
        assert_eq!(agent.since, first, "who is stopped is as silent");
        answer.send(Ok(None)).unwrap();
        while agent.silent().is_some() {
            agent.view().unwrap();
        }
        assert_eq!(agent.known, None);
        let refused = std::io::Error::from(ErrorKind::PermissionDenied);
        answer.send(Err(Error::State { path: "agent".into(), source: refused })).unwrap();
        assert!(agent.view().is_err());
    }
}
