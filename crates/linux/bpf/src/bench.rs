//! Cost of an algorithm in the kernel.
//!
//! Two measurements, both in the kernel itself:
//! - Run time of the callbacks. From the kernel's own BPF run-time statistics, which include the reading of
//!   the clock (some tens of nanoseconds per call) and every socket of the transfer, the receiver's too.
//! - Remaining goodput. Transfers with the algorithm alternate with transfers with the kernel's native Reno,
//!   without statistics.
//!
//! The caller generates the traffic ([`Traffic`]): this crate creates no namespaces.

mod statistics;

pub use statistics::Statistics;

use crate::error::{ControlError, LoadError};
use crate::load::Loaded;
use libbpf_rs::query::ProgInfoIter;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use vmcc_cc::{Algorithm, Params};

/// The native algorithm that goodput is compared with.
pub const REFERENCE: &str = "reno";
/// The callback that runs once for each ACK of data.
const PER_ACK: &str = "pkts_acked";
/// The callback that runs for each ACK, and at the receiver for each segment as well.
const PER_SEGMENT: &str = "in_ack_event";
/// The other callbacks that the sender of data gets because of ACKs.
const BY_ACKS: [&str; 5] = [PER_ACK, "cong_avoid", "set_state", "ssthresh", "undo_cwnd"];
/// Callbacks are named `cc_<callback>` in the kernel.
const PREFIX: &str = "cc_";

/// Error of a transfer, of any type that the caller has.
pub type TrafficError = Box<dyn std::error::Error + Send + Sync>;

/// Sends data as fast as it goes.
pub trait Traffic {
    /// One MPTCP transfer of about `duration` with the algorithm `kernel_name` at both ends over exactly
    /// `subflows` subflows; answers the goodput in bits per second.
    ///
    /// # Errors
    /// The transfer failed.
    fn transfer(
        &mut self,
        kernel_name: &str,
        subflows: usize,
        duration: Duration,
    ) -> Result<f64, TrafficError>;
}

/// Options of a benchmark.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// The algorithms.
    pub algorithms: Vec<Algorithm>,
    /// Numbers of subflows for the cost of callbacks.
    pub subflows: Vec<usize>,
    /// Number of subflows for the goodput.
    pub goodput_subflows: usize,
    /// Transfers with the algorithm, each beside one with native Reno.
    pub pairs: usize,
    /// Duration of each transfer.
    pub duration: Duration,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            algorithms: Algorithm::all().collect(),
            subflows: vec![1, 2, 8],
            goodput_subflows: 2,
            pairs: 7,
            duration: Duration::from_millis(400),
        }
    }
}

/// Error of a measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The algorithm does not load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kernel refuses.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A transfer failed.
    #[error("transfer with {kernel_name} over {subflows} subflows: {cause}")]
    Transfer {
        /// The algorithm.
        kernel_name: String,
        /// Number of subflows.
        subflows: usize,
        /// Error of the transfer.
        #[source]
        cause: TrafficError,
    },
    /// The transfer went through without the callbacks.
    #[error("{kernel_name} was not called during its transfer; was it selected?")]
    NotCalled {
        /// The algorithm.
        kernel_name: String,
    },
}

/// Cost of one callback.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallbackCost {
    /// Its name in `struct tcp_congestion_ops`.
    pub callback: String,
    /// Calls during the transfer.
    pub calls: u64,
    /// Nanoseconds per call.
    pub ns_per_call: f64,
}

/// Cost of all callbacks with one number of subflows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// Subflows of the transfer.
    pub subflows: usize,
    /// ACKs of data that arrived.
    pub acks: u64,
    /// Nanoseconds that the sender spends in callbacks per ACK of data. `in_ack_event` enters with its mean over both
    /// ends; the kernel does not tell them apart.
    pub ns_per_ack: f64,
    /// Goodput while statistics were kept.
    pub goodput_bps: f64,
    /// The callbacks.
    pub callbacks: Vec<CallbackCost>,
}

/// Goodput beside native Reno.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GoodputRatio {
    /// Subflows of the transfers.
    pub subflows: usize,
    /// Median over the pairs of goodput / goodput of native Reno.
    pub median: f64,
    /// The worst pair.
    pub min: f64,
    /// The best pair.
    pub max: f64,
    /// Each pair: goodput of the algorithm and of native Reno.
    pub pairs_bps: Vec<(f64, f64)>,
}

/// One algorithm's figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlgorithmBench {
    /// The registry's name.
    pub algorithm: &'static str,
    /// The kernel's name.
    pub kernel_name: &'static str,
    /// Bytes in the table per MPTCP connection; none for algorithms that do not look at siblings. (Subflows keep
    /// their own state in their sockets, which have the room anyway.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_connection: Option<usize>,
    /// Cost of the callbacks.
    pub costs: Vec<Cost>,
    /// Goodput.
    pub goodput: GoodputRatio,
}

