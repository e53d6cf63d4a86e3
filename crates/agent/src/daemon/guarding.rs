//! The guard, in a thread of its own beside the agent.

use super::news::News;
use crate::algorithms::{Request, up};
use crate::guard::{Did, Policy};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use vmcc_cc::Params;

/// A thread that closes paths until this is dropped.
pub(crate) struct Guarding {
    of: (Vec<Params>, Policy),
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    news: Receiver<News>,
}

impl Guarding {
    /// Guards algorithms that are up.
    pub(crate) fn start(algorithms: &[Params], policy: Policy) -> Self {
        let of = (algorithms.to_vec(), policy);
        let stop = Arc::new(AtomicBool::new(false));
        let (send, news) = channel();
        let (told, wanted) = (Arc::clone(&stop), of.0.clone());
        let thread = std::thread::spawn(move || {
            let problem = |text: String| News::Problem { text: format!("guard: {text}") };
            // Whoever listens no longer needs no news.
            let say = |news| drop(send.send(news));
            match up(Request { algorithms: &wanted, restricted: false, guarded: true }) {
                Ok(guards) => drop(guards.watch(policy, &told, &mut |seen| match seen {
                    Ok(Did::Closed(request)) => say(News::Closed { request }),
                    Ok(Did::Deed(deed)) => say(News::Guard { deed }),
                    Err(error) => say(problem(error.to_string())),
                })),
                Err(error) => say(problem(error.to_string())),
            }
        });
        Self { of, stop, thread: Some(thread), news }
    }

    /// Whether it runs, and guards these so.
    pub(crate) fn guards(&self, algorithms: &[Params], policy: Policy) -> bool {
        self.of.0 == algorithms
            && self.of.1 == policy
            && self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// What it did since the last call.
    pub(crate) fn news(&self) -> Vec<News> {
        self.news.try_iter().collect()
    }
}

impl Drop for Guarding {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic of it was shown when it happened.
            let _ = thread.join();
        }
    }
}
