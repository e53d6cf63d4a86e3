//! Transactions on PostgreSQL by `pgbench`: its TPC-B-like mix. The database lies in memory, gone with the server.

use super::answers::Answers;
use super::clients::Clients;
use super::in_process::{InProcess, exit_with};
use super::private_mount::{mounted_command, mounted_path};
use super::{
    ClientSetup, End, Programs, Report, ReportError, START_TIMEOUT, Workload, await_listening, check_wrapper,
    wrapper,
};
use crate::process::{Ended, Program, find};
use crate::registry::Record;
use crate::spec::Flow;
use crate::{Error, Netns};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const INSTALL: &str = "apt-get install -y postgresql";
/// Time of the last transactions, after pgbench's own.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Account of the server, which refuses root.
const USER: &str = "postgres";
/// Makes a database that accepts everybody on the networks of the run: nothing else reaches them.
const MAKE_DATABASE: &str = "install -d -o postgres -g postgres -m 700 /run/db && install -d -o postgres -g postgres /run/socket && \
    setpriv --reuid=postgres --regid=postgres --clear-groups \"$1/initdb\" -D /run/db -A trust -N -U postgres >/run/initdb && \
    echo 'host all all 0.0.0.0/0 trust' >>/run/db/pg_hba.conf && shift && exec \"$@\"";
/// TPC-B's consistency: sums of the three tables and of their history are equal.
const SUMS: &str = "select sum(abalance) = (select sum(bbalance) from pgbench_branches) and sum(abalance) = \
    (select sum(tbalance) from pgbench_tellers) and sum(abalance) = (select coalesce(sum(delta), 0) from pgbench_history) from pgbench_accounts";

/// A flow's server and client.
pub(super) struct Pgbench<'a> {
    pub(super) flow: &'a Flow,
    pub(super) programs: &'a Programs,
}

impl Workload for Pgbench<'_> {
    fn check(&self) -> Result<(), Error> {
        self.program("postgres")?;
        self.program("pgbench")?;
        check_wrapper(self.flow, self.programs)
    }

    fn versioned(&self) -> Vec<(String, &'static str)> {
        self.program("postgres").into_iter().map(|program| (program, "--version")).collect()
    }

    fn serve(&self, at: &Netns, port: u16, record: &mut Record) -> Result<End, Error> {
        let (folder, postgres) = (self.folder()?, self.program("postgres")?);
        let (folder, number) = (folder.to_string_lossy().into_owned(), port.to_string());
        let mut before = vec!["sh", "-c", MAKE_DATABASE, "sh", &folder];
        before.extend(["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        before.extend(wrapper(self.flow, self.programs));
        let mut words = mounted_command("", 0, &before);
        let settings =
            ["listen_addresses=0.0.0.0", "unix_socket_directories=/run/socket", "max_connections=1000"];
        words.extend([&*postgres, "-D", "/run/db", "-p", &number].map(str::to_owned));
        words.extend(settings.iter().flat_map(|setting| ["-c".to_owned(), (*setting).to_owned()]));
        let server = Program::start(at, record, &words, INSTALL)?;
        let server = await_listening(server, (at, port), 6 * START_TIMEOUT, |ended| ended.stderr)?;
        self.fill(&server, port)?;
        Ok(End::Program(server))
    }

    /// Prefix of the client's log, which is in the server's memory and gone with it.
    fn data(&self, server: &End) -> Option<PathBuf> {
        Some(mounted_path(server.program()?, "log"))
    }

    fn send(&self, setup: ClientSetup<'_>) -> Result<End, Error> {
        let ClientSetup { at, to: (to, port), lasts, data, .. } = setup;
        let log = data.ok_or_else(|| Error::spec("traffic", "there is no place for pgbench's log"))?;
        let log = format!("--log-prefix={}", log.display());
        let pgbench = self.program("pgbench")?;
        let (to, port) = (to.to_string(), port.to_string());
        let (count, seconds) = (self.flow.connections.to_string(), lasts.as_secs().max(1).to_string());
        let mut words = wrapper(self.flow, self.programs);
        words.extend([&*pgbench, "-h", &to, "-p", &port, "-U", USER, "-n", "-c", &count, "-T", &seconds]);
        words.extend(["-l", &log, USER]);
        let commands = vec![words.into_iter().map(str::to_owned).collect()];
        // It ends by itself, unless a transaction never does.
        let lasts = lasts + END_TIMEOUT;
        let clients = Clients::new(at, lasts, INSTALL);
        InProcess::spawn(at, "pgbench", move |end| {
            let mut text = String::new();
            let run = clients.run(&commands, end, &mut Vec::new(), |_, ended| {
                text = said(ended)?;
                Ok(())
            });
            exit_with(text, run.err())
        })
    }

    fn report(&self, client: &Ended, server: &End) -> Result<Report, ReportError> {
        if !client.stderr.is_empty() {
            return Err(ReportError::Said(client.stderr.clone()));
        }
        let server = server.program().ok_or(ReportError::NoServer)?;
        let mut answers = read_logs(&mounted_path(server, "log"))?;
        let text = String::from_utf8_lossy(&client.stdout);
        match text
            .lines()
            .find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse::<f64>().ok())
        {
            Some(rate) if rate > 0.0 => answers.secs = answers.answered as f64 / rate,
            // Its log has what it wrote before it was ended.
            _ => answers.unfinished = self.flow.connections.into(),
        }
        self.check_sums(server)?;
        Ok(answers.report(self.flow.connections, 0))
    }
}