/// Measures one algorithm after the other; `progress` hears what is next.
///
/// # Errors
/// An algorithm does not load, a transfer fails, or the kernel keeps no statistics.
pub fn run(
    options: &BenchOptions,
    traffic: &mut dyn Traffic,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<AlgorithmBench>, BenchError> {
    options.algorithms.iter().map(|a| measure(*a, options, traffic, progress)).collect()
}

fn measure(
    algorithm: Algorithm,
    options: &BenchOptions,
    traffic: &mut dyn Traffic,
    progress: &mut dyn FnMut(&str),
) -> Result<AlgorithmBench, BenchError> {
    let loaded = Loaded::load(algorithm, &Params::defaults(algorithm))?;
    let mut costs = Vec::new();
    for subflows in &options.subflows {
        progress(&format!("{algorithm}: callbacks, {subflows} subflows"));
        costs.push(cost(&loaded, *subflows, options.duration, traffic)?);
    }
    progress(&format!("{algorithm}: goodput beside {REFERENCE}"));
    Ok(AlgorithmBench {
        algorithm: algorithm.name(),
        kernel_name: loaded.kernel_name(),
        bytes_per_connection: loaded.bytes_per_connection(),
        costs,
        goodput: goodput(&loaded, options, traffic)?,
    })
}

fn transfer(
    traffic: &mut dyn Traffic,
    kernel_name: &str,
    subflows: usize,
    duration: Duration,
) -> Result<f64, BenchError> {
    let failed = |cause| BenchError::Transfer { kernel_name: kernel_name.to_owned(), subflows, cause };
    traffic.transfer(kernel_name, subflows, duration).map_err(failed)
}

/// Run time and number of calls of one program.
#[derive(Clone, Copy, Default)]
struct Spent {
    ns: u64,
    calls: u64,
}

fn spent(loaded: &Loaded) -> BTreeMap<String, Spent> {
    let ours = |id: u32| loaded.program_ids().contains(&id);
    ProgInfoIter::default()
        .filter(|program| ours(program.id))
        .map(|program| {
            let name = program.name.to_string_lossy();
            let callback = name.strip_prefix(PREFIX).unwrap_or(&name).to_owned();
            (callback, Spent { ns: program.run_time_ns, calls: program.run_cnt })
        })
        .collect()
}

fn cost(
    loaded: &Loaded,
    subflows: usize,
    duration: Duration,
    traffic: &mut dyn Traffic,
) -> Result<Cost, BenchError> {
    let statistics = Statistics::enable()?;
    let before = spent(loaded);
    let goodput_bps = transfer(traffic, loaded.kernel_name(), subflows, duration)?;
    let after = spent(loaded);
    drop(statistics);
    let mut ns_by_acks = 0.0;
    let mut ns_per_segment = 0.0;
    let mut acks = 0;
    let mut callbacks = Vec::new();
    for (callback, end) in after {
        let start = before.get(&callback).copied().unwrap_or_default();
        let (ns, calls) = (end.ns.saturating_sub(start.ns), end.calls.saturating_sub(start.calls));
        if calls == 0 {
            continue;
        }
        let ns_per_call = ns as f64 / calls as f64;
        match callback.as_str() {
            PER_SEGMENT => ns_per_segment = ns_per_call,
            name if BY_ACKS.contains(&name) => ns_by_acks += ns as f64,
            _ => {}
        }
        if callback == PER_ACK {
            acks = calls;
        }
        callbacks.push(CallbackCost { callback, calls, ns_per_call });
    }
    if acks == 0 {
        return Err(BenchError::NotCalled { kernel_name: loaded.kernel_name().to_owned() });
    }
    let ns_per_ack = ns_by_acks / acks as f64 + ns_per_segment;
    Ok(Cost { subflows, acks, ns_per_ack, goodput_bps, callbacks })
}

fn goodput(
    loaded: &Loaded,
    options: &BenchOptions,
    traffic: &mut dyn Traffic,
) -> Result<GoodputRatio, BenchError> {
    let subflows = options.goodput_subflows;
    let mut pairs_bps = Vec::new();
    for pair in 0..options.pairs.max(1) {
        let mut one = |name: &str| transfer(traffic, name, subflows, options.duration);
        // Who goes first alternates, so that a drift of the machine favours neither.
        let (ours, native) = if pair % 2 == 0 {
            let ours = one(loaded.kernel_name())?;
            (ours, one(REFERENCE)?)
        } else {
            let native = one(REFERENCE)?;
            (one(loaded.kernel_name())?, native)
        };
        pairs_bps.push((ours, native));
    }
    let mut ratios: Vec<f64> = pairs_bps.iter().map(|(ours, native)| ours / native).collect();
    ratios.sort_by(f64::total_cmp);
    let middle = ratios.len() / 2;
    let median =
        if ratios.len() % 2 == 1 { ratios[middle] } else { (ratios[middle - 1] + ratios[middle]) / 2.0 };
    Ok(GoodputRatio { subflows, median, min: ratios[0], max: ratios[ratios.len() - 1], pairs_bps })
}
