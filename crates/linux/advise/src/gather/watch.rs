//! The application, watched by its connections.

use super::pattern::Pattern;
use super::{FTP_PORTS, GatherError, resolve};
use crate::facts::Application;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_system::diag::{Diag, Subflow};

/// Between two looks. Connections that begin and end between them are not seen.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Connections to watch, and for how long.
#[derive(Debug, Clone)]
pub struct Watch {
    /// Peer; `None`: all connections with other hosts.
    pub peer: Option<String>,
    /// Time.
    pub duration: Duration,
}

/// Follows connections of the calling thread's network namespace; ends early when `stop` is set. `None` if they carried nothing.
///
/// # Errors
/// The peer has no address, or the kernel does not list sockets.
pub fn watch(watch: &Watch, stop: &AtomicBool) -> Result<Option<Application>, GatherError> {
    let remotes = watch.peer.as_ref().map_or_else(|| Ok(Vec::new()), |name| resolve(name))?;
    let mut diag = Diag::open()?;
    let begun = Instant::now();
    let mut pattern = Pattern::default();
    let mut ftp = false;
    loop {
        let all = diag.subflows()?;
        let wanted: Vec<&Subflow> = all.iter().filter(|socket| is_wanted(socket, &remotes)).collect();
        ftp |= wanted
            .iter()
            .any(|one| [one.local, one.remote].iter().any(|end| FTP_PORTS.contains(&end.port())));
        pattern.look(&wanted);
        if begun.elapsed() >= watch.duration || stop.load(Ordering::Relaxed) {
            break;
        }
        let next = Instant::now() + LOOK_INTERVAL.min(watch.duration.saturating_sub(begun.elapsed()));
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            thread::sleep(STOP_POLL_INTERVAL.min(next.saturating_duration_since(Instant::now())));
        }
    }
    let application = pattern.application(begun.elapsed());
    Ok(application.map(|seen| Application { closes_listener: ftp, ..seen }))
}

fn is_wanted(socket: &Subflow, remotes: &[IpAddr]) -> bool {
    let remote = socket.remote.ip().to_canonical();
    if remotes.is_empty() { !remote.is_loopback() } else { remotes.contains(&remote) }
}
