//! Decision on an algorithm's request to close a path.
//!
//! A request tells the past, and addresses and ports are used again. So a socket is closed only if it is listed now, belongs to
//! the connection, runs under the algorithm and has not acknowledged less than it had then, and if the path to be kept is listed
//! as well and alive. Requests are judged one after the other, each by what the kernel lists then: of two paths that request to
//! close each other one survives.
//!
//! A socket's cookie identifies it, but the kernel assigns one only when it is first read. A request without a cookie is valid for
//! a second (see [`vmcc_bpf::close_requests`]).

use vmcc_bpf::close_requests::CloseRequest;
use vmcc_multipath::may_suppress;
use vmcc_system::diag::{CaState, Subflow};

/// Decision on a request, at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Judged {
    /// This subflow is meant, and enough others are in use.
    Close(Box<Subflow>),
    /// There is no such path (any more).
    Gone,
    /// This subflow is meant; the path to be kept is gone, waits for a timeout, or is a backup.
    NothingToKeep(Box<Subflow>),
    /// This subflow is meant; too few others are in use.
    Retain(Box<Subflow>),
}

/// Decides on a request, given the subflows of its network namespace.
///
/// A subflow is closed only if at least `min_paths` others are in use. `given_up` is true for a subflow that will not stay.
pub(super) fn judge(
    request: &CloseRequest,
    all: &[Subflow],
    kernel_name: &str,
    min_paths: u32,
    given_up: impl Fn(&Subflow) -> bool,
) -> Judged {
    let Some(meant) = all.iter().find(|s| means(request, s, kernel_name)) else { return Judged::Gone };
    let meant = Box::new(meant.clone());
    if !all.iter().any(|s| keeps(request, s)) {
        return Judged::NothingToKeep(meant);
    }
    let is_other = |s: &&Subflow| s.cookie != meant.cookie && is_in_use(request, s) && !given_up(s);
    let others = all.iter().filter(is_other).count();
    if may_suppress(others, min_paths) { Judged::Close(meant) } else { Judged::Retain(meant) }
}

fn means(request: &CloseRequest, s: &Subflow, kernel_name: &str) -> bool {
    (s.local, s.remote, s.interface) == (request.local, request.remote, request.interface)
        && is_of_connection(request, s)
        && s.algorithm == kernel_name
        && (request.cookie == 0 || request.cookie.to_ne_bytes() == s.cookie)
        && s.bytes_acked >= request.bytes_acked
}

fn keeps(request: &CloseRequest, s: &Subflow) -> bool {
    (s.local, s.remote) == (request.peer_local, request.peer_remote) && is_in_use(request, s)
}

fn is_in_use(request: &CloseRequest, s: &Subflow) -> bool {
    is_of_connection(request, s)
        && s.established
        && s.ca_state != CaState::Loss
        && s.mptcp.is_some_and(|m| !m.backup)
}

fn is_of_connection(request: &CloseRequest, s: &Subflow) -> bool {
    s.mptcp.is_some_and(|m| m.token_local == request.token)
}
