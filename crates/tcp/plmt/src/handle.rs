//! The share that a session's copies and streams have in it.

use crate::shared::{Inner, Shared};
use std::sync::Arc;
use std::task::{Context, Poll};

/// The session is closed when the last copy is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Handle(Arc<Owner>);

#[derive(Debug)]
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.session.close(0, "");
        inner.dispatch();
        inner.wake_driver();
    }
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>) -> Handle {
        Handle(Arc::new(Owner(shared)))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// Polls the state; none of it yet has this task woken when it changes.
    pub(crate) fn poll_state<T>(
        &self,
        cx: &mut Context<'_>,
        get: impl FnOnce(&mut Inner) -> Option<T>,
    ) -> Poll<T> {
        poll_state(self.shared(), cx, get)
    }
}

pub(crate) fn poll_state<T>(
    shared: &Shared,
    cx: &mut Context<'_>,
    get: impl FnOnce(&mut Inner) -> Option<T>,
) -> Poll<T> {
    let mut inner = shared.lock();
    match get(&mut inner) {
        Some(value) => Poll::Ready(value),
        None => {
            if !inner.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                inner.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        }
    }
}
