//! The guard, in a thread of its own beside the agent.

use super::news::News;
use crate::algorithms::{Request, up};
use crate::guard::{Did, Memory, Policy};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use vmcc_cc::Params;

/// A thread that closes paths until this is dropped.
pub(crate) struct Guarding {
    of: (Vec<Params>, Policy),
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Memory>>,
    news: Receiver<News>,
}

impl Guarding {
    /// Guards algorithms that are up, and goes on with what another one knew.
    pub(crate) fn start(algorithms: &[Params], policy: Policy, mut memory: Memory) -> Self {
        let of = (algorithms.to_vec(), policy);
        let stop = Arc::new(AtomicBool::new(false));
        let (send, news) = channel();
        let (told, wanted) = (Arc::clone(&stop), of.0.clone());
        let thread = std::thread::spawn(move || {
            let problem = |text: String| News::Problem { text: format!("guard: {text}") };
            // Whoever listens no longer needs no news.
            let say = |news| drop(send.send(news));
            match up(Request { algorithms: &wanted, restricted: false, guarded: true }) {
                Ok(guards) => drop(guards.watch(policy, &mut memory, &told, &mut |seen| match seen {
                    Ok(Did::Closed(request)) => say(News::Closed { request }),
                    Ok(Did::Deed(deed)) => say(News::Guard { deed }),
                    Err(error) => say(problem(error.to_string())),
                })),
                Err(error) => say(problem(error.to_string())),
            }
            memory
        });
        Self { of, stop, thread: Some(thread), news }
    }

    /// True if the guard runs.
    pub(crate) fn is_on(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// True if the guard runs with these algorithms and this policy.
    pub(crate) fn guards(&self, algorithms: &[Params], policy: Policy) -> bool {
        self.of.0 == algorithms && self.of.1 == policy && self.is_on()
    }

    /// Events since the last call.
    pub(crate) fn news(&self) -> Vec<News> {
        self.news.try_iter().collect()
    }

    /// Ends it: what it knew, and what it did since it was asked for news.
    pub(crate) fn end(mut self) -> (Memory, Vec<News>) {
        let memory = self.join().unwrap_or_default();
        (memory, self.news())
    }

    fn join(&mut self) -> Option<Memory> {
        self.stop.store(true, Ordering::SeqCst);
        // A panic of it was shown when it happened.
        self.thread.take()?.join().ok()
    }
}

impl Drop for Guarding {
    fn drop(&mut self) {
        self.join();
    }
}
