//! Relays of an endpoint: requested for peers, checked, released.

use crate::address::Source;
use crate::endpoint::Endpoint;
use crate::relay::{Relay, RelaySocket, RelayState, Via};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::Poll;

impl Endpoint {
    /// Requests relaying from a local address to a peer, and returns its state.
    pub(crate) fn relay(&self, source: &Source, relay: &Relay, remote: SocketAddr) -> RelayState {
        let mut inner = self.shared().lock();
        let now = inner.now();
        let v6 = remote.is_ipv6();
        let at = match inner.relays.iter().position(|open| open.matches(source.ip, relay, v6)) {
            Some(at) => at,
            None => match RelaySocket::open(now, source, relay, v6) {
                Ok(open) => {
                    inner.relays.push(open);
                    inner.relays.len() - 1
                }
                Err(error) => return RelayState::Failed(format!("no socket at {}: {error}", source.ip)),
            },
        };
        let state = inner.relays[at].state(now, remote);
        if matches!(state, RelayState::Failed(_) | RelayState::Lost) {
            inner.relays.swap_remove(at);
        }
        inner.wake_driver();
        state
    }

    /// Relay that a path's local address belongs to, if it belongs to one that works.
    pub fn via(&self, local: SocketAddr) -> Option<Via> {
        let mut inner = self.shared().lock();
        inner.relay_of(local).filter(|relay| relay.failure().is_none()).map(|relay| relay.via().clone())
    }

    /// Has a relay asked whether it still has the address: nothing came by it.
    pub(crate) fn check_relay(&self, local: SocketAddr) {
        let mut inner = self.shared().lock();
        let now = inner.now();
        if let Some(relay) = inner.relay_of(local) {
            relay.check(now);
        }
        inner.wake_driver();
    }

    /// Gives addresses at relays back that no connection uses and nobody wants.
    pub(crate) fn close_idle_relays(&self, wanted: impl Fn(&Via) -> bool) {
        let mut inner = self.shared().lock();
        let used = inner.used_locals();
        let idle = |relay: &RelaySocket| {
            !wanted(relay.via()) && !relay.relayed().is_some_and(|local| used.contains(&local))
        };
        inner.close_relays(idle);
    }

    /// Waits until the counter of relay changes differs from `seen`, and updates `seen`.
    pub(crate) async fn wait_relay_change(&self, seen: &mut u64) {
        poll_fn(|cx| {
            let mut inner = self.shared().lock();
            if inner.relay_changes != *seen {
                *seen = inner.relay_changes;
                return Poll::Ready(());
            }
            if !inner.relay_wakers.iter().any(|other| other.will_wake(cx.waker())) {
                inner.relay_wakers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}
