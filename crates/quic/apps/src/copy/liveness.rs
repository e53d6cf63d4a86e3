//! Noticing that the other end was killed long before the idle timeout does.

use crate::session::Connection;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Both ends probe their paths every two seconds ([`super::KEEP_ALIVE`]): a peer that sends nothing for this long after its ssh has ended was
/// killed.
const PEER_SILENCE_TIMEOUT: Duration = Duration::from_secs(8);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Returns once `ssh_ended` and nothing has come for [`PEER_SILENCE_TIMEOUT`] since. Either alone means less: ssh's route may be cut while
/// others carry on, and all routes may be cut for a while.
pub(super) async fn peer_lost(connection: &Connection, mut ssh_ended: impl FnMut() -> bool) {
    while !ssh_ended() {
        sleep(POLL_INTERVAL).await;
    }
    let (mut heard, mut at) = (connection.heard(), Instant::now());
    while at.elapsed() < PEER_SILENCE_TIMEOUT {
        sleep(POLL_INTERVAL).await;
        let now = connection.heard();
        if now != heard {
            (heard, at) = (now, Instant::now());
        }
    }
}
