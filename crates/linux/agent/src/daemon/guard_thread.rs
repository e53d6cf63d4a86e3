//! The guard, in a thread of its own beside the agent.

use super::event::Event;
use crate::algorithms::{Request, up};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use vmcc_cc::Params;
use vmcc_guard::{Guard, GuardEvent, GuardState, Policy};

/// A thread that closes paths until this is dropped.
pub(crate) struct GuardThread {
    of: (Vec<Params>, Policy),
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<GuardState>>,
    events: Receiver<Event>,
}

impl GuardThread {
    /// Guards algorithms that are up, and goes on with what another one knew.
    pub(crate) fn start(algorithms: &[Params], policy: Policy, state: GuardState) -> Self {
        let of = (algorithms.to_vec(), policy);
        let stop = Arc::new(AtomicBool::new(false));
        let (send, events) = channel();
        let (told, wanted) = (Arc::clone(&stop), of.0.clone());
        let thread = std::thread::spawn(move || {
            let problem = |text: String| Event::Problem { text: format!("guard: {text}") };
            // A receiver that is gone needs no event.
            let say = |event| drop(send.send(event));
            match up(Request { algorithms: &wanted, restricted: false, guarded: true }) {
                Ok(requests) => Guard::new(requests, policy, state).watch(&told, &mut |seen| match seen {
                    Ok(GuardEvent::Closed(request)) => say(Event::Closed { request }),
                    Ok(GuardEvent::Action(path_action)) => say(Event::Guard { path_action }),
                    Err(error) => say(problem(error.to_string())),
                }),
                Err(error) => {
                    say(problem(error.to_string()));
                    state
                }
            }
        });
        Self { of, stop, thread: Some(thread), events }
    }

    /// True if the guard runs.
    pub(crate) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// True if the guard runs with these algorithms and this policy.
    pub(crate) fn guards(&self, algorithms: &[Params], policy: Policy) -> bool {
        self.of.0 == algorithms && self.of.1 == policy && self.is_running()
    }

    /// Events since the last call.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.try_iter().collect()
    }

    /// Ends the guard. Returns its state, and its events since the last call of [`Self::events`].
    pub(crate) fn end(mut self) -> (GuardState, Vec<Event>) {
        let state = self.join().unwrap_or_default();
        (state, self.events())
    }

    fn join(&mut self) -> Option<GuardState> {
        self.stop.store(true, Ordering::SeqCst);
        // A panic of it was shown when it happened.
        self.thread.take()?.join().ok()
    }
}

impl Drop for GuardThread {
    fn drop(&mut self) {
        self.join();
    }
}
