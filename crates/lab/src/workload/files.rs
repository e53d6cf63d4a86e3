//! Files, one on each connection: `curl` puts them to `nginx`, which keeps them in memory until they have been compared.
//!
//! Both ends are where the server is alone to see (see `private_mount`).

use super::arrived::report_arrived;
use super::nginx;
use super::private_mount::mounted_path;
use super::{
    ClientSetup, Connection, End, Programs, Report, ReportError, START_TIMEOUT, Workload, await_listening,
    check_installed, check_wrapper, wrapper,
};
use crate::process::{Ended, Program};
use crate::registry::Record;
use crate::spec::Flow;
use crate::{Error, Netns};
use std::path::PathBuf;
use vmcc_units::{BitsPerSec, Bytes};

const INSTALL_CURL: &str = "apt-get install -y curl";
/// curl's words for a transfer that its time limit ended.
const TIMED_OUT: &str = "28";

/// A flow's client and server.
pub(super) struct Files<'a> {
    pub(super) flow: &'a Flow,
    pub(super) programs: &'a Programs,
    pub(super) size: Bytes,
    pub(super) rate: Option<BitsPerSec>,
}

impl Workload for Files<'_> {
    fn check(&self) -> Result<(), Error> {
        check_installed(&self.programs.curl, INSTALL_CURL)?;
        check_installed(&self.programs.nginx, nginx::INSTALL)?;
        check_wrapper(self.flow, self.programs)
    }

    fn serve(&self, at: &Netns, port: u16, record: &mut Record) -> Result<End, Error> {
        let server = nginx::start((self.flow, self.programs), at, record, &settings(port), self.size.get())?;
        // A gigabyte of random numbers takes its time.
        await_listening(server, (at, port), 6 * START_TIMEOUT, |ended| ended.stderr).map(End::Program)
    }

    fn data(&self, server: &End) -> Option<PathBuf> {
        Some(mounted_path(server.program()?, "data"))
    }

    fn send(&self, setup: ClientSetup<'_>) -> Result<End, Error> {
        let ClientSetup { at, to: (to, port), lasts, data, record } = setup;
        let count = self.flow.connections.to_string();
        let seconds = format!("{:.3}", lasts.as_secs_f64());
        let data = data.ok_or_else(|| Error::spec("traffic", "there is no file to be sent"))?;
        let data = data.to_string_lossy().into_owned();
        let urls = format!("http://{to}:{port}/[1-{count}]");
        let mut words = wrapper(self.flow, self.programs);
        // Without the user's settings and proxies, and without asking first whether the file is welcome.
        words.extend([
            &*self.programs.curl,
            "-q",
            "--silent",
            "--show-error",
            "--noproxy",
            "*",
            "-H",
            "Expect:",
        ]);
        words.extend([
            "--parallel",
            "--parallel-immediate",
            "--parallel-max",
            &count,
            "--max-time",
            &seconds,
        ]);
        let rate = self.rate.map(|rate| (rate.get() / 8).max(1).to_string());
        words.extend(rate.iter().flat_map(|rate| ["--limit-rate", rate]));
        words.extend(["-w", "%{local_port} %{time_total} %{http_code} %{exitcode}\n", "-T", &data, &urls]);
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        Program::start(at, record, &words, INSTALL_CURL).map(End::Program)
    }

    fn report(&self, sender: &Ended, server: &End) -> Result<Report, ReportError> {
        let said = String::from_utf8_lossy(&sender.stdout);
        let connections = said.lines().map(|line| self.connection(line)).collect::<Result<Vec<_>, _>>()?;
        if connections.len() != self.flow.connections as usize {
            let count = connections.len();
            return Err(ReportError::Transfer(format!("{count} of {} were begun", self.flow.connections)));
        }
        report_arrived(server, connections)
    }
}

impl Files<'_> {
    /// Parses curl's line about one transfer.
    fn connection(&self, line: &str) -> Result<Connection, ReportError> {
        let wrong = || ReportError::Line(line.to_owned());
        let [port, took, status, exit] = line.split(' ').collect::<Vec<_>>()[..] else { return Err(wrong()) };
        let port = port.parse().map_err(|_| wrong())?;
        let took: f64 = took.parse().map_err(|_| wrong())?;
        let took_s = match (status, exit) {
            ("201" | "204", "0") => Some(took),
            (_, TIMED_OUT) => None,
            _ => return Err(ReportError::Transfer(format!("HTTP status {status}, curl's exit code {exit}"))),
        };
        Ok(Connection::transfer(port, 0.0, took_s, self.size.get()))
    }
}

fn settings(port: u16) -> String {
    let http = "client_max_body_size 0; client_body_timeout 3600s;";
    nginx::settings(port, (4096, 2048), http, "root /run/files; dav_methods PUT;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Cc, Job, Role, Transport};
    use vmcc_units::Nanos;

    fn flow() -> Flow {
        Flow {
            label: "sized".into(),
            role: Role::Measured,
            from: 0,
            to: 1,
            cc: Cc::Native("reno".into()),
            ecn: None,
            transport: Transport::Tcp { subnet: 0 },
            class: 0,
            connections: 1,
            job: Job::Sized { size: Bytes::new(1000), rate: None },
            round: 0,
            start: Nanos::ZERO,
            stop: Nanos::from_secs(1),
            unloaded: None,
        }
    }

    #[test]
    fn transfer_line_is_parsed() {
        let (flow, programs) = (flow(), Programs::default());
        let files = Files { flow: &flow, programs: &programs, size: Bytes::new(1000), rate: None };
        let whole = files.connection("40000 0.25 201 0").unwrap();
        assert_eq!((whole.port, whole.took_s), (40_000, Some(0.25)));
        assert_eq!(whole.bytes_within(0.0, 0.125), 500.0);
        let late = files.connection("40000 9.5 000 28").unwrap();
        assert!(late.took_s.is_none() && late.read.is_empty());
        for (line, expected) in [
            ("40000 0.1 000 7", "curl's exit code 7"),
            ("40000 0.1 507 0", "HTTP status 507"),
            ("40000 0.1", "cannot be read"),
            ("x 0.1 201 0", "cannot be read"),
        ] {
            let error = files.connection(line).expect_err(line).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
