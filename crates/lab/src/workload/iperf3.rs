//! Bulk data by `iperf3`: how it is started and what its JSON says.
//!
//! Goodput is what the receiving program read, in the server's intervals, so that bytes in flight at the end,
//! retransmissions and MPTCP's duplicates do not count.

use super::{Connection, Interval, Programs, Report, ReportError, Workload};
use crate::process::{Ended, Program, is_installed};
use crate::registry::Record;
use crate::spec::{Flow, Transport, dscp};
use crate::{Error, Netns};
use serde::Deserialize;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

/// How long a server may take until it listens, and how often we look.
const START_TRIES: u32 = 500;
const START_PAUSE: Duration = Duration::from_millis(10);
const LOOK_AT: &str = "run the same command by hand in a namespace, and look at `dmesg` if it is killed";
const INSTALL_IPERF: &str = "apt-get install -y iperf3";
const INSTALL_MPTCPIZE: &str = "apt-get install -y mptcpize";

/// What each connection begins with, so that the server knows whose it is.
pub(super) const COOKIE_BYTES: u64 = 37;

/// A flow's two ends of `iperf3`.
pub(super) struct Iperf3<'a> {
    pub(super) flow: &'a Flow,
    pub(super) programs: &'a Programs,
}

impl Workload for Iperf3<'_> {
    fn check(&self) -> Result<(), Error> {
        let missing = |program: &str, remedy: &str| {
            Err(Error::ProgramMissing { program: program.to_owned(), remedy: remedy.to_owned() })
        };
        if !is_installed(&self.programs.iperf3) {
            return missing(&self.programs.iperf3, INSTALL_IPERF);
        }
        if matches!(self.flow.transport, Transport::Mptcp { .. }) && !is_installed(&self.programs.mptcpize) {
            return missing(&self.programs.mptcpize, INSTALL_MPTCPIZE);
        }
        Ok(())
    }

    fn serve(&self, at: &Netns, port: u16, record: &mut Record) -> Result<Program, Error> {
        let port_text = port.to_string();
        let interval = report_interval(self.flow);
        // Not bound to an address: subflows join at the addresses of the other paths.
        let arguments = ["-4", "-s", "-1", "-J", "-i", interval, "-p", &port_text];
        let mut server = Program::start(at, record, &self.command(&arguments), INSTALL_IPERF)?;
        for _ in 0..START_TRIES {
            let listening = at.run(move || vmcc_netlink::is_listening(port));
            let listening = listening.map_err(|e| Error::kernel("listing the sockets of", at.name(), e))?;
            if listening {
                return Ok(server);
            }
            if let Some(ended) = server.output()? {
                let said = complaint(&ended.stdout).unwrap_or(ended.stderr);
                return Err(server.failed(format!("it ended before it listened ({said})"), LOOK_AT));
            }
            thread::sleep(START_PAUSE);
        }
        Err(server.failed(format!("it does not listen on port {port} after 5 s"), LOOK_AT))
    }

    fn send(&self, at: &Netns, (to, port): (Ipv4Addr, u16), record: &mut Record) -> Result<Program, Error> {
        let flow = self.flow;
        let (to, port, seconds) = (to.to_string(), port.to_string(), flow.seconds().to_string());
        let (connections, cc) = (flow.connections.to_string(), flow.cc.kernel_name());
        let interval = report_interval(flow);
        let dscp = dscp(flow.class).to_string();
        let pace = flow.writes_at.map(|(rate, chunk)| (rate.get().to_string(), chunk.get().to_string()));
        let mut arguments = vec!["-c", &to, "-p", &port, "-t", &seconds, "-P", &connections, "-C", &cc];
        arguments.extend(["-J", "-i", interval, "--get-server-output", "--connect-timeout", "5000"]);
        if let Some((rate_bps, chunk_bytes)) = &pace {
            arguments.extend(["-b", rate_bps, "-l", chunk_bytes]);
        }
        if flow.class > 0 {
            arguments.extend(["--dscp", &dscp]);
        }
        Program::start(at, record, &self.command(&arguments), INSTALL_IPERF)
    }

    fn report(&self, sender: &Ended) -> Result<Report, ReportError> {
        parse(&sender.stdout)
    }
}

