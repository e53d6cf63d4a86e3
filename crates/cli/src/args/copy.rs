//! What `vmcc cp` and its far end can be asked for.

use super::RelayOptions;
use super::proxy::most;
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;
use vmcc_tunnel::place::address;
use vmcc_tunnel::ways::Choice;

#[derive(Debug, Clone, Args)]
pub(crate) struct CpOptions {
    /// Files and folders, and where they go: PATH, HOST:PATH or USER@HOST:PATH; those of one side
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "TARGET"])]
    pub(crate) paths: Vec<PathBuf>,

    /// Folders with what is in them
    #[arg(long, short)]
    pub(crate) recursive: bool,

    /// Replace files that exist and differ
    #[arg(long, short)]
    pub(crate) force: bool,

    /// Keep times of modification, and all bits of permission
    #[arg(long, short)]
    pub(crate) preserve: bool,

    /// The ssh command with its options [default: the variable VMCC_SSH, or ssh]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) ssh: Option<String>,

    /// The vmcc there
    #[arg(long, value_name = "PROGRAM", default_value = "vmcc")]
    pub(crate) remote_vmcc: String,

    /// Leave from this address only; may be given several times [default: every usable one]
    #[arg(long = "local", value_name = "ADDRESS", value_parser = address)]
    pub(crate) locals: Vec<IpAddr>,

    /// Go to this address of the other host only; may be given several times [default: every one]
    #[arg(long = "remote", value_name = "ADDRESS", value_parser = address)]
    pub(crate) remotes: Vec<IpAddr>,

    /// The UDP port there [default: any]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,

    #[command(flatten)]
    pub(crate) relays: RelayOptions,

    /// Use relays as long as fewer than so many paths work
    #[arg(long, value_name = "K", default_value_t = Choice::default().most, value_parser = most)]
    pub(crate) most: usize,

    /// Write a log of each QUIC connection into this folder, as qlog has it [default: the variable QLOGDIR, or none]
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,

    /// No progress: only the result, warnings and errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ServeOptions {
    /// Serve one copy, whose client speaks on standard input, and end
    #[arg(long, required = true)]
    pub(crate) once: bool,

    /// Listen at this address only; may be given several times [default: every usable one]
    #[arg(long = "address", value_name = "ADDRESS", value_parser = address)]
    pub(crate) addresses: Vec<IpAddr>,

    /// The UDP port [default: any]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,

    /// Write a log of each QUIC connection into this folder, as qlog has it [default: the variable QLOGDIR, or none]
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
}
