//! The registry as Rust sees it, and the calls into C.

use crate::MAX_PARAMS;
use crate::abi::{Decision, Event, Group, Host, Path, Sharing};
use crate::params::Params;
use std::fmt;
use std::ptr;

type Hook =
    unsafe extern "C" fn(*const Event, *mut Path, *const Group, *const [u64; MAX_PARAMS], *mut Decision);
type Detect =
    unsafe extern "C" fn(*mut Event, *const Group, *mut Sharing, *const [u64; MAX_PARAMS], *mut Decision);
type Drive = unsafe extern "C" fn(*const Event, *mut Host, *const Group, *const [u64; MAX_PARAMS]);

/// `struct cc_host_ops`.
#[repr(C)]
pub(crate) struct Ops {
    init: Hook,
    on_ack: Hook,
    on_congestion: Hook,
    on_grow: Hook,
    on_state: Hook,
    begin: Drive,
    step: Drive,
    detect: Option<Detect>,
}

pub(crate) struct Entry {
    ops: *const Ops,
    info: AlgorithmInfo,
}

// SAFETY: `ops` points to a constant table of the C objects, which nothing ever writes.
unsafe impl Sync for Entry {}

include!(concat!(env!("OUT_DIR"), "/table.rs"));

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

impl ParamInfo {
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
#[error("no congestion-control algorithm `{name}`; {}", crate::params::suggest(nearest, &all_names()))]
#[non_exhaustive]
pub struct UnknownAlgorithm {
    /// The requested name.
    pub name: String,
    /// Names like it, most alike first; may be empty.
    pub nearest: Vec<&'static str>,
}

fn all_names() -> Vec<&'static str> {
    TABLE.iter().map(|e| e.info.name).collect()
}

/// A congestion-control algorithm of the registry. Cheap to copy.
#[derive(Clone, Copy)]
pub struct Algorithm {
    ops: &'static Ops,
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
        let found = TABLE.iter().find(|e| e.info.name == name || e.info.kernel_name == name);
        found.map(Self::from_entry).ok_or_else(|| UnknownAlgorithm {
            name: name.to_owned(),
            nearest: vmcc_config::nearest(name, all_names()),
        })
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

    #[inline]
    fn call(hook: Hook, event: &Event, path: &mut Path, group: Option<&Group>, params: &Params) -> Decision {
        debug_assert!((event.self_index as usize) < crate::MAX_PATHS);
        let mut decision = Decision::default();
        let group = group.map_or(ptr::null(), ptr::from_ref);
        // SAFETY: all pointers come from live references of the layout cc.h declares (sizes and offsets
        // are asserted), the C code writes only `path` and `decision`, keeps no pointer, and accepts
        // any content of what it reads.
        unsafe { hook(event, path, group, params.raw(), &mut decision) };
        decision
    }

    /// The path has just been established, or the algorithm was just selected.
    #[inline]
    pub fn init(&self, event: &Event, path: &mut Path, group: Option<&Group>, params: &Params) -> Decision {
        Self::call(self.ops.init, event, path, group, params)
    }

    /// Every ACK, in every state, before any growth.
    #[inline]
    pub fn on_ack(&self, event: &Event, path: &mut Path, group: Option<&Group>, params: &Params) -> Decision {
        Self::call(self.ops.on_ack, event, path, group, params)
    }

    /// A reduction starts, for [`Event::cause`]: answers with the new ssthresh. To be called at most once
    /// per window of data for ECE and loss together.
    #[inline]
    pub fn on_congestion(
        &self,
        event: &Event,
        path: &mut Path,
        group: Option<&Group>,
        params: &Params,
    ) -> Decision {
        Self::call(self.ops.on_congestion, event, path, group, params)
    }

    /// An ACK arrived while the window may grow.
    #[inline]
    pub fn on_grow(
        &self,
        event: &Event,
        path: &mut Path,
        group: Option<&Group>,
        params: &Params,
    ) -> Decision {
        Self::call(self.ops.on_grow, event, path, group, params)
    }

    /// The host's recovery state has changed to [`Event::state`].
    #[inline]
    pub fn on_state(
        &self,
        event: &Event,
        path: &mut Path,
        group: Option<&Group>,
        params: &Params,
    ) -> Decision {
        Self::call(self.ops.on_state, event, path, group, params)
    }

    /// After [`on_ack`](Self::on_ack), of a path with siblings: looks whether it shares a bottleneck with one of
    /// them. No decision if the algorithm does not [detect](AlgorithmInfo::detects).
    #[inline]
    pub fn detect(&self, event: &Event, group: &Group, sharing: &mut Sharing, params: &Params) -> Decision {
        let mut decision = Decision::default();
        if let Some(detect) = self.ops.detect {
            let mut event = *event;
            // SAFETY: as in `call`; the C code writes only `event`, `sharing` and `decision`.
            unsafe { detect(&mut event, group, sharing, params.raw(), &mut decision) };
        }
        decision
    }

    #[inline]
    fn drive(drive: Drive, event: &Event, host: &mut Host, group: Option<&Group>, params: &Params) {
        let group = group.map_or(ptr::null(), ptr::from_ref);
        // SAFETY: as in `call`; the C code writes only `host`.
        unsafe { drive(event, host, group, params.raw()) };
    }

    /// Establishes a path under the simple driver of `host.h`.
    #[inline]
    pub fn begin(&self, event: &Event, host: &mut Host, group: Option<&Group>, params: &Params) {
        Self::drive(self.ops.begin, event, host, group, params);
    }

    /// One acknowledgment, loss episode or timeout under the simple driver of `host.h`: runs the hooks in
    /// the order of a real host, with at most one reduction per window of data. Window, ssthresh and
    /// state of the event are taken from `host`; [`Event::cause`] says what happened beside the ACK.
    #[inline]
    pub fn step(&self, event: &Event, host: &mut Host, group: Option<&Group>, params: &Params) {
        Self::drive(self.ops.step, event, host, group, params);
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
