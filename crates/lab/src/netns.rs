//! Network namespaces, each with a thread that lives in it.
//!
//! A namespace belongs to a thread, not to a process. Everything that must happen inside (opening sockets,
//! writing sysctls, starting programs) is therefore sent to the namespace's own thread. Programs started from
//! it die with it (see [`crate::process`]), so that a killed run leaves no program behind.

use crate::{Error, registry::Record};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use vmcc_netlink::{Links, PortInfo};

/// Directory in which `ip netns` looks for names.
pub(crate) const NAMES: &str = "/run/netns";

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace of this run. Dropping it removes the name, if it has one; the kernel then removes links and queues.
#[derive(Debug)]
pub struct Netns {
    name: String,
    /// True if `ip netns` shows it.
    named: bool,
    handle: File,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// Into which programs are put.
    cgroup: OnceLock<PathBuf>,
}

impl Netns {
    /// Makes the namespace `name`, after writing it into the run's record.
    pub(crate) fn create(name: &str, record: &mut Record) -> Result<Self, Error> {
        let path = path_of(name);
        if path.symlink_metadata().is_ok() {
            return Err(Error::NamespaceTaken { name: name.to_owned() });
        }
        record.add_namespace(name)?;
        fs::create_dir_all(NAMES).map_err(|e| Error::file(NAMES, e))?;
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                record.forget_namespace(name)?;
                return Err(Error::NamespaceTaken { name: name.to_owned() });
            }
            Err(e) => return Err(Error::file(path, e)),
            Ok(_) => {}
        }
        let started = Self::start(name, Some(&path));
        if started.is_err() {
            remove_name(name);
        }
        started
    }

    /// Makes a namespace that no name leads to: it goes with its handle, however the process ends. `called` is for
    /// messages.
    pub(crate) fn unnamed(called: &str) -> Result<Self, Error> {
        Self::start(called, None)
    }

    fn start(name: &str, path: Option<&Path>) -> Result<Self, Error> {
        let failed = |action, e: io::Error| Error::kernel(action, format!("network namespace {name}"), e);
        let (jobs, queue) = channel::<Job>();
        let (report, entered) = channel::<io::Result<File>>();
        let mount_point = path.map(Path::to_owned);
        let thread = thread::Builder::new()
            .name(name.chars().take(15).collect())
            .spawn(move || {
                let result = enter_new(mount_point.as_deref());
                let usable = result.is_ok();
                // The receiver is waiting below; if it is gone there is nobody to tell.
                let _ = report.send(result);
                if usable {
                    queue.into_iter().for_each(|job| job());
                }
            })
            .map_err(|e| failed("starting a thread for", e))?;
        let result = entered.recv().unwrap_or_else(|_| Err(io::Error::other("its thread died")));
        let handle = result.map_err(|e| failed("creating", e))?;
        let named = path.is_some();
        Ok(Self {
            name: name.to_owned(),
            named,
            handle,
            jobs: Some(jobs),
            thread: Some(thread),
            cgroup: OnceLock::new(),
        })
    }

    /// The name, as `ip netns` shows it if it has one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Has programs put into this cgroup that are started from now on. The first one counts.
    pub(crate) fn put_programs_in(&self, cgroup: &Path) {
        let _ = self.cgroup.set(cgroup.to_owned());
    }

    pub(crate) fn cgroup(&self) -> Option<&Path> {
        self.cgroup.get().map(PathBuf::as_path)
    }

    /// For netlink requests that put a link into this namespace.
    pub(crate) fn raw_fd(&self) -> i32 {
        self.handle.as_raw_fd()
    }

    /// Runs `job` inside the namespace and returns its result. A panic of `job` continues in the caller.
    pub fn run<T, F>(&self, job: F) -> T
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (report, result) = channel();
        let boxed: Job = Box::new(move || {
            let _ = report.send(catch_unwind(AssertUnwindSafe(job)));
        });
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(boxed).is_ok());
        assert!(sent, "the thread of namespace {} lives as long as its handle", self.name);
        match result.recv() {
            Ok(Ok(value)) => value,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => unreachable!("a job always reports"),
        }
    }

    /// Sets a sysctl of this namespace, as `net.ipv4.tcp_ecn`.
    pub(crate) fn sysctl(&self, key: &str, value: &str) -> Result<(), Error> {
        let path = PathBuf::from("/proc/sys").join(key.replace('.', "/"));
        let bytes = value.to_owned();
        let written = self.run(move || fs::write(path, bytes));
        written.map_err(|e| Error::kernel("setting", format!("{key}={value} in namespace {}", self.name), e))
    }

    /// The port called `port`, or an error that lists what there is.
    pub fn port_index(&self, port: &str) -> Result<u32, Error> {
        let ports = self.ports()?;
        ports.iter().find(|info| info.name == port).map(|info| info.index).ok_or_else(|| Error::NoSuchPort {
            port: port.to_owned(),
            namespace: self.name.clone(),
            existing: ports.iter().map(|info| info.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    fn ports(&self) -> Result<Vec<PortInfo>, Error> {
        let listed = self.run(|| Links::open()?.list());
        listed.map_err(|e| Error::kernel("listing the ports of", format!("namespace {}", self.name), e))
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // Jobs catch their panics, so the thread ends normally.
            let _ = thread.join();
        }
        if self.named {
            remove_name(&self.name);
        }
    }
}

/// File of the calling thread's namespace.
const OWN: &str = "/proc/thread-self/ns/net";

/// Moves the calling thread into a new namespace, which gets a name if there is a `mount_point`.
fn enter_new(mount_point: Option<&Path>) -> io::Result<File> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let no_type: Option<&str> = None;
    if let Some(mount_point) = mount_point {
        mount(Some(OWN), mount_point, no_type, MsFlags::MS_BIND, no_type)?;
    }
    File::open(OWN)
}

pub(crate) fn path_of(name: &str) -> PathBuf {
    Path::new(NAMES).join(name)
}

/// Removes the name of a namespace if it is there. What cannot be removed now is left for `vmcc clean`, which
/// reports it.
pub(crate) fn remove_name(name: &str) {
    let path = path_of(name);
    // EINVAL: the file is there but nothing is mounted on it (creation stopped half-way).
    let _ = umount2(&path, MntFlags::MNT_DETACH);
    let _ = fs::remove_file(&path);
}
