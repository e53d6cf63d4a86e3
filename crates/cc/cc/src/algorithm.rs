//! The registry as Rust sees it, and algorithms that join it at run time.

use crate::MAX_PARAMS;
use crate::abi::{Decision, Event, Group, Host, Path, Sharing};
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::{PoisonError, RwLock};

pub(crate) type Hook =
    unsafe extern "C" fn(*const Event, *mut Path, *const Group, *const [u64; MAX_PARAMS], *mut Decision);
pub(crate) type Detect =
    unsafe extern "C" fn(*mut Event, *const Group, *mut Sharing, *const [u64; MAX_PARAMS], *mut Decision);
pub(crate) type Drive = unsafe extern "C" fn(*const Event, *mut Host, *const Group, *const [u64; MAX_PARAMS]);

/// `struct cc_host_ops`.
#[repr(C)]
pub(crate) struct Ops {
    pub(crate) init: Hook,
    pub(crate) on_ack: Hook,
    pub(crate) on_congestion: Hook,
    pub(crate) on_grow: Hook,
    pub(crate) on_state: Hook,
    pub(crate) begin: Drive,
    pub(crate) step: Drive,
    pub(crate) detect: Option<Detect>,
}

pub(crate) struct Entry {
    ops: *const Ops,
    info: AlgorithmInfo,
    /// Hash of the compiled code of an algorithm that is not in the registry.
    build: Option<u64>,
}

// SAFETY: `ops` points to a constant table of the C objects, which nothing ever writes.
unsafe impl Sync for Entry {}

include!(concat!(env!("OUT_DIR"), "/table.rs"));

/// Algorithms that [`Algorithm::register`] added. They stay for the rest of the process, as the registry's do.
static EXTERNAL: RwLock<Vec<&'static Entry>> = RwLock::new(Vec::new());

fn external() -> Vec<&'static Entry> {
    EXTERNAL.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Registry entry of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct AlgorithmInfo {
    /// Name.
    pub name: &'static str,
    /// Name in the kernel, at most 15 characters.
    pub kernel_name: &'static str,
    /// One line: what it is.
    pub title: &'static str,
    /// The paper or standard it implements.
    pub source: &'static str,
    /// True if it reads the sibling paths of its connection.
    pub coupled: bool,
    /// True if it needs ECN to be negotiated.
    pub needs_ecn: bool,
    /// True if it estimates the marked fraction as DCTCP does: [`Algorithm::alpha`].
    pub alpha: bool,
    /// True if it detects paths that share a bottleneck: the host is to call [`Algorithm::detect`].
    pub detects: bool,
    /// True if it spaces packets: the host is to follow [`Decision::gap_us`].
    pub paces: bool,
    /// Its parameters, in the order of `struct cc_params`.
    pub params: &'static [ParamInfo],
}

/// Registry entry of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ParamInfo {
    /// Name.
    pub name: &'static str,
    /// Unit; `"1"` for a pure number, `"choice"` for one of [`choices`](Self::choices).
    pub unit: &'static str,
    /// Default in `unit`; for a choice the index of the default word.
    pub default: f64,
    /// Smallest value allowed.
    pub min: f64,
    /// Largest value allowed.
    pub max: f64,
    /// The C code sees `round(value * scale)`.
    pub scale: f64,
    /// The words of a choice; empty for a number.
    pub choices: &'static [&'static str],
    /// Source of default and range.
    pub cite: &'static str,
    /// Its effect.
    pub doc: &'static str,
}

impl AlgorithmInfo {
    /// An entry that was read at run time. Its texts stay for the rest of the process.
    fn leaked(entry: &vmcc_registry::Algorithm) -> Self {
        Self {
            name: leak(&entry.name),
            kernel_name: leak(&entry.kernel_name),
            title: leak(&entry.title),
            source: leak(&entry.source),
            coupled: entry.coupled,
            needs_ecn: entry.needs_ecn,
            alpha: entry.alpha,
            detects: entry.detects,
            paces: entry.paces,
            params: Vec::leak(entry.params.iter().map(ParamInfo::leaked).collect()),
        }
    }
}

fn leak(text: &str) -> &'static str {
    String::leak(text.to_owned())
}

impl ParamInfo {
    fn leaked(param: &vmcc_registry::Param) -> Self {
        Self {
            name: leak(&param.name),
            unit: leak(&param.unit),
            default: param.default,
            min: param.min,
            max: param.max,
            scale: param.scale,
            choices: Vec::leak(param.choices.iter().map(|word| leak(word)).collect()),
            cite: leak(&param.cite),
            doc: leak(&param.doc),
        }
    }

    /// The default as users write it: a number, or a word.
    pub fn default_text(&self) -> String {
        self.value_text(self.default)
    }

    /// A value of this parameter as users write it: a number, or a word.
    pub fn value_text(&self, value: f64) -> String {
        match self.choices.get(value as usize) {
            Some(word) => (*word).to_owned(),
            None => value.to_string(),
        }
    }

