//! Control frames that wait to be sent.

use crate::recovery::sent::Control;
use std::collections::{HashSet, VecDeque};

/// Capacity that an empty queue keeps.
const KEPT_CAPACITY: usize = 16;

/// Control frames in order, each once.
#[derive(Debug, Default)]
pub(super) struct Pending {
    queue: VecDeque<Control>,
    queued: HashSet<Control>,
    requested: usize,
}

/// Frames that a peer can cause in any number. All others are bounded by open streams and paths.
fn is_requested(control: Control) -> bool {
    matches!(control, Control::NewCid(..) | Control::RetireCid(..) | Control::PathAbandon(..))
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Frames that only the peer's requests limit.
    pub(super) fn requested(&self) -> usize {
        self.requested
    }

    /// Appends a frame, unless the same is there.
    pub(super) fn push(&mut self, control: Control) {
        if self.queued.insert(control) {
            self.requested += usize::from(is_requested(control));
            self.queue.push_back(control);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Control> {
        let control = self.queue.pop_front()?;
        self.queued.remove(&control);
        self.requested -= usize::from(is_requested(control));
        if self.queue.is_empty() && self.queue.capacity() > KEPT_CAPACITY {
            (self.queue, self.queued) = Default::default();
        }
        Some(control)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_frames_are_queued_once_in_order() {
        let mut pending = Pending::default();
        let [first, last] = [4, 8].map(|id| Control::Stream(vmcc_streams::Control::ResetStream(id)));
        let all = [first, Control::RetireCid(1, 2), last];
        all.into_iter().chain(all).for_each(|control| pending.push(control));
        assert_eq!((pending.len(), pending.requested()), (3, 1));
        assert_eq!(std::iter::from_fn(|| pending.pop()).collect::<Vec<_>>(), all);
        assert!(pending.is_empty() && pending.requested() == 0);
        pending.push(all[0]);
        assert_eq!(pending.pop(), Some(all[0]), "it may be repeated");
    }
}