impl Iperf3<'_> {
    fn command(&self, arguments: &[&str]) -> Vec<String> {
        let wrapper = match self.flow.transport {
            Transport::Tcp { .. } => vec![],
            Transport::Mptcp { .. } => vec![self.programs.mptcpize.clone(), "run".to_owned()],
        };
        let program = std::iter::once(self.programs.iperf3.clone());
        wrapper.into_iter().chain(program).chain(arguments.iter().map(|&a| a.to_owned())).collect()
    }
}

/// Seconds between reports. With many connections a finer one would cost CPU time that the run needs.
fn report_interval(flow: &Flow) -> &'static str {
    if flow.connections <= 10 { "0.1" } else { "1" }
}

#[derive(Deserialize)]
struct ClientJson {
    error: Option<String>,
    server_output_json: Option<ServerJson>,
}

#[derive(Deserialize)]
struct ServerJson {
    error: Option<String>,
    start: StartJson,
    #[serde(default)]
    intervals: Vec<IntervalJson>,
}

#[derive(Deserialize)]
struct StartJson {
    #[serde(default)]
    connected: Vec<ConnectedJson>,
}

#[derive(Deserialize)]
struct ConnectedJson {
    socket: i64,
    remote_port: u16,
}

#[derive(Deserialize)]
struct IntervalJson {
    streams: Vec<StreamJson>,
}

#[derive(Deserialize)]
struct StreamJson {
    socket: i64,
    start: f64,
    end: f64,
    bytes: f64,
}

/// The error in a program's JSON, if there is one.
fn complaint(stdout: &[u8]) -> Option<String> {
    serde_json::from_slice::<ClientJson>(stdout).ok()?.error
}

/// Reads the client's JSON, which holds the server's.
fn parse(stdout: &[u8]) -> Result<Report, ReportError> {
    let client: ClientJson = serde_json::from_slice(stdout)?;
    if let Some(error) = client.error {
        return Err(ReportError::Said(error));
    }
    let server = client.server_output_json.ok_or(ReportError::NoServer)?;
    if let Some(error) = server.error {
        return Err(ReportError::ServerSaid(error));
    }
    let connections: Vec<Connection> = server
        .start
        .connected
        .iter()
        .map(|connected| Connection {
            sender_port: connected.remote_port,
            read: intervals_of(&server.intervals, connected.socket),
        })
        .collect();
    if connections.is_empty() {
        return Err(ReportError::NoConnection);
    }
    Ok(Report { connections })
}

fn intervals_of(intervals: &[IntervalJson], socket: i64) -> Vec<Interval> {
    let streams = intervals.iter().flat_map(|interval| &interval.streams);
    streams
        .filter(|stream| stream.socket == socket)
        .map(|stream| Interval { start_s: stream.start, end_s: stream.end, bytes: stream.bytes })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{ "start": {}, "server_output_json": {
        "start": { "connected": [ { "socket": 5, "remote_port": 4000 }, { "socket": 7, "remote_port": 4002 } ] },
        "intervals": [
          { "streams": [ { "socket": 5, "start": 0, "end": 1.0, "bytes": 1000 },
                         { "socket": 7, "start": 0, "end": 1.0, "bytes": 10 } ], "sum": {} },
          { "streams": [ { "socket": 5, "start": 1.0, "end": 2.0, "bytes": 3000 },
                         { "socket": 7, "start": 1.0, "end": 2.0, "bytes": 30 } ] } ],
        "end": {} } }"#;

    #[test]
    fn connections_are_told_apart_and_windows_prorated() {
        let report = parse(GOOD.as_bytes()).unwrap();
        assert_eq!(report.connections[0].sender_port, 4000);
        assert_eq!(report.connections[0].bytes_within(0.5, 1.5), 500.0 + 1500.0);
        assert_eq!(report.connections[1].bytes_within(0.0, 9.0), 40.0);
        assert_eq!(report.connections[1].bytes_within(2.0, 9.0), 0.0);
    }

    #[test]
    fn errors_in_the_json_are_errors_whatever_the_exit_code() {
        for (json, expected) in [
            (r#"{ "start": {}, "error": "unable to connect" }"#, "unable to connect"),
            (r#"{ "server_output_json": { "start": {}, "error": "busy" } }"#, "the server says: busy"),
            (r#"{ "server_output_json": { "start": {} } }"#, "no connection"),
            (r#"{ "start": {} }"#, "server's part is missing"),
            ("", "cannot be read"),
            ("[]", "cannot be read"),
        ] {
            let error = parse(json.as_bytes()).expect_err(json);
            assert!(error.to_string().contains(expected), "{json}: {error}");
        }
    }
}
