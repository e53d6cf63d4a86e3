//! Command-line arguments.

mod advise;
mod compare;
mod copy;
mod mark;
mod proxy;
mod reproduce;
mod search;
mod top;

pub(crate) use advise::AdviseOptions;
#[cfg(feature = "kernel")]
pub(crate) use advise::ApplicationChoice;
pub(crate) use compare::CompareOptions;
pub(crate) use copy::{CpOptions, ServeOptions};
pub(crate) use mark::{BackendChoice, MarkOptions, MarkSettings, NotEctChoice, QueueChoice, UnmarkOptions};
pub(crate) use proxy::{KeysOptions, PathsOptions, ProxyOptions, RelayOptions};
pub(crate) use reproduce::{ReproduceEngine, ReproduceOptions};
pub(crate) use search::SearchOptions;
#[cfg(feature = "kernel")]
pub(crate) use top::SortKey;
pub(crate) use top::TopOptions;

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use vmcc_engine::Shard;
use vmcc_units::Nanos;

/// Multipath congestion control for virtualized datacenters: simulator, kernel lab and host tools around one
/// source of every algorithm.
#[derive(Debug, Parser)]
#[command(
    name = "vmcc",
    version,
    propagate_version = true,
    max_term_width = 110,
    after_help = "Exit codes: 0 done, 1 a claim or check failed, 2 wrong use or bad input, \
                  3 this host cannot do it, 130 interrupted."
)]
pub(crate) struct Arguments {
    /// Print one JSON document on stdout and nothing else there
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// True if the command was asked to be quiet.
    pub(crate) fn quiet(&self) -> bool {
        match &self.command {
            Command::Run(options) => options.common.quiet,
            Command::Demo(options) => options.quiet,
            Command::Reproduce(options) => options.quiet,
            Command::Search(options) => options.quiet,
            Command::Cp(options) => options.quiet,
            _ => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check the capabilities of this host; for each missing one: cause and remedy
    Doctor,
    /// Say whether several paths help an application on this host, by how much, with which settings, and why a connection has only one
    Advise(AdviseOptions),
    /// List the congestion-control algorithms with sources and parameters
    Algorithms,
    /// Begin an algorithm of your own in a C file, or check one
    Algorithm {
        #[command(subcommand)]
        action: AlgorithmAction,
    },
    /// List the metrics of results: unit, meaning and the engines that measure them
    Metrics,
    /// List the built-in scenarios
    Scenarios,
    /// Check a scenario file, or print the language's JSON schema
    Scenario {
        #[command(subcommand)]
        action: ScenarioAction,
    },
    /// Run a scenario and check its claims
    Run(RunOptions),
    /// Run the built-in scenario `demo`
    Demo(DemoOptions),
    /// List the papers' figures as claims, or run them and check each against the paper's number
    Reproduce(ReproduceOptions),
    /// Search for traffic, link and loss patterns that break a property of a congestion control (simulator)
    ///
    /// Each finding is a small scenario with a claim that fails. Exit code 1: a property is broken.
    Search(SearchOptions),
    /// Rebuild the HTML report of a result folder
    Report {
        /// The result folder
        folder: PathBuf,
    },
    /// Compare two result folders: the difference of each metric in each case, with its 95 % confidence interval over the seeds
    Compare(CompareOptions),
    /// Measure the speed of an engine: work done, CPU seconds, work per CPU second, peak memory
    Bench(BenchOptions),
    /// Load the algorithms as congestion controls of this host, until `vmcc down` or a restart (root)
    Up(UpOptions),
    /// Restore what the agent (`vmcc up --config`) changed; without an agent, remove the congestion controls that `vmcc up`
    /// loaded (root). Ports of `vmcc mark` stay: `vmcc unmark`
    Down,
    /// Show loaded algorithms and who loaded them, their connections, and the served ports (root)
    Status,
    /// Show connections and each of their paths, live: window, RTT, marks, goodput, shared bottlenecks, closed paths (root)
    ///
    /// Keys sort, filter and pause; `q` ends it (exit code 0), and so does Ctrl-C (exit code 130).
    Top(TopOptions),
    /// Follow events: subflows that join and end, and actions of the agent (root)
    ///
    /// One line per event, with --json one line of JSON, until Ctrl-C (exit code 130).
    Events,
    /// Serve a virtual switch's port: cap its rate, share it between classes, mark packets with ECN
    Mark(Box<MarkOptions>),
    /// Stop serving a port and restore its previous queueing discipline
    Unmark(UnmarkOptions),
    /// Remove namespaces, processes and folders that crashed runs left behind
    Clean,
    /// Copy files from or to another host over every path between both, as scp does over one
    ///
    /// One of SOURCE and TARGET is HOST:PATH or USER@HOST:PATH. ssh starts `vmcc serve --once` there; the bytes travel over QUIC with one
    /// path for each pair of addresses. An interrupted copy continues where it stopped.
    Cp(CpOptions),
    /// Carry other programs' connections over every path to another host: SOCKS5 and forwards here, `--listen` there
    ///
    /// Both sides authenticate by the fingerprints that `vmcc keys` prints. Ctrl-C ends it (exit code 130).
    Proxy(ProxyOptions),
    /// Show this user's certificate (created on first use) and the peers that `vmcc proxy` trusts
    Keys(KeysOptions),
    /// Probe every pair of addresses to a QUIC server: RTT, loss, or the cause of failure
    Paths(PathsOptions),
    /// Serve the far end of `vmcc cp`, which starts it through ssh
    Serve(ServeOptions),
    /// Commands for the scripts of this repository
    #[command(hide = true)]
    Internal {
        #[command(subcommand)]
        action: InternalAction,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AlgorithmAction {
    /// Write a coupled algorithm that works, its vectors and a scenario that compares it with LIA
    New {
        /// Name of the algorithm: a-z, 0-9 and _, at most 12 characters
        name: String,
        /// Folder for NAME.c, NAME.csv and NAME.toml
        #[arg(default_value = ".")]
        folder: PathBuf,
    },
    /// Compile a file and check it: hooks on any state, connections of 1 to 32 paths, the vectors beside it
    Check {
        /// The C file
        #[arg(value_name = "FILE.c")]
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScenarioAction {
    /// Validate a scenario file and count its cases
    Check {
        /// A TOML file, or a built-in name
        scenario: String,

        /// Add the algorithm in this C file (repeatable)
        #[arg(long = "algorithm", value_name = "FILE.c")]
        algorithms: Vec<PathBuf>,
    },
    /// Print a built-in scenario, as a template for your own
    Show {
        /// A built-in name
        scenario: String,
    },
    /// Print the JSON schema of the scenario language
    Schema,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RunOptions {
    /// A built-in name (`vmcc scenarios`) or a TOML file
    pub(crate) scenario: String,

    #[command(flatten)]
    pub(crate) common: DemoOptions,

    /// Make part I of N of the runs, beside other processes that have the same command, the same --out on a shared file system, and other
    /// parts; --resume makes what is missing and the result folder
    #[arg(long, value_name = "I/N", requires = "out", conflicts_with = "resume", value_parser = shard)]
    pub(crate) shard: Option<Shard>,
}

/// The options of `vmcc run` without the scenario.
#[derive(Debug, Clone, Args)]
pub(crate) struct DemoOptions {
    /// Engine that carries the traffic
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto)]
    pub(crate) engine: EngineChoice,

    /// Override a value of the scenario; a list of values is swept: --set cc=lia,vmcc
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Add the algorithm in this C file, under the file's name (repeatable): --algorithm ./mylia.c --set cc=mylia
    #[arg(long = "algorithm", value_name = "FILE.c")]
    pub(crate) algorithms: Vec<PathBuf>,

    /// First seed; run r of each case has seed N + r
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Runs per case
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: Option<u32>,

    /// Threads that share each run (simulator only); the results do not depend on it [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128))]
    pub(crate) threads: Option<u32>,

    /// Concurrent runs (simulator only) [default: one per processor and thread of a run]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Option<u32>,

    /// Size of the experiment: as written, shrunk for one small machine, or shortened for a quick look
    #[arg(long, value_enum, default_value_t = ScaleChoice::Full)]
    pub(crate) scale: ScaleChoice,

    /// Metrics in the table of cases (`vmcc metrics`), such as goodput_bps,rtt_us.p99 [default: those with a column title]
    #[arg(long, value_name = "METRIC", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,

    /// Result folder, absent or empty
    /// [default: vmcc-results/<scenario>-<time>]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Continue an interrupted run of the same command with the same --out
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,

    /// Print only the result, warnings and errors: no progress, no notes
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// `2/8`: the second of eight.
fn shard(text: &str) -> Result<Shard, String> {
    let numbers =
        text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    let shard = numbers.and_then(|(index, count)| Shard::new(index, count));
    shard.ok_or_else(|| "a part and the number of parts are expected, from 1/N to N/N".to_owned())
}

impl DemoOptions {
    /// The same options for a named scenario.
    pub(crate) fn for_scenario(self, name: &str) -> RunOptions {
        RunOptions { scenario: name.to_owned(), common: self, shard: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineChoice {
    /// Kernel if this host can, else guest, else sim; prints the choice and its reason
    Auto,
    /// The packet-level simulator
    Sim,
    /// This host's kernel, in network namespaces (root)
    Kernel,
    /// A kernel in a small virtual machine
    Guest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScaleChoice {
    /// As the scenario is written
    Full,
    /// With the scenario's [scale.small]
    Small,
    /// With the scenario's [scale.quick]
    Quick,
}

#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    /// Subject of the measurement
    #[arg(value_enum)]
    pub(crate) target: BenchTarget,

    /// Only this case (repeatable); of `port`: cap, share, cost, uncapped, many
    #[arg(long = "case", value_name = "NAME")]
    pub(crate) cases: Vec<String>,

    /// Threads for one simulation
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub(crate) threads: u32,

    /// Of `kernel`: measure instead the cost of an agent with this many open MPTCP connections
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) connections: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchTarget {
    /// The simulator: packet-hops per CPU second
    Sim,
    /// The kernel programs: nanoseconds per hook, goodput beside the kernel's own Reno (root)
    Kernel,
    /// Ports of a virtual switch: accuracy of rates and shares, nanoseconds per packet, throughput (root)
    Port,
}

#[derive(Debug, Args)]
pub(crate) struct UpOptions {
    /// Algorithms to load: names, or C files of your own (./mylia.c is loaded as mp_mylia) [default: all of the registry]
    #[arg(value_name = "ALGORITHM")]
    pub(crate) algorithms: Vec<String>,

    /// Set a parameter (`vmcc algorithms` lists them), also of algorithms that are loaded
    #[arg(long = "set", value_name = "ALGORITHM.PARAMETER=VALUE")]
    pub(crate) set: Vec<String>,

    /// Restrict their selection to CAP_NET_ADMIN, as Linux does with DCTCP, and to this network namespace as its default
    #[arg(long)]
    pub(crate) restricted: bool,

    /// Run the agent: keep this host in the state of a TOML file (docs/how-to/agent.md) until SIGTERM, then restore it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["algorithms", "set", "restricted", "guard"])]
    pub(crate) config: Option<PathBuf>,

    /// Run the guard until Ctrl-C (exit code 130): close paths that share a bottleneck according to an algorithm
    #[arg(long)]
    pub(crate) guard: bool,

    #[command(flatten)]
    pub(crate) policy: PolicyOptions,
}

/// Policies of the guard.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PolicyOptions {
    /// Report the guard's decisions without acting on them
    #[arg(long, requires = "guard")]
    pub(crate) dry_run: bool,

    /// Time as a backup before a path is closed, to deliver data in flight, where user space manages paths; 0s: none
    /// [default: 1s]
    #[arg(long, value_name = "TIME", requires = "guard")]
    pub(crate) drain: Option<Nanos>,

    /// Keep at least this many other paths in use when a path is closed for a shared bottleneck [default: 1]
    #[arg(long, value_name = "PATHS", requires = "guard")]
    pub(crate) min_paths: Option<u32>,

    /// Also close paths that are silent for CHI timeouts while others deliver [default of CHI: 2]
    #[arg(long, value_name = "CHI", num_args = 0..=1, require_equals = true, requires = "guard")]
    pub(crate) close_failed: Option<Option<f64>>,

    /// Demote to backup, or close, paths that carry less than the best path divided by OMEGA [default of OMEGA: 10]
    #[arg(long, value_name = "OMEGA", num_args = 0..=1, require_equals = true, requires = "guard")]
    pub(crate) suppress_useless: Option<Option<f64>>,

    /// Retry closed paths after this time, doubled with each retry
    #[arg(long, value_name = "TIME", requires = "guard")]
    pub(crate) retry: Option<Nanos>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InternalAction {
    /// Print a shell completion script
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    Man {
        /// The folder, which must exist
        folder: PathBuf,
    },
    /// Check the compiled algorithm in a folder, for the program that compiled it
    AlgorithmCheck {
        /// The folder
        folder: PathBuf,
        /// The C file
        file: PathBuf,
    },
    /// Load, attach and carry a hash-checked transfer with each algorithm; one line per algorithm
    #[cfg(feature = "kernel")]
    KernelCheck {
        /// Only these algorithms
        #[arg(long = "algorithm", value_name = "NAME")]
        algorithms: Vec<String>,
    },
    /// Run a program in a guest kernel
    #[cfg(feature = "kernel")]
    Guest(GuestProgram),
    /// Run cases that the host puts into a folder; inside a guest
    #[cfg(feature = "kernel")]
    GuestWorker {
        /// The folder
        folder: PathBuf,
    },
    /// Run one end of a QUIC connection that the kernel engine measures
    #[cfg(feature = "kernel")]
    QuicEnd {
        /// C file of an algorithm, each with its shared object
        #[arg(long = "algorithm", value_name = "FILE.c")]
        algorithms: Vec<PathBuf>,
        /// Shared object of each of these algorithms
        #[arg(long = "library", value_name = "FILE.so")]
        libraries: Vec<PathBuf>,
        /// Order as JSON
        order: String,
    },
    /// Send the traffic of one host of a run, described by a folder; inside the guest that is that host
    #[cfg(feature = "kernel")]
    GuestSender {
        /// The folder
        folder: PathBuf,
    },
}

#[cfg(feature = "kernel")]
#[derive(Debug, Args)]
pub(crate) struct GuestProgram {
    /// Kernel series, such as 6.12 [default: the newest]
    #[arg(long, value_name = "SERIES")]
    pub(crate) kernel: Option<String>,
    /// Stop after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) time_limit: u64,
    /// A folder of the host that the guest can write
    #[arg(long, value_name = "DIR")]
    pub(crate) share: Option<PathBuf>,
    /// Emulate one processor that takes a nanosecond per instruction, whatever machine this is: times in the guest are
    /// counts of instructions
    #[arg(long)]
    pub(crate) count_instructions: bool,
    /// Emulate without trying KVM first
    #[arg(long, conflicts_with = "count_instructions")]
    pub(crate) emulate: bool,
    /// Virtual processors [default: as many as the host has, up to 4]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) cpus: Option<u32>,
    /// A tap of this network namespace that becomes a network card of the guest; repeatable
    #[arg(long = "tap", value_name = "TAP")]
    pub(crate) taps: Vec<String>,
    /// The program and its arguments
    #[arg(required = true, last = true)]
    pub(crate) program: Vec<String>,
}
