//! Requests of algorithms to close paths.
//!
//! A BPF program cannot close a socket. An algorithm that finds two of a connection's paths sharing a bottleneck leaves an
//! event in a ring buffer, which [`CloseRequests`] reads. Decisions on requests belong to the crate `vmcc-guard`.

mod event;

pub use event::CloseRequest;

use crate::activity::Activity;
use crate::error::ControlError;
use crate::load::Loaded;
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use vmcc_system::netns;

/// Maximum age of a request: a reader that was stopped does not pass on older ones.
const MAX_AGE: Duration = Duration::from_secs(10);
/// The same for a request without a cookie: in a second no subflow can end, get a successor between the same ends and have that
/// acknowledge as much.
const MAX_AGE_WITHOUT_COOKIE: Duration = Duration::from_secs(1);

/// Reader of one algorithm's requests. A request reaches one reader.
pub struct CloseRequests {
    ring: RingBuffer<'static>,
    found: Rc<RefCell<Vec<CloseRequest>>>,
    kernel_name: &'static str,
    activity: Option<Activity>,
    ignored: usize,
    /// The ring buffer reads through it.
    _map: MapHandle,
}

impl CloseRequests {
    /// Opens the requests of a loaded algorithm; `None` if it never closes paths. Drops what was requested before.
    ///
    /// # Errors
    /// The ring buffer cannot be opened.
    pub fn open(loaded: &Loaded) -> Result<Option<Self>, ControlError> {
        let Some(map) = loaded.events_map() else { return Ok(None) };
        let failed = |e| ControlError::kernel(format!("read events of {}", loaded.kernel_name()), e);
        let map = MapHandle::try_from(map).map_err(failed)?;
        let found = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&found);
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            sink.borrow_mut().extend(CloseRequest::decode(bytes));
            0
        };
        builder.add(&map, take).map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        ring.consume().map_err(failed)?;
        let ignored = found.take().len();
        let groups = loaded.groups_map().map(MapHandle::try_from).transpose().map_err(failed)?;
        let activity = groups.as_ref().map(Activity::open).transpose()?;
        Ok(Some(Self { ring, found, kernel_name: loaded.kernel_name(), activity, ignored, _map: map }))
    }

    /// The algorithm whose requests these are, by its name in the kernel.
    pub fn kernel_name(&self) -> &'static str {
        self.kernel_name
    }

    /// Network namespaces that have MPTCP connections under this algorithm, by inode number, each with a number that changes with
    /// any activity of these.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn activity(&self) -> Result<BTreeMap<u32, u64>, ControlError> {
        self.activity.as_ref().map_or_else(|| Ok(BTreeMap::new()), Activity::read)
    }

    /// Number of requests that were dropped by [`Self::open`].
    pub fn ignored(&self) -> usize {
        self.ignored
    }

    /// Waits up to `timeout` for requests; an empty answer means that none came.
    ///
    /// # Errors
    /// The ring buffer cannot be read.
    pub fn poll(&self, timeout: Duration) -> Result<Vec<CloseRequest>, ControlError> {
        match self.ring.poll(timeout) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::Interrupted => {
                Err(ControlError::kernel("wait for requests to close paths", e))
            }
            _ => Ok(fresh(self.found.take(), netns::monotonic_ns())),
        }
    }
}

fn fresh(mut requests: Vec<CloseRequest>, now_ns: u64) -> Vec<CloseRequest> {
    let age = |request: &CloseRequest| Duration::from_nanos(now_ns.saturating_sub(request.time_ns));
    let most = |request: &CloseRequest| if request.cookie == 0 { MAX_AGE_WITHOUT_COOKIE } else { MAX_AGE };
    requests.retain(|request| age(request) <= most(request));
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_requests_expire() {
        let at = |time_ns| CloseRequest { time_ns, ..event::tests::request() };
        let requests = vec![at(1_000_000_000), at(2_000_000_000), at(12_000_000_001)];
        assert_eq!(fresh(requests, 12_000_000_000), [at(2_000_000_000), at(12_000_000_001)]);
    }

    #[test]
    fn requests_without_a_socket_expire_early() {
        let at = |time_ns| CloseRequest { time_ns, cookie: 0, ..event::tests::request() };
        let requests = vec![at(10_999_999_999), at(11_000_000_000)];
        assert_eq!(fresh(requests, 12_000_000_000), [at(11_000_000_000)]);
    }
}
