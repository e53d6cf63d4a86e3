//! Waiting for what the agent acts on: signals, changed links and addresses, new network namespaces, time.

use super::reconcile::Watches;
use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};
use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;
use vmcc_system::namespaces::{self, NAMED};

/// Folder in which [`NAMED`] appears when the first namespace gets a name.
const PARENT: &str = "/run";
/// Time within which related announcements arrive.
const SETTLE_TIME: Duration = Duration::from_millis(50);
/// Interval at which a name without a namespace is checked: nothing announces that it gets one.
const NETNS_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Reason for which [`EventLoop::wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Time is up.
    Time,
    /// Links, addresses or namespaces are not as they were.
    Changed,
    /// SIGHUP.
    Reload,
    /// SIGUSR1: end, and leave everything as it is.
    HandOver,
    /// SIGTERM or SIGINT.
    End(Signal),
}

pub(crate) struct EventLoop {
    signals: SignalFd,
    folders: Inotify,
    /// The folder of the names, if it is there.
    named: Option<WatchDescriptor>,
}

impl EventLoop {
    /// From here on signals wait until they are asked for, also in threads that are started later.
    pub(crate) fn new() -> io::Result<Self> {
        let wanted: SigSet =
            [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1].into_iter().collect();
        wanted.thread_block()?;
        let signals = SignalFd::with_flags(&wanted, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let folders = Inotify::init()?;
        folders.watches().add(PARENT, APPEARS | WatchMask::ONLYDIR)?;
        let mut event_loop = Self { signals, folders, named: None };
        event_loop.watch_names()?;
        Ok(event_loop)
    }

    fn watch_names(&mut self) -> io::Result<()> {
        match self.folders.watches().add(NAMED, APPEARS | WatchMask::DELETE | WatchMask::MOVED_FROM) {
            Ok(watch) => self.named = Some(watch),
            // Nobody has named one yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.named = None,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Waits for at most `most`, or until `other` can be read.
    pub(crate) fn wait(&mut self, watches: &mut Watches, other: RawFd, most: Duration) -> io::Result<Wake> {
        let coming = namespaces::coming();
        let most = if coming { most.min(NETNS_POLL_INTERVAL) } else { most };
        let mut fds = vec![self.signals.as_raw_fd(), self.folders.as_raw_fd(), other];
        fds.extend(watches.values().map(AsRawFd::as_raw_fd));
        let ready = poll(&fds, most)?;
        if let Some(wake) = self.signal()? {
            return Ok(wake);
        }
        if !ready {
            return Ok(if coming { Wake::Changed } else { Wake::Time });
        }
        let names = self.names_changed()?;
        if names {
            // A namespace that somebody removes lives as long as we listen in it.
            watches.clear();
        }
        let mut links = changed(watches);
        if names | links {
            std::thread::sleep(SETTLE_TIME);
            links |= changed(watches);
        }
        Ok(if names | links { Wake::Changed } else { Wake::Time })
    }

    fn signal(&mut self) -> io::Result<Option<Wake>> {
        let Some(found) = self.signals.read_signal()? else { return Ok(None) };
        let signal = i32::try_from(found.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok());
        Ok(signal.map(|signal| match signal {
            Signal::SIGHUP => Wake::Reload,
            Signal::SIGUSR1 => Wake::HandOver,
            signal => Wake::End(signal),
        }))
    }

    fn names_changed(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let mut changed = false;
        loop {
            match self.folders.read_events(&mut buffer) {
                Ok(events) => {
                    let of_names = |wd: &WatchDescriptor| self.named.as_ref() == Some(wd);
                    let itself = |name: Option<&OsStr>| {
                        name.is_some_and(|name| NAMED.ends_with(&*name.to_string_lossy()))
                    };
                    // More came than the kernel keeps: any of what is lost may have been one of these.
                    let lost = |mask: EventMask| mask.contains(EventMask::Q_OVERFLOW);
                    changed |= events.into_iter().any(|e| lost(e.mask) || of_names(&e.wd) || itself(e.name));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if changed {
            self.watch_names()?;
        }
        Ok(changed)
    }
}

/// True if anything was announced.
fn changed(watches: &mut Watches) -> bool {
    // Each is asked, so that none tells of it again.
    watches.values_mut().map(|changes| changes.any()).fold(false, std::ops::BitOr::bitor)
}

const APPEARS: WatchMask = WatchMask::CREATE.union(WatchMask::MOVED_TO);

/// True if one of them can be read within `most`.
pub(crate) fn poll(fds: &[RawFd], most: Duration) -> io::Result<bool> {
    let wanted = |fd: &RawFd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<libc::pollfd> = fds.iter().map(wanted).collect();
    let most = i32::try_from(most.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the kernel writes to as many elements as the call states.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, most) };
    match ready {
        ready if ready >= 0 => Ok(ready > 0),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
    }
}