impl Pgbench<'_> {
    /// Folder of the newest version's programs, as Debian has them.
    fn folder(&self) -> Result<PathBuf, Error> {
        let versions = fs::read_dir(&self.programs.postgresql).into_iter().flatten().flatten();
        let folders = versions.map(|version| version.path().join("bin"));
        let there = folders.filter(|folder| folder.join("postgres").is_file());
        let number = |folder: &PathBuf| folder.parent()?.file_name()?.to_str()?.parse::<u32>().ok();
        there.max_by_key(number).ok_or_else(|| Error::ProgramMissing {
            program: format!("{}/*/bin/postgres", self.programs.postgresql),
            remedy: INSTALL.to_owned(),
        })
    }

    fn program(&self, name: &str) -> Result<String, Error> {
        let program = self.folder()?.join(name).to_string_lossy().into_owned();
        find(&program)
            .map(|found| found.to_string_lossy().into_owned())
            .ok_or(Error::ProgramMissing { program, remedy: INSTALL.to_owned() })
    }

    /// Fills the tables, through the server's own socket, as soon as the server, which listens before, accepts sessions.
    fn fill(&self, server: &Program, port: u16) -> Result<(), Error> {
        let mut command = Command::new(self.program("pgbench")?);
        command.args(["-i", "-q", "-U", USER, "-p", &port.to_string(), "-h"]);
        command.arg(mounted_path(server, "socket")).arg(USER);
        let begun = Instant::now();
        loop {
            let filled = command.output().map_err(|e| Error::file("pgbench", e))?;
            let said = String::from_utf8_lossy(&filled.stderr);
            if filled.status.success() {
                return Ok(());
            }
            if !said.contains("is starting up") || begun.elapsed() > 6 * START_TIMEOUT {
                let cause = format!("its tables cannot be filled: {}", said.trim());
                return Err(server.failed(cause, super::LOOK_AT));
            }
            thread::sleep(super::START_POLL_INTERVAL);
        }
    }

    fn check_sums(&self, server: &Program) -> Result<(), ReportError> {
        let socket = mounted_path(server, "socket");
        let port = fs::read_dir(&socket).ok().into_iter().flatten().flatten().find_map(|entry| {
            let name = entry.file_name();
            Some(name.to_str()?.strip_prefix(".s.PGSQL.").filter(|port| !port.contains('.'))?.to_owned())
        });
        let psql = self.program("psql").map_err(|e| ReportError::Said(e.to_string()))?;
        let port = port.ok_or(ReportError::NoServer)?;
        let asked =
            Command::new(psql).args(["-U", USER, "-p", &port, "-Atc", SUMS, "-h"]).arg(socket).output();
        let asked = asked.map_err(ReportError::Files)?;
        match String::from_utf8_lossy(&asked.stdout).trim() {
            "t" => Ok(()),
            "f" => Err(ReportError::Transfer("balances of the tables differ from their history".to_owned())),
            _ => Err(ReportError::ServerSaid(String::from_utf8_lossy(&asked.stderr).trim().to_owned())),
        }
    }
}

/// Output of a pgbench that ended well.
fn said(ended: &Ended) -> io::Result<String> {
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    Err(io::Error::other(ended.stderr.lines().last().unwrap_or("pgbench failed").to_owned()))
}

/// Reads all files that begin with `prefix`: a line per transaction, whose third number is its latency in microseconds.
fn read_logs(prefix: &Path) -> Result<Answers, ReportError> {
    let (folder, name) = prefix.parent().zip(prefix.file_name()).ok_or(ReportError::NoServer)?;
    let name = format!("{}.", name.to_string_lossy());
    let mut answers = Answers::none();
    for entry in fs::read_dir(folder).map_err(ReportError::Files)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&name) {
            take(&fs::read_to_string(entry.path()).map_err(ReportError::Files)?, &mut answers)?;
        }
    }
    Ok(answers)
}

fn take(log: &str, answers: &mut Answers) -> Result<(), ReportError> {
    // A program that was ended may have written half of a line.
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    for line in whole.lines() {
        let us = line.split(' ').nth(2).and_then(|us| us.parse().ok());
        answers.record(us.ok_or_else(|| ReportError::Line(line.to_owned()))?, 1);
        answers.answered += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_log_line_is_a_transaction() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("log.7"), "3 1 12567 0 1795740840 668229\n0 1 13146 0 1795740840 668741\n")
            .unwrap();
        fs::write(dir.path().join("log.7.1"), "1 1 2000 0 1795740840 669761\n").unwrap();
        fs::write(dir.path().join("other"), "nothing\n").unwrap();
        let answers = read_logs(&dir.path().join("log")).unwrap();
        assert_eq!((answers.answered, answers.latencies_ns.len()), (3, 3));
        assert!((answers.latencies_ns.max() as f64 / 13_146e3 - 1.0).abs() < 0.01);
        let mut cut = Answers::none();
        take("3 1 12567 0 1 2\n3 2 1", &mut cut).unwrap();
        assert_eq!(cut.answered, 1);
        assert!(take("3 1 failed 0\n", &mut Answers::none()).is_err());
    }
}
