//! Closing paths that an algorithm asked to close.
//!
//! A BPF program cannot close a socket. An algorithm that finds two of a connection's paths sharing a bottleneck
//! leaves an event in a ring buffer; [`Guard`] reads it and closes that subflow, whose data MPTCP sends again on
//! the paths that are left.
//!
//! An event tells what was, and addresses and ports are used again. So a guard looks first: it closes a socket only
//! if that is listed now, belongs to the connection, runs under the algorithm, has not acknowledged less than it had
//! at the event, and if the path to be kept is listed as well and alive. Requests are judged one after the other,
//! each by what the kernel says then: of two paths that accuse each other one survives.
//!
//! A socket's cookie says whether it is the one that was meant, but the kernel gives it one only when somebody asks. A
//! request that has none is believed for a second, in which no subflow can end, get a successor between the same ends and
//! have that acknowledge as much.

mod event;
mod subflow;

pub use event::CloseRequest;
pub use subflow::{Endpoint, Reopened, renew, reopen, restore, set_backup};

use crate::diag::{CaState, Diag, DiagError, Subflow};
use crate::error::ControlError;
use crate::group_table;
use crate::load::Loaded;
use crate::netns;
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;
use vmcc_multipath::may_suppress;

/// A guard that was stopped does not act on what was so long ago.
const MAX_AGE: Duration = Duration::from_secs(10);
/// The same for a request that does not say which socket it was.
const MAX_AGE_WITHOUT_COOKIE: Duration = Duration::from_secs(1);

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The path is closed.
    Closed,
    /// There is no such path (any more).
    Gone,
    /// The path to be kept is gone, waits for a timeout, or is a backup: closing would leave nothing good.
    NothingToKeep,
    /// Too few others are in use.
    Spared,
}

/// Decision on a request, at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// This subflow is meant, and another one is left.
    Close(Box<Subflow>),
    /// There is no such path (any more).
    Gone,
    /// This subflow is meant; else as [`Verdict::NothingToKeep`].
    NothingToKeep(Box<Subflow>),
    /// This subflow is meant; else as [`Verdict::Spared`].
    Spared(Box<Subflow>),
}

/// Does something in the network namespace of this inode number, for what `action` says.
///
/// # Errors
/// The namespace is not reachable.
pub fn within<T: Send>(
    netns: u32,
    action: impl Fn() -> String,
    act: impl FnOnce() -> T + Send,
) -> Result<T, ControlError> {
    let file = netns::find(netns).ok_or_else(|| {
        ControlError::kernel(action(), format!("network namespace {netns} is not reachable"))
    })?;
    netns::within(netns::open(&file)?.as_fd(), act)
}

impl CloseRequest {
    /// That `close` be closed and `keep` kept, both of one connection in the network namespace of that inode number, as an algorithm
    /// asks of a socket that nobody had asked for a cookie.
    pub fn between(close: &Subflow, keep: &Subflow, netns: u32) -> Self {
        Self {
            time_ns: 0,
            cookie: 0,
            bytes_acked: close.bytes_acked,
            token: close.mptcp.map_or(0, |mptcp| mptcp.token_local),
            netns,
            interface: close.interface,
            slot: 0,
            peer: 1,
            local: close.local,
            remote: close.remote,
            peer_local: keep.local,
            peer_remote: keep.remote,
        }
    }

    /// Closes the subflow, in whatever network namespace it lives, if it still is what was meant: a subflow of that
    /// connection under the algorithm `kernel_name`, and `min_paths` others are in use.
    ///
    /// # Errors
    /// The namespace is not reachable, or the kernel refuses.
    pub fn close(&self, kernel_name: &str, min_paths: u32) -> Result<Verdict, ControlError> {
        self.inside(|diag| match self.judge(&diag.subflows()?, kernel_name, min_paths, |_| false) {
            Judged::Close(socket) => match diag.destroy(&socket) {
                Err(DiagError::NotFound { .. }) => Ok(Verdict::Gone),
                other => other.map(|()| Verdict::Closed),
            },
            Judged::Gone => Ok(Verdict::Gone),
            Judged::NothingToKeep(_) => Ok(Verdict::NothingToKeep),
            Judged::Spared(_) => Ok(Verdict::Spared),
        })
    }

    fn inside<T: Send>(
        &self,
        act: impl FnOnce(&mut Diag) -> Result<T, DiagError> + Send,
    ) -> Result<T, ControlError> {
        let action = || format!("close the subflow {} -> {}", self.local, self.remote);
        let act = || Diag::open().and_then(|mut diag| act(&mut diag));
        within(self.netns, action, act)?
            .map_err(|e| ControlError::kernel("close a path that shares a bottleneck", e))
    }

