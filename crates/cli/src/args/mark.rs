//! The options of `vmcc mark` and `vmcc unmark`.

use clap::{ArgAction, Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct MarkOptions {
    /// The port: a network interface of this network namespace (tap, veth, bridge or OVS port, NIC)
    #[arg(required_unless_present_any = ["list", "schema"])]
    pub(crate) port: Option<String>,

    /// Print the counters of the port
    #[arg(long, requires = "port", conflicts_with = "settings", group = "question")]
    pub(crate) stats: bool,

    /// Print the counters of all ports that vmcc serves in this network namespace
    #[arg(long, conflicts_with_all = ["port", "settings"], group = "question")]
    pub(crate) list: bool,

    /// With --list or --stats: in Prometheus's text format
    #[arg(long, requires = "question", conflicts_with = "json")]
    pub(crate) prometheus: bool,

    /// Reapply the port's settings after another program changed or removed its queues or programs; resets its counters
    #[arg(long, requires = "port", conflicts_with_all = ["question", "settings", "schema", "foreground"])]
    pub(crate) repair: bool,

    /// Print the JSON schema of --config
    #[arg(long, conflicts_with_all = ["port", "question", "settings"])]
    pub(crate) schema: bool,

    /// Serve the port while this process runs, and show its counters, until Ctrl-C or SIGTERM [default: until `vmcc unmark`
    /// or a restart of the host]
    #[arg(long, conflicts_with_all = ["question", "schema"])]
    pub(crate) foreground: bool,

    #[command(flatten)]
    pub(crate) settings: MarkSettings,
}

/// Settings of a port.
#[derive(Debug, Args)]
#[group(id = "settings", multiple = true)]
pub(crate) struct MarkSettings {
    /// Read everything from a TOML file (docs/reference/port.md); `--schema` prints its schema
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "classes", "queue", "marking", "threshold", "rtt",
        "lambda", "buffer", "backend", "phantom", "trust", "vm", "rtt_min", "rtt_max", "not_ect", "overload", "sparse"])]
    pub(crate) config: Option<PathBuf>,

    /// Rate of the port, a hard cap (600mbit)
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub(crate) rate: Option<String>,

    /// The service queues, the last for everything else: gold:4:dscp=46,silver:2,rest:1
    ///
    /// Each is NAME:WEIGHT, then its selectors (dscp=46+10, priority=7, cgroup=PATH, ecn=ect) and its limits
    /// (guarantee=200mbit, ceiling=400mbit, buffer=200pkt), all after colons.
    #[arg(long, value_name = "CLASSES", allow_hyphen_values = true)]
    pub(crate) classes: Option<String>,

    /// Scheduler of the queues [default: drr with several classes, else fifo]
    #[arg(long, value_enum)]
    pub(crate) queue: Option<QueueChoice>,

    /// Marking rule: mq-ecn, tcn, threshold=30kB or none [default: mq-ecn; tcn with --queue priority]
    #[arg(long, value_name = "RULE", allow_hyphen_values = true)]
    pub(crate) marking: Option<String>,

    /// Short for --marking threshold=...: bytes (30kB), packets (20pkt) or queueing time at the rate (200us)
    #[arg(long, value_name = "THRESHOLD", allow_hyphen_values = true, conflicts_with = "marking")]
    pub(crate) threshold: Option<String>,

    /// RTT for the computation of thresholds (250us) [default: measured from passing traffic]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) rtt: Option<String>,

    /// Lower bound of a measured RTT (100us)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "rtt")]
    pub(crate) rtt_min: Option<String>,

    /// Upper bound of a measured RTT (50ms)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "rtt")]
    pub(crate) rtt_max: Option<String>,

    /// Treatment of non-ECT packets above the marking threshold
    #[arg(long, value_enum, default_value_t = NotEctChoice::Drop)]
    pub(crate) not_ect: NotEctChoice,

    /// Share of its buffer above which a queue drops ECT packets, too (0.5 to 1; 1: never) [default: 0.75]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub(crate) overload: Option<f64>,

    /// Serve flows that send little before the others of their class
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub(crate) sparse: bool,

    /// Factor of the marking threshold: rate x RTT x lambda [default: 1]
    #[arg(long, value_name = "FACTOR", allow_hyphen_values = true)]
    pub(crate) lambda: Option<f64>,

    /// Buffer of each queue (150kB, 1000pkt) [default: 1000pkt]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) buffer: Option<String>,

    /// Implementation of the queues
    #[arg(long, value_enum, default_value_t = BackendChoice::Auto)]
    pub(crate) backend: BackendChoice,

    /// Mark by a virtual queue that drains at this share of the rate (0.5 to 1)
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub(crate) phantom: Option<f64>,

    /// Header fields of senders that may select a class: dscp, priority, tunnel (dscp,priority), or none [default: dscp,tunnel]
    #[arg(long, value_name = "WHAT", allow_hyphen_values = true)]
    pub(crate) trust: Option<String>,

    /// Rate of the VM over all its ports: one shared bucket (db1=1gbit:shared) or this port's part (db1=1gbit:1/2)
    #[arg(long, value_name = "NAME=RATE:HOW", allow_hyphen_values = true)]
    pub(crate) vm: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UnmarkOptions {
    /// The port
    #[arg(required_unless_present = "all")]
    pub(crate) port: Option<String>,

    /// Every port that vmcc serves in this network namespace
    #[arg(long, conflicts_with = "port")]
    pub(crate) all: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NotEctChoice {
    /// Drop them as often as a mark would count
    Drop,
    /// Queue them until the buffer is full
    Queue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueueChoice {
    /// One queue
    Fifo,
    /// By weight (deficit round robin)
    Drr,
    /// The first class first
    Priority,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendChoice {
    /// bpf if it loads, else htb
    Auto,
    /// A queueing discipline in BPF (Linux 6.16 with NET_SCH_BPF)
    Bpf,
    /// Linux's hierarchical token bucket
    Htb,
}
