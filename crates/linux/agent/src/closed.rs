//! Paths that the agent's guard closed, at the connections that go on without them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use vmcc_bpf::close_requests::CloseRequest;
use vmcc_guard::PathAction;
use vmcc_system::netns;

/// The same as the agent remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Closed {
    /// Time at which it was closed, on the clock that counts from boot.
    time_ns: u64,
    /// Inode number of the connection's network namespace.
    netns: u32,
    /// The connection's token at this end.
    token: u32,
    local: SocketAddr,
    remote: SocketAddr,
    reason: String,
}

impl From<&CloseRequest> for Closed {
    fn from(request: &CloseRequest) -> Self {
        let CloseRequest { time_ns, netns, token, local, remote, peer_local, peer_remote, .. } = *request;
        let reason = format!("shares a bottleneck with {peer_local} -> {peer_remote}");
        Self { time_ns, netns, token, local, remote, reason }
    }
}

impl From<&PathAction> for Closed {
    fn from(path_action: &PathAction) -> Self {
        let PathAction { netns, token, local, remote, .. } = *path_action;
        let reason = path_action.reason.clone();
        Self { time_ns: netns::monotonic_ns(), netns, token, local, remote, reason }
    }
}

impl Closed {
    fn seen_at(self, now_ns: u64) -> ClosedPath {
        let seconds_ago = now_ns.saturating_sub(self.time_ns) as f64 / 1e9;
        ClosedPath { local: self.local, remote: self.remote, seconds_ago, reason: self.reason }
    }
}

/// A path that was closed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClosedPath {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Time since it was closed.
    pub seconds_ago: f64,
    /// Reason, as half a sentence.
    pub reason: String,
}

/// Paths that the agent says its guard closed in the calling thread's network namespace, by their connection's token.
pub(crate) fn by_token(agent: Option<&Value>) -> HashMap<u32, Vec<ClosedPath>> {
    let all = agent.and_then(|view| view["closed"].as_array()).map_or(&[][..], Vec::as_slice);
    let mut found: HashMap<u32, Vec<ClosedPath>> = HashMap::new();
    let (Some(here), false) = (netns::own(), all.is_empty()) else { return found };
    let now_ns = netns::monotonic_ns();
    for path in
        all.iter().filter_map(|entry| Closed::deserialize(entry).ok()).filter(|path| path.netns == here)
    {
        found.entry(path.token).or_default().push(path.seen_at(now_ns));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn closed_path_is_matched_by_token_and_namespace() {
        let entry = |netns: u32, token: u32| {
            json!({
                "netns": netns, "token": token, "time_ns": 1, "local": "10.0.1.1:5", "remote": "10.0.1.2:6",
                "reason": "shares a bottleneck with 10.0.0.1:3 -> 10.0.0.2:4",
            })
        };
        let here = netns::own().unwrap();
        let path_action = PathAction {
            action: crate::Action::Closed,
            reason: "it carried nothing".to_owned(),
            netns: here,
            token: 9,
            local: "10.0.2.1:7".parse().unwrap(),
            remote: "10.0.2.2:8".parse().unwrap(),
        };
        let of_action = serde_json::to_value(Closed::from(&path_action)).unwrap();
        let view = json!({ "closed": [entry(here, 7), entry(here + 1, 7), entry(here, 8), {}, of_action] });
        let found = by_token(Some(&view));
        assert_eq!([7, 8, 9].map(|token| found[&token].len()), [1, 1, 1]);
        assert_eq!(found.len(), 3);
        let closed = &found[&7][0];
        assert_eq!(closed.reason, "shares a bottleneck with 10.0.0.1:3 -> 10.0.0.2:4");
        assert_eq!((found[&9][0].local.port(), found[&9][0].reason.as_str()), (7, "it carried nothing"));
        assert!(closed.local.port() == 5 && closed.remote.port() == 6 && closed.seconds_ago > 0.0);
    }
}
