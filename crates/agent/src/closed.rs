//! Paths that the agent's guard closed, at the connections that go on without them.

use crate::Connection;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use vmcc_host::netns;

/// A path that was closed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClosedPath {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// How long ago.
    pub seconds_ago: f64,
    /// Why, as half a sentence.
    pub reason: String,
}

/// Adds to each connection of the calling thread's network namespace what the agent says that its guard closed.
pub(crate) fn add(connections: &mut [Connection], agent: Option<&Value>) {
    let all = agent.and_then(|view| view["closed"].as_array()).map_or(&[][..], Vec::as_slice);
    let (Some(here), false) = (netns::own(), all.is_empty()) else { return };
    let mut by_token: HashMap<u64, Vec<ClosedPath>> = HashMap::new();
    for entry in all.iter().filter(|entry| entry["netns"].as_u64() == Some(here.into())) {
        let Some((token, closed)) = entry["token"].as_u64().zip(closed(entry, netns::monotonic_ns())) else {
            continue;
        };
        by_token.entry(token).or_default().push(closed);
    }
    for connection in connections {
        let token = connection.token.map(u64::from);
        connection.closed = token.and_then(|token| by_token.remove(&token)).unwrap_or_default();
    }
}

fn closed(entry: &Value, now_ns: u64) -> Option<ClosedPath> {
    let end = |key: &str| entry[key].as_str()?.parse::<SocketAddr>().ok();
    let age_ns = now_ns.saturating_sub(entry["time_ns"].as_u64()?);
    Some(ClosedPath {
        local: end("local")?,
        remote: end("remote")?,
        seconds_ago: age_ns as f64 / 1e9,
        reason: format!("shares a bottleneck with {} -> {}", end("peer_local")?, end("peer_remote")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_closed_path_is_of_the_connection_with_its_token_in_its_namespace() {
        let entry = |netns: u32, token: u32| {
            json!({
                "netns": netns, "token": token, "time_ns": 1, "local": "10.0.1.1:5", "remote": "10.0.1.2:6",
                "peer_local": "10.0.0.1:3", "peer_remote": "10.0.0.2:4",
            })
        };
        let here = netns::own().unwrap();
        let view = json!({ "closed": [entry(here, 7), entry(here + 1, 7), entry(here, 8), {}] });
        let connection = |token| Connection {
            token,
            algorithm: "mp_vmcc".to_owned(),
            received_bytes: None,
            retransmitted_bytes: None,
            paths: Vec::new(),
            closed: Vec::new(),
        };
        let mut all = [connection(Some(7)), connection(Some(9)), connection(None)];
        add(&mut all, Some(&view));
        assert_eq!(all.each_ref().map(|one| one.closed.len()), [1, 0, 0]);
        let closed = &all[0].closed[0];
        assert_eq!(closed.reason, "shares a bottleneck with 10.0.0.1:3 -> 10.0.0.2:4");
        assert!(closed.local.port() == 5 && closed.remote.port() == 6 && closed.seconds_ago > 0.0);
    }
}
