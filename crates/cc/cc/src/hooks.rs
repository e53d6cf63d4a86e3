//! Calls of an algorithm's hooks, which are in C.

use crate::abi::{Decision, Event, Group, Host, Path, Sharing};
use crate::algorithm::{Algorithm, Drive, Hook};
use crate::params::Params;
use std::ptr;

impl Algorithm {
    #[inline]
    fn call(hook: Hook, event: &Event, path: &mut Path, group: Option<&Group>, params: &Params) -> Decision {
        debug_assert!((event.self_index as usize) < crate::MAX_PATHS);
        let mut decision = Decision::default();
        let group = group.map_or(ptr::null(), ptr::from_ref);
        // SAFETY: all pointers come from live references of the layout cc.h declares (sizes and offsets
        // are asserted), the C code writes only `path` and `decision`, keeps no pointer, and accepts
        // any content of what it reads.
        unsafe { hook(event, path, group, params.raw(), &mut decision) };
        decision
    }

    /// The path has just been established, or the algorithm was just selected.
    #[inline]
    pub fn init(&self, event: &Event, path: &mut Path, group: Option<&Group>, params: &Params) -> Decision {
        Self::call(self.ops.init, event, path, group, params)
    }

    /// Every ACK, in every state, before any growth.
    #[inline]
    pub fn on_ack(&self, event: &Event, path: &mut Path, group: Option<&Group>, params: &Params) -> Decision {
        Self::call(self.ops.on_ack, event, path, group, params)
    }

    /// A reduction starts, for [`Event::cause`]: answers with the new ssthresh. To be called at most once
    /// per window of data for ECE and loss together.
    #[inline]
    pub fn on_congestion(
        &self,
        event: &Event,
        path: &mut Path,
        group: Option<&Group>,
        params: &Params,
    ) -> Decision {
        Self::call(self.ops.on_congestion, event, path, group, params)
    }

    /// An ACK arrived while the window may grow.
    #[inline]
    pub fn on_grow(
        &self,
        event: &Event,
        path: &mut Path,
        group: Option<&Group>,
        params: &Params,
    ) -> Decision {
        Self::call(self.ops.on_grow, event, path, group, params)
    }

    /// The host's recovery state has changed to [`Event::state`].
    #[inline]
    pub fn on_state(
        &self,
        event: &Event,
        path: &mut Path,
        group: Option<&Group>,
        params: &Params,
    ) -> Decision {
        Self::call(self.ops.on_state, event, path, group, params)
    }

    /// After [`on_ack`](Self::on_ack), of a path with siblings: looks whether it shares a bottleneck with one of
    /// them. No decision if the algorithm does not [detect](AlgorithmInfo::detects).
    #[inline]
    pub fn detect(&self, event: &Event, group: &Group, sharing: &mut Sharing, params: &Params) -> Decision {
        let mut decision = Decision::default();
        if let Some(detect) = self.ops.detect {
            let mut event = *event;
            // SAFETY: as in `call`; the C code writes only `event`, `sharing` and `decision`.
            unsafe { detect(&mut event, group, sharing, params.raw(), &mut decision) };
        }
        decision
    }

    #[inline]
    fn drive(drive: Drive, event: &Event, host: &mut Host, group: Option<&Group>, params: &Params) {
        let group = group.map_or(ptr::null(), ptr::from_ref);
        // SAFETY: as in `call`; the C code writes only `host`.
        unsafe { drive(event, host, group, params.raw()) };
    }

    /// Establishes a path under the simple driver of `host.h`.
    #[inline]
    pub fn begin(&self, event: &Event, host: &mut Host, group: Option<&Group>, params: &Params) {
        Self::drive(self.ops.begin, event, host, group, params);
    }

    /// One acknowledgment, loss episode or timeout under the simple driver of `host.h`: runs the hooks in
    /// the order of a real host, with at most one reduction per window of data. Window, ssthresh and
    /// state of the event are taken from `host`; [`Event::cause`] says what happened beside the ACK.
    #[inline]
    pub fn step(&self, event: &Event, host: &mut Host, group: Option<&Group>, params: &Params) {
        Self::drive(self.ops.step, event, host, group, params);
    }
}
