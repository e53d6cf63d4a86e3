//! Files by `rsync`, one on each connection: to its daemon, or over `ssh`. The duration is that of the program.

use super::arrived::report_arrived;
use super::clients::{Clients, by_exit_code, transfers};
use super::in_process::InProcess;
use super::private_mount::{SETTINGS, mounted_command, mounted_path};
use super::{
    ClientSetup, End, Programs, Report, ReportError, START_TIMEOUT, Workload, await_listening,
    check_installed, check_wrapper, wrapper,
};
use crate::process::{Ended, Program};
use crate::registry::Record;
use crate::spec::Flow;
use crate::{Error, Netns};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use vmcc_units::{BitsPerSec, Bytes};

const INSTALL_RSYNC: &str = "apt-get install -y rsync";
const INSTALL_SSH: &str = "apt-get install -y openssh-client";
const INSTALL_SSHD: &str = "apt-get install -y openssh-server";
/// Keys of the server and of the user, gone with the server.
const MAKE_KEYS: &str = "mkdir -m 755 /run/sshd && ssh-keygen -q -t ed25519 -N '' -f /run/host && \
                         ssh-keygen -q -t ed25519 -N '' -f /run/user && cp /run/user.pub /run/authorized && exec \"$@\"";

/// A flow's server and clients.
pub(super) struct Rsync<'a> {
    pub(super) flow: &'a Flow,
    pub(super) programs: &'a Programs,
    pub(super) size: Bytes,
    pub(super) rate: Option<BitsPerSec>,
    /// True if the server is `sshd` and not rsync's daemon.
    pub(super) ssh: bool,
}

impl Workload for Rsync<'_> {
    fn check(&self) -> Result<(), Error> {
        check_installed(&self.programs.rsync, INSTALL_RSYNC)?;
        if self.ssh {
            check_installed(&self.programs.sshd, INSTALL_SSHD)?;
            check_installed(&self.programs.ssh, INSTALL_SSH)?;
        }
        check_wrapper(self.flow, self.programs)
    }

    fn versioned(&self) -> Vec<(String, &'static str)> {
        let ssh = self.ssh.then(|| (self.programs.ssh.clone(), "-V"));
        [(self.programs.rsync.clone(), "--version")].into_iter().chain(ssh).collect()
    }

    fn serve(&self, at: &Netns, port: u16, record: &mut Record) -> Result<End, Error> {
        let mut before = if self.ssh { vec!["sh", "-c", MAKE_KEYS, "sh"] } else { Vec::new() };
        before.extend(wrapper(self.flow, self.programs));
        let (settings, remedy) = match self.ssh {
            true => (sshd_settings(port), INSTALL_SSHD),
            false => (daemon_settings(port), INSTALL_RSYNC),
        };
        let mut words = mounted_command(&settings, self.size.get(), &before);
        let config = format!("--config={SETTINGS}");
        let own = match self.ssh {
            true => vec![&*self.programs.sshd, "-D", "-e", "-f", SETTINGS],
            false => vec![&*self.programs.rsync, "--daemon", "--no-detach", &config],
        };
        words.extend(own.into_iter().map(str::to_owned));
        let server = Program::start(at, record, &words, remedy)?;
        // Random numbers for the file and the keys take their time.
        await_listening(server, (at, port), 6 * START_TIMEOUT, |ended| ended.stderr).map(End::Program)
    }

    fn data(&self, server: &End) -> Option<PathBuf> {
        Some(mounted_path(server.program()?, "data"))
    }

    fn send(&self, setup: ClientSetup<'_>) -> Result<End, Error> {
        let ClientSetup { at, to, lasts, data, .. } = setup;
        let data = data.ok_or_else(|| Error::spec("traffic", "there is no file to be sent"))?;
        let commands: Vec<Vec<String>> =
            (1..=self.flow.connections).map(|number| self.command(data, to, number)).collect();
        let clients = Clients::new(at, lasts, INSTALL_RSYNC);
        InProcess::spawn(at, "senders of files", move |end| {
            clients.transfer(&commands, end, by_exit_code("rsync"))
        })
    }

    fn report(&self, client: &Ended, server: &End) -> Result<Report, ReportError> {
        report_arrived(server, transfers(client, self.size)?)
    }
}

impl Rsync<'_> {
    fn command(&self, data: &Path, (to, port): (Ipv4Addr, u16), number: u32) -> Vec<String> {
        let mut words: Vec<String> =
            wrapper(self.flow, self.programs).into_iter().map(str::to_owned).collect();
        words.extend([self.programs.rsync.clone(), "--whole-file".to_owned()]);
        // In units of 1024 bytes per second.
        words.extend(self.rate.map(|rate| format!("--bwlimit={}", (rate.bytes_per_sec() >> 10).max(1))));
        if self.ssh {
            let key = data.with_file_name("user");
            words.push(format!("--rsh={}", ssh(&self.programs.ssh, port, &key)));
        }
        words.push(data.to_string_lossy().into_owned());
        words.push(match self.ssh {
            true => format!("root@{to}:/run/files/{number}"),
            false => format!("rsync://{to}:{port}/files/{number}"),
        });
        words
    }
}

/// Without the user's settings, known hosts and agent.
fn ssh(program: &str, port: u16, key: &Path) -> String {
    format!(
        "{program} -F none -p {port} -i {} -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no \
         -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
        key.display()
    )
}

fn daemon_settings(port: u16) -> String {
    format!(
        "port = {port}\naddress = 0.0.0.0\nuse chroot = no\nuid = root\ngid = root\nlock file = /run/lock\n\
         log file = /run/log\n[files]\npath = /run/files\nread only = no\n"
    )
}

fn sshd_settings(port: u16) -> String {
    format!(
        "Port {port}\nListenAddress 0.0.0.0\nHostKey /run/host\nAuthorizedKeysFile /run/authorized\nStrictModes no\nUsePAM no\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\nPidFile none\nUseDNS no\nMaxStartups 1000\nMaxSessions 1000\n\
         LogLevel ERROR\n"
    )
}
