//! A file by FTP: `lftp` puts it to `pure-ftpd`. The duration is that of lftp, with its login.
//!
//! The flow's port is that of the data connection (passive mode); control has a port of its own, which is not measured. vsftpd is not used:
//! it ends every session over MPTCP, whose sockets have no `SO_OOBINLINE` ("500 OOPS: setsockopt: oobinline").

use super::arrived::report_arrived;
use super::clients::{Clients, by_exit_code, transfers};
use super::in_process::InProcess;
use super::private_mount::{mounted_command, mounted_path};
use super::{
    ClientSetup, End, Programs, Report, ReportError, START_TIMEOUT, Workload, await_listening,
    check_installed, check_wrapper, wrapper,
};
use crate::process::{Ended, Program, find};
use crate::registry::Record;
use crate::spec::Flow;
use crate::{Error, Netns};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use vmcc_units::{BitsPerSec, Bytes};

const INSTALL_SERVER: &str = "apt-get install -y pure-ftpd";
const INSTALL_LFTP: &str = "apt-get install -y lftp";
/// From a flow's port to the one for control: beyond those of all flows.
const CONTROL_OFFSET: u16 = 10_000;
const USER: &str = "vmcc";
/// Makes a user of the server's own, with this host's `nobody` and the word `vmcc`.
const MAKE_USER: &str = "chmod 777 /run/files && printf 'vmcc\\nvmcc\\n' | \"$1\" useradd vmcc -u 65534 -g 65534 -d /run \
                         -f /run/passwd -F /run/users -m >/run/out && shift && exec \"$@\"";

/// A flow's server and client.
pub(super) struct Ftp<'a> {
    pub(super) flow: &'a Flow,
    pub(super) programs: &'a Programs,
    pub(super) size: Bytes,
    pub(super) rate: Option<BitsPerSec>,
}

impl Workload for Ftp<'_> {
    fn check(&self) -> Result<(), Error> {
        check_installed(&self.programs.pure_ftpd, INSTALL_SERVER)?;
        check_installed(&self.pure_pw(), INSTALL_SERVER)?;
        check_installed(&self.programs.lftp, INSTALL_LFTP)?;
        check_wrapper(self.flow, self.programs)
    }

    fn versioned(&self) -> Vec<(String, &'static str)> {
        vec![(self.programs.pure_ftpd.clone(), "--help"), (self.programs.lftp.clone(), "--version")]
    }

    fn serve(&self, at: &Netns, port: u16, record: &mut Record) -> Result<End, Error> {
        let pure_pw = self.pure_pw();
        let mut before = vec!["sh", "-c", MAKE_USER, "sh", &pure_pw];
        before.extend(wrapper(self.flow, self.programs));
        let mut words = mounted_command("", self.size.get(), &before);
        let (control, data) = (control_port(port).to_string(), format!("{port}:{port}"));
        let own = [&*self.programs.pure_ftpd, "-S", &control, "-p", &data];
        let users = ["-l", "puredb:/run/users", "-u", "1", "-E", "-H", "-g", "/run/pid"];
        words.extend(own.into_iter().chain(users).map(str::to_owned));
        let server = Program::start(at, record, &words, INSTALL_SERVER)?;
        await_listening(server, (at, control_port(port)), 6 * START_TIMEOUT, |ended| ended.stderr)
            .map(End::Program)
    }

    fn data(&self, server: &End) -> Option<PathBuf> {
        Some(mounted_path(server.program()?, "data"))
    }

    fn send(&self, setup: ClientSetup<'_>) -> Result<End, Error> {
        let ClientSetup { at, to: (to, port), lasts, data, .. } = setup;
        let data = data.ok_or_else(|| Error::spec("traffic", "there is no file to be sent"))?;
        let mut words = wrapper(self.flow, self.programs);
        let script = script(data, (to, control_port(port)), self.rate);
        words.extend([&*self.programs.lftp, "--norc", "-c", &script]);
        let commands = vec![words.into_iter().map(str::to_owned).collect()];
        let clients = Clients::new(at, lasts, INSTALL_LFTP);
        InProcess::spawn(at, "sender of a file", move |end| {
            clients.transfer(&commands, end, by_exit_code("lftp"))
        })
    }

    fn report(&self, client: &Ended, server: &End) -> Result<Report, ReportError> {
        report_arrived(server, transfers(client, self.size)?)
    }
}

impl Ftp<'_> {
    /// The server's tool for users, which its package puts into `bin` beside the server's `sbin`.
    fn pure_pw(&self) -> String {
        let unpacked = find(&self.programs.pure_ftpd)
            .and_then(|server| Some(server.parent()?.parent()?.join("bin/pure-pw")));
        unpacked.filter(|tool| tool.is_file()).map_or("pure-pw".to_owned(), |tool| tool.display().to_string())
    }
}

fn control_port(port: u16) -> u16 {
    port.saturating_add(CONTROL_OFFSET)
}

fn script(data: &Path, (to, control): (Ipv4Addr, u16), rate: Option<BitsPerSec>) -> String {
    let limit =
        rate.map_or(String::new(), |rate| format!("set net:limit-rate {}; ", rate.bytes_per_sec().max(1)));
    format!(
        "set cmd:fail-exit yes; set net:max-retries 1; set ftp:ssl-allow no; set ftp:passive-mode yes; {limit}\
         open -u {USER},{USER} -p {control} ftp://{to}; put \"{}\" -o files/1",
        data.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_is_passed_in_bytes_per_second() {
        let to = (Ipv4Addr::new(10, 0, 0, 2), control_port(5_201));
        let with = |rate| script(Path::new("/proc/7/root/run/data"), to, rate);
        assert!(with(None).ends_with("-p 15201 ftp://10.0.0.2; put \"/proc/7/root/run/data\" -o files/1"));
        assert!(with(Some(BitsPerSec::new(8_000_000))).contains("set net:limit-rate 1000000; "));
        assert!(!with(None).contains("limit-rate"));
    }
}
