//! The BPF objects that build.rs compiled, and libbpf's messages.

use crate::shared::{self, FIRST};
use libbpf_rs::{MapHandle, MapType, PrintLevel, libbpf_sys};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use zerocopy::{Immutable, IntoBytes};

/// The objects of one algorithm.
#[derive(Debug)]
pub(crate) struct Object {
    /// The registry's name.
    pub(crate) name: &'static str,
    /// Tells one build of the algorithm from another.
    pub(crate) build: u64,
    /// The struct_ops program.
    pub(crate) program: &'static [u8],
    /// The program that replays recorded events.
    pub(crate) replay: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// Objects of users' own algorithms, which [`crate::compile`] made. They stay for the rest of the process.
static EXTERNAL: RwLock<Vec<&'static Object>> = RwLock::new(Vec::new());

/// True if there are objects of an algorithm.
pub(crate) fn has(name: &str) -> bool {
    Object::find(name).is_some()
}

/// Adds the objects of a user's own algorithm.
pub(crate) fn add(object: Object) {
    EXTERNAL.write().unwrap_or_else(PoisonError::into_inner).push(Box::leak(Box::new(object)));
}

impl Object {
    /// The objects of an algorithm; `None` for a user's own that was not compiled for the kernel.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        let external = || EXTERNAL.read().unwrap_or_else(PoisonError::into_inner).clone();
        OBJECTS.iter().find(|o| o.name == name).or_else(|| external().into_iter().find(|o| o.name == name))
    }

    /// The objects of an algorithm of the registry, or of one that was compiled for the kernel.
    pub(crate) fn of(algorithm: vmcc_cc::Algorithm) -> &'static Self {
        Self::find(algorithm.name()).expect("the registry's are compiled in, a user's own by `compile`")
    }
}

/// Puts a map that holds `value` in the only place of `outer`, a map of such maps. Who looks afterwards finds it, and
/// who has found the one before keeps that, unchanged.
pub fn replace<T: IntoBytes + Immutable>(outer: &MapHandle, name: &str, value: &T) -> libbpf_rs::Result<()> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let bytes =
        u32::try_from(size_of::<T>()).map_err(|e| libbpf_rs::Error::from(std::io::Error::other(e)))?;
    let inner = MapHandle::create(MapType::Array, Some(name), 4, bytes, 1, &options)?;
    shared::write(&inner, FIRST, value)?;
    shared::write(outer, FIRST, &inner.as_fd().as_raw_fd())
}

/// Output of libbpf since the last [`Log::start`]. libbpf prints through one function of the process, so loading
/// is serialised by holding this.
pub struct Log {
    _guard: MutexGuard<'static, ()>,
}

static LOADING: Mutex<()> = Mutex::new(());
static LINES: Mutex<String> = Mutex::new(String::new());
/// A verifier log can be megabytes long; its end is what tells.
const KEPT_BYTES: usize = 64 * 1024;

impl Log {
    /// Waits until no other thread loads; drops what libbpf printed before.
    pub fn start() -> Self {
        quiet();
        // A panic while holding the lock leaves nothing half done.
        let guard = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        LINES.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Self { _guard: guard }
    }

    /// The last lines that tell something, at most `count`.
    pub fn tail(&self, count: usize) -> String {
        let text = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        let telling = |line: &&str| !line.trim().is_empty() && !line.contains("-- END PROG LOAD LOG --");
        let lines: Vec<&str> = text.lines().filter(telling).collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }
}

/// From now on libbpf's messages are kept for errors, not printed.
pub fn quiet() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        libbpf_rs::set_print(Some((PrintLevel::Info, keep)));
    });
}

fn keep(_level: PrintLevel, message: String) {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.push_str(&message);
    if lines.len() > KEPT_BYTES {
        let mut from = lines.len() - KEPT_BYTES / 2;
        while !lines.is_char_boundary(from) {
            from += 1;
        }
        lines.drain(..from);
    }
}
