//! Command-line arguments.

mod copy;
mod mark;
mod proxy;
mod reproduce;
mod top;

pub(crate) use copy::{CpOptions, ServeOptions};
pub(crate) use mark::{BackendChoice, MarkOptions, MarkSettings, NotEctChoice, QueueChoice, UnmarkOptions};
pub(crate) use proxy::{KeysOptions, PathsOptions, ProxyOptions, RelayOptions};
pub(crate) use reproduce::{ReproduceEngine, ReproduceOptions};
#[cfg(feature = "kernel")]
pub(crate) use top::SortKey;
pub(crate) use top::TopOptions;

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
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
            Command::Cp(options) => options.quiet,
            _ => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What this host can do, and for each thing it cannot: why, and the command that mends it
    Doctor,
    /// The congestion-control algorithms with their sources and parameters
    Algorithms,
    /// The metrics of results: unit, meaning and which engines measure them
    Metrics,
    /// The built-in scenarios
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
    /// The papers' figures as claims: list them, or run them and check each against the paper's number
    Reproduce(ReproduceOptions),
    /// Rebuild the HTML report of a result folder
    Report {
        /// The result folder
        folder: PathBuf,
    },
    /// Measure the speed of an engine: work done, CPU seconds, work per CPU second, peak memory
    Bench(BenchOptions),
    /// Make the algorithms congestion controls of this host, until `vmcc down` or a restart (root)
    Up(UpOptions),
    /// Put back what the agent (`vmcc up --config`) changed; without one, remove the congestion controls that `vmcc up` made
    /// (root)
    Down,
    /// The algorithms that are loaded, by whom, their connections, and the ports that are served (root)
    Status,
    /// Connections here and each of their paths, live: window, RTT, marks, goodput, what was found and closed (root)
    ///
    /// Keys sort, filter and pause; `q` ends it (exit code 0), and so does Ctrl-C (exit code 130).
    Top(TopOptions),
    /// What happens, as it happens: subflows that join and end here, and what the agent does (root)
    ///
    /// A line each, with --json a line of JSON each, until Ctrl-C (exit code 130).
    Events,
    /// Serve a virtual switch's port: cap its rate, share it between classes, mark packets with ECN
    Mark(Box<MarkOptions>),
    /// Stop serving a port; what was there before comes back
    Unmark(UnmarkOptions),
    /// Remove what crashed runs left behind
    Clean,
    /// Copy files from or to another host over every path between both, as scp does over one
    ///
    /// One of SOURCE and TARGET is HOST:PATH or USER@HOST:PATH. ssh starts `vmcc serve --once` there; the bytes travel over QUIC with one
    /// path for each pair of addresses. What was interrupted goes on where it stopped.
    Cp(CpOptions),
    /// Carry other programs' connections over every path to another host: SOCKS5 and forwards here, `--listen` there
    ///
    /// Both sides know each other by the fingerprints that `vmcc keys` prints. Ctrl-C ends it (exit code 130).
    Proxy(ProxyOptions),
    /// This user's certificate, made if there is none, and the peers that `vmcc proxy` trusts
    Keys(KeysOptions),
    /// Which pairs of addresses carry packets to a QUIC server: round trip, loss, and why not
    Paths(PathsOptions),
    /// The far end of `vmcc cp`, which starts it through ssh
    Serve(ServeOptions),
    /// For scripts of this repository
    #[command(hide = true)]
    Internal {
        #[command(subcommand)]
        action: InternalAction,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScenarioAction {
    /// Validate a scenario file and count its cases
    Check {
        /// A TOML file, or a built-in name
        scenario: String,
    },
    /// Print a built-in scenario, to start your own from
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
}

/// The options of `vmcc run` without the scenario.
#[derive(Debug, Clone, Args)]
pub(crate) struct DemoOptions {
    /// What carries the traffic
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto)]
    pub(crate) engine: EngineChoice,

    /// Override a value of the scenario; a list of values is swept: --set cc=lia,vmcc
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// The first seed; run r of each case has seed N + r
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Runs per case
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: Option<u32>,

    /// Threads that share each run (simulator only); the results do not depend on it [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128))]
    pub(crate) threads: Option<u32>,

    /// Runs at the same time (simulator only) [default: one per processor and thread of a run]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Option<u32>,

    /// Size of the experiment: as written, shrunk for one small machine, or shortened for a quick look
    #[arg(long, value_enum, default_value_t = ScaleChoice::Full)]
    pub(crate) scale: ScaleChoice,

    /// The result folder, which must not exist or be empty
    /// [default: vmcc-results/<scenario>-<time>]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Continue an interrupted run of the same command with the same --out
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,

    /// No progress, no notes: only the result, warnings and errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl DemoOptions {
    /// The same options for a named scenario.
    pub(crate) fn for_scenario(self, name: &str) -> RunOptions {
        RunOptions { scenario: name.to_owned(), common: self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineChoice {
    /// Kernel if this host can, else guest, else sim; says which and why
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
    /// What to measure
    #[arg(value_enum)]
    pub(crate) target: BenchTarget,

    /// Only this case (may be given several times); of `port`: cap, share, cost, uncapped, many
    #[arg(long = "case", value_name = "NAME")]
    pub(crate) cases: Vec<String>,

    /// Threads for one simulation
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub(crate) threads: u32,

    /// Of `kernel`: instead, what an agent costs while this many MPTCP connections are open
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) connections: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchTarget {
    /// The simulator: packet-hops per CPU second
    Sim,
    /// The kernel programs: nanoseconds per hook, goodput beside the kernel's own Reno (root)
    Kernel,
    /// Ports of a virtual switch: how exact rates and shares are, nanoseconds per packet, throughput (root)
    Port,
}

#[derive(Debug, Args)]
pub(crate) struct UpOptions {
    /// Which algorithms [default: all]
    #[arg(value_name = "ALGORITHM")]
    pub(crate) algorithms: Vec<String>,

    /// Set a parameter (`vmcc algorithms` lists them); again on what is up: changes it at once
    #[arg(long = "set", value_name = "ALGORITHM.PARAMETER=VALUE")]
    pub(crate) set: Vec<String>,

    /// Let only who has CAP_NET_ADMIN choose them, as Linux does with its DCTCP, and no network namespace but this one
    /// have them as its default
    #[arg(long)]
    pub(crate) restricted: bool,

    /// Be the agent: keep this host as a TOML file says (docs/how-to/agent.md) until SIGTERM, then put back what was there
    #[arg(long, value_name = "FILE", conflicts_with_all = ["algorithms", "set", "restricted", "guard"])]
    pub(crate) config: Option<PathBuf>,

    /// Stay, and close the paths that an algorithm finds to share a bottleneck, until Ctrl-C (exit code 130)
    #[arg(long)]
    pub(crate) guard: bool,

    #[command(flatten)]
    pub(crate) policy: PolicyOptions,
}

/// What the guard does.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PolicyOptions {
    /// Only say what the guard would do
    #[arg(long, requires = "guard")]
    pub(crate) dry_run: bool,

    /// How long a path that is to be closed may be a backup before, to deliver what it has sent, where user space manages
    /// paths; 0s: not at all [default: 1s]
    #[arg(long, value_name = "TIME", requires = "guard")]
    pub(crate) drain: Option<Nanos>,

    /// Spare so many paths of a connection: close one that shares a bottleneck only if so many others are in use [default: 1]
    #[arg(long, value_name = "PATHS", requires = "guard")]
    pub(crate) min_paths: Option<u32>,

    /// Close paths, too, that are silent for CHI timeouts while others deliver [default of CHI: 2]
    #[arg(long, value_name = "CHI", num_args = 0..=1, require_equals = true, requires = "guard")]
    pub(crate) close_failed: Option<Option<f64>>,

    /// Make paths backups, or close them, that carry less than the best divided by OMEGA [default of OMEGA: 10]
    #[arg(long, value_name = "OMEGA", num_args = 0..=1, require_equals = true, requires = "guard")]
    pub(crate) suppress_useless: Option<Option<f64>>,

    /// Try closed paths again after this time, then after twice that, and so on
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
    /// Runs cases that the host puts into a folder; inside a guest
    #[cfg(feature = "kernel")]
    GuestWorker {
        /// The folder
        folder: PathBuf,
    },
    /// One end of QUIC that the kernel engine measures
    #[cfg(feature = "kernel")]
    QuicEnd {
        /// What it is to do, as JSON
        order: String,
    },
    /// Sends what a host of a run sends, as a folder says; inside the guest that is that host
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
    /// A tap of this network namespace that becomes a network card of the guest; may be given several times
    #[arg(long = "tap", value_name = "TAP")]
    pub(crate) taps: Vec<String>,
    /// The program and its arguments
    #[arg(required = true, last = true)]
    pub(crate) program: Vec<String>,
}