    /// The values allowed, as text: `1 .. 10 packets`, or the words of a choice.
    pub fn range_text(&self) -> String {
        if !self.choices.is_empty() {
            return self.choices.join(", ");
        }
        let unit = if self.unit == "1" { String::new() } else { format!(" {}", self.unit) };
        format!("{} .. {}{unit}", self.min, self.max)
    }
}

/// No algorithm has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no congestion-control algorithm `{name}`; {}", suggest(nearest, &all_names()))]
#[non_exhaustive]
pub struct UnknownAlgorithm {
    /// The requested name.
    pub name: String,
    /// Names like it, most alike first; may be empty.
    pub nearest: Vec<&'static str>,
}

pub(crate) fn suggest(nearest: &[&str], known: &[&str]) -> String {
    if known.is_empty() {
        "it has none".to_owned()
    } else if nearest.is_empty() {
        format!("known: {}", known.join(", "))
    } else {
        format!("did you mean {}?", nearest.join(" or "))
    }
}

fn all_names() -> Vec<&'static str> {
    TABLE.iter().chain(external()).map(|e| e.info.name).collect()
}

/// An algorithm has this name already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} is the name of another algorithm ({title}); rename the file and its hooks")]
#[non_exhaustive]
pub struct NameTaken {
    /// The name, or the name in the kernel.
    pub name: String,
    /// Title of the algorithm that has it.
    pub title: &'static str,
}

/// A congestion-control algorithm. Cheap to copy.
#[derive(Clone, Copy)]
pub struct Algorithm {
    pub(crate) ops: &'static Ops,
    entry: &'static Entry,
}

impl Algorithm {
    fn from_entry(entry: &'static Entry) -> Self {
        // SAFETY: `cc_host_ops_<name>` is a constant that the C objects define with this layout.
        Self { ops: unsafe { &*entry.ops }, entry }
    }

    /// Every algorithm, in the order of the registry.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        TABLE.iter().map(Self::from_entry)
    }

    /// The algorithm of this name; its kernel name is accepted as well.
    ///
    /// # Errors
    /// There is none; the error carries the nearest names.
    pub fn by_name(name: &str) -> Result<Self, UnknownAlgorithm> {
        let named = |e: &&'static Entry| e.info.name == name || e.info.kernel_name == name;
        let found = TABLE.iter().find(named).or_else(|| external().into_iter().find(named));
        found.map(Self::from_entry).ok_or_else(|| UnknownAlgorithm {
            name: name.to_owned(),
            nearest: vmcc_config::nearest(name, all_names()),
        })
    }

    /// Algorithms that are not in the registry, in the order of their registration.
    pub fn external() -> Vec<Self> {
        external().into_iter().map(Self::from_entry).collect()
    }

    /// Checks that neither name of an entry is taken.
    ///
    /// # Errors
    /// An algorithm has one of them.
    pub fn check_names(entry: &vmcc_registry::Algorithm) -> Result<(), NameTaken> {
        for name in [&entry.name, &entry.kernel_name] {
            if let Ok(other) = Self::by_name(name) {
                return Err(NameTaken { name: name.clone(), title: other.info().title });
            }
        }
        Ok(())
    }

    /// Adds an algorithm for the rest of the process: [`Self::by_name`] finds it, [`Self::all`] does not list it.
    /// `build` tells its compiled code from another's.
    ///
    /// # Errors
    /// An algorithm has one of its names.
    ///
    /// # Safety
    /// `ops` points to a `struct cc_host_ops` of this interface (`CC_INTERFACE_VERSION`) that is valid and constant for the rest of
    /// the process, and its functions keep the contract of `cc.h`.
    pub unsafe fn register(
        entry: &vmcc_registry::Algorithm,
        ops: *const c_void,
        build: u64,
    ) -> Result<Self, NameTaken> {
        Self::check_names(entry)?;
        let info = AlgorithmInfo::leaked(entry);
        let entry: &'static Entry = Box::leak(Box::new(Entry { ops: ops.cast(), info, build: Some(build) }));
        EXTERNAL.write().unwrap_or_else(PoisonError::into_inner).push(entry);
        Ok(Self::from_entry(entry))
    }

    /// Hash of the compiled code of an algorithm that is not in the registry.
    pub fn build(&self) -> Option<u64> {
        self.entry.build
    }

    /// Its registry entry.
    pub fn info(&self) -> &'static AlgorithmInfo {
        &self.entry.info
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.entry.info.name
    }

    /// DCTCP's estimate of the marked fraction on a path, 0 to 1; `None` if this algorithm has none.
    pub fn alpha(&self, path: &Path) -> Option<f64> {
        // `alpha_q30`, the first member of `struct cc_dctcp`, with which the algorithm's state begins.
        let [a, b, c, d, ..] = path.priv_words[0].to_ne_bytes();
        let alpha_q30 = u32::from_ne_bytes([a, b, c, d]);
        self.info().alpha.then(|| f64::from(alpha_q30) / f64::from(1_u32 << 30))
    }
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Algorithm({})", self.name())
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for Algorithm {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.entry, other.entry)
    }
}

impl Eq for Algorithm {}

impl std::hash::Hash for Algorithm {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}
