//! Arguments of `vmcc cp` and its remote end.

use super::RelayOptions;
use super::proxy::most;
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use vmcc_apps::endpoint_addr::parse_ip;
use vmcc_apps::probe::Choice;
use vmcc_apps::session::Carrier;

#[derive(Debug, Clone, Args)]
pub(crate) struct CpOptions {
    /// Files and folders, and where they go: PATH, HOST:PATH, USER@HOST:PATH or scp://[USER@]HOST[:PORT]/PATH; those of one side
    ///
    /// At the other host `~` and `~USER` are home folders, and `*`, `?` and `[...]` match names; a pattern without a match is an error. A home
    /// folder as a SOURCE has no name, like `.`: with --recursive its content is copied (of `~USER` scp makes a folder that the other host
    /// names). A TARGET that ends with a slash, or is for several sources, has to be a folder that is there.
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "TARGET"])]
    pub(crate) paths: Vec<PathBuf>,

    /// Copy folders with their content
    ///
    /// Symbolic links are followed, as scp does; devices, FIFOs and sockets are not copied. A new folder contains a file `.vmcc-part`
    /// until the copy is complete: the same command then continues in it, where scp would create another folder inside.
    #[arg(long, short)]
    pub(crate) recursive: bool,

    /// Replace files that exist and differ
    ///
    /// Without it they are refused, where scp and rsync overwrite them: a wrong name destroys nothing. The old file keeps its name until the new
    /// one is complete. Therefore a symbolic or hard link is replaced, as by rsync, and not written through, as by
    /// scp; devices, FIFOs and sockets, which scp writes into and rsync replaces, are refused. Mode, owner and group of the old file are kept,
    /// as far as this user may give them.
    #[arg(long, short)]
    pub(crate) force: bool,

    /// Preserve modification times and all permission bits
    ///
    /// Also of identical files that exist already. Owners, ACLs and extended attributes are not copied, as by scp.
    #[arg(long, short)]
    pub(crate) preserve: bool,

    /// ssh command with its options [default: the variable VMCC_SSH, or ssh]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) ssh: Option<String>,

    /// Path of vmcc at the other host
    #[arg(long, value_name = "PROGRAM", default_value = "vmcc")]
    pub(crate) remote_vmcc: String,

    /// Source address; repeatable [default: every usable one]
    #[arg(long = "local", value_name = "ADDRESS", value_parser = parse_ip)]
    pub(crate) locals: Vec<IpAddr>,

    /// Destination address at the other host; repeatable [default: every one]
    #[arg(long = "remote", value_name = "ADDRESS", value_parser = parse_ip)]
    pub(crate) remotes: Vec<IpAddr>,

    /// Transport: udp (multipath QUIC), tcp (several TCP connections), or auto (QUIC while UDP passes, TCP while it does not)
    #[arg(long, value_name = "CARRIER", default_value = "udp", value_parser = Carrier::from_str)]
    pub(crate) carrier: Carrier,

    /// Port at the other host [default: any]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,

    #[command(flatten)]
    pub(crate) relays: RelayOptions,

    /// Use relays while fewer than this many direct paths work
    #[arg(long, value_name = "K", default_value_t = Choice::default().most, value_parser = most)]
    pub(crate) most: usize,

    /// Write a qlog of each QUIC connection into this folder [default: the variable QLOGDIR, or none]
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,

    /// Print only the result, warnings and errors: no progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ServeOptions {
    /// Serve one copy, controlled by its client through standard input, and exit
    #[arg(long, required = true)]
    pub(crate) once: bool,

    /// Listen address; repeatable [default: every usable one]
    #[arg(long = "address", value_name = "ADDRESS", value_parser = parse_ip)]
    pub(crate) addresses: Vec<IpAddr>,

    /// Port [default: any]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,

    /// Write a qlog of each QUIC connection into this folder [default: the variable QLOGDIR, or none]
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
}