    /// Decides on the request, given the subflows of its network namespace.
    ///
    /// A subflow is closed only if at least `min_paths` others are in use. `given_up` is true for a subflow that will not stay.
    pub fn judge(
        &self,
        all: &[Subflow],
        kernel_name: &str,
        min_paths: u32,
        given_up: impl Fn(&Subflow) -> bool,
    ) -> Judged {
        let Some(meant) = all.iter().find(|s| self.means(s, kernel_name)) else { return Judged::Gone };
        let meant = Box::new(meant.clone());
        if !all.iter().any(|s| self.keeps(s)) {
            return Judged::NothingToKeep(meant);
        }
        let is_other = |s: &&Subflow| s.cookie != meant.cookie && self.is_in_use(s) && !given_up(s);
        let others = all.iter().filter(is_other).count();
        if may_suppress(others, min_paths) { Judged::Close(meant) } else { Judged::Spared(meant) }
    }

    fn means(&self, s: &Subflow, kernel_name: &str) -> bool {
        (s.local, s.remote, s.interface) == (self.local, self.remote, self.interface)
            && self.is_of_connection(s)
            && s.algorithm == kernel_name
            && (self.cookie == 0 || self.cookie.to_ne_bytes() == s.cookie)
            && s.bytes_acked >= self.bytes_acked
    }

    fn keeps(&self, s: &Subflow) -> bool {
        (s.local, s.remote) == (self.peer_local, self.peer_remote) && self.is_in_use(s)
    }

    fn is_in_use(&self, s: &Subflow) -> bool {
        self.is_of_connection(s)
            && s.established
            && s.ca_state != CaState::Loss
            && s.mptcp.is_some_and(|m| !m.backup)
    }

    fn is_of_connection(&self, s: &Subflow) -> bool {
        s.mptcp.is_some_and(|m| m.token_local == self.token)
    }
}

/// Reads what one algorithm asks to close.
pub struct Guard {
    ring: RingBuffer<'static>,
    found: Rc<RefCell<Vec<CloseRequest>>>,
    kernel_name: &'static str,
    groups: Option<MapHandle>,
    ignored: usize,
    /// The ring buffer reads through it.
    _map: MapHandle,
}

impl Guard {
    /// A guard for a loaded algorithm; `None` if it never closes paths. What was asked for before is forgotten.
    ///
    /// # Errors
    /// The ring buffer cannot be opened.
    pub fn new(loaded: &Loaded) -> Result<Option<Self>, ControlError> {
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
        Ok(Some(Self { ring, found, kernel_name: loaded.kernel_name(), groups, ignored, _map: map }))
    }

    /// The algorithm whose requests these are, by its name in the kernel.
    pub fn kernel_name(&self) -> &'static str {
        self.kernel_name
    }

    /// The inode numbers of the network namespaces that have MPTCP connections under this algorithm, each with a number that
    /// changes with whatever happens to these.
    pub fn activity(&self) -> BTreeMap<u32, u64> {
        self.groups.as_ref().map(group_table::activity).unwrap_or_default()
    }

    /// Requests that nobody had read when this guard began.
    pub fn ignored(&self) -> usize {
        self.ignored
    }

    /// Waits up to `timeout` for requests; an empty answer means that none came.
    ///
    /// # Errors
    /// The ring buffer cannot be read.
    pub fn requests(&self, timeout: Duration) -> Result<Vec<CloseRequest>, ControlError> {
        match self.ring.poll(timeout) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::Interrupted => {
                Err(ControlError::kernel("wait for requests to close paths", e))
            }
            _ => Ok(fresh(self.found.take(), netns::monotonic_ns())),
        }
    }

    /// Waits up to `timeout` and closes what was asked for, where that is still right and `min_paths` others are in use; answers what
    /// was closed.
    ///
    /// # Errors
    /// A subflow cannot be closed; later requests of the same batch are closed nevertheless.
    pub fn step(&self, timeout: Duration, min_paths: u32) -> Result<Vec<CloseRequest>, ControlError> {
        let mut closed = Vec::new();
        let mut failure = None;
        for request in self.requests(timeout)? {
            match request.close(self.kernel_name, min_paths) {
                Ok(Verdict::Closed) => closed.push(request),
                Ok(_) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(closed), Err)
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
    fn what_was_asked_long_ago_is_forgotten() {
        let at = |time_ns| CloseRequest { time_ns, ..event::tests::request() };
        let requests = vec![at(1_000_000_000), at(2_000_000_000), at(12_000_000_001)];
        assert_eq!(fresh(requests, 12_000_000_000), [at(2_000_000_000), at(12_000_000_001)]);
    }

    #[test]
    fn what_names_no_socket_is_forgotten_soon() {
        let at = |time_ns| CloseRequest { time_ns, cookie: 0, ..event::tests::request() };
        let requests = vec![at(10_999_999_999), at(11_000_000_000)];
        assert_eq!(fresh(requests, 12_000_000_000), [at(11_000_000_000)]);
    }
}
