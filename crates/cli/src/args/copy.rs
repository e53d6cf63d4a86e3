//! Arguments of `vmcc cp` and its remote end.

use super::RelayOptions;
use super::proxy::most;
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;
use vmcc_apps::endpoint_addr::parse_ip;
use vmcc_apps::probe::Choice;

#[derive(Debug, Clone, Args)]
pub(crate) struct CpOptions {
    /// Files and folders, and where they go: PATH, HOST:PATH, USER@HOST:PATH or scp://[USER@]HOST[:PORT]/PATH; those of one side
    ///
    /// At the other host `~` and `~USER` are home folders, and `*`, `?` and `[...]` match names; no name is taken that does not match. A home
    /// folder as a SOURCE has no name, like `.`: with --recursive its content is copied (of `~USER` scp makes a folder that the other host
    /// names). A TARGET that ends with a slash, or is for several sources, has to be a folder that is there.
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "TARGET"])]
    pub(crate) paths: Vec<PathBuf>,

    /// Folders with what is in them
    ///
    /// Symbolic links are followed, as scp does; devices, FIFOs and sockets are not copied. A folder that is made has a file `.vmcc-part` in it
    /// until the copy has come to its end: the same command goes on in it, where scp would put another folder into it.
    #[arg(long, short)]
    pub(crate) recursive: bool,

    /// Replace files that exist and differ
    ///
    /// Without it they are refused, where scp and rsync overwrite them: a wrong name destroys nothing. The old file keeps its name until the new
    /// one is complete, so nobody reads half of one. Therefore a symbolic or hard link is replaced, as by rsync, and not written through, as by
    /// scp; devices, FIFOs and sockets, which scp writes into and rsync replaces, are refused. Mode, owner and group of the old file are kept,
    /// as far as this user may give them.
    #[arg(long, short)]
    pub(crate) force: bool,

    /// Keep times of modification, and all bits of permission
    ///
    /// Also those of files that are there already and are the same. Owners, ACLs and extended attributes are not copied, as by scp.
    #[arg(long, short)]
    pub(crate) preserve: bool,

    /// The ssh command with its options [default: the variable VMCC_SSH, or ssh]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) ssh: Option<String>,

    /// The vmcc there
    #[arg(long, value_name = "PROGRAM", default_value = "vmcc")]
    pub(crate) remote_vmcc: String,

    /// Leave from this address only; may be given several times [default: every usable one]
    #[arg(long = "local", value_name = "ADDRESS", value_parser = parse_ip)]
    pub(crate) locals: Vec<IpAddr>,

    /// Go to this address of the other host only; may be given several times [default: every one]
    #[arg(long = "remote", value_name = "ADDRESS", value_parser = parse_ip)]
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
    #[arg(long = "address", value_name = "ADDRESS", value_parser = parse_ip)]
    pub(crate) addresses: Vec<IpAddr>,

    /// The UDP port [default: any]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,

    /// Write a log of each QUIC connection into this folder, as qlog has it [default: the variable QLOGDIR, or none]
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
}
