//! Bulk data and datagrams by `iperf3`: how it is started and what its JSON says.
//!
//! Goodput is what the receiving program read, in the server's intervals, so that bytes in flight at the end,
//! retransmissions and MPTCP's duplicates do not count.

use super::{
    ClientSetup, Connection, End, Interval, Programs, Report, ReportError, START_TIMEOUT, Workload,
    await_listening, check_installed, check_wrapper, wrapper,
};
use crate::process::{Ended, Program};
use crate::registry::Record;
use crate::spec::{Flow, Job, UDP_HEADERS_BYTES, dscp};
use crate::{Error, Netns};
use serde::Deserialize;

const INSTALL_IPERF: &str = "apt-get install -y iperf3";

/// A flow's two ends of `iperf3`.
pub(super) struct Iperf3<'a> {
    pub(super) flow: &'a Flow,
    pub(super) programs: &'a Programs,
}

impl Workload for Iperf3<'_> {
    fn check(&self) -> Result<(), Error> {
        check_installed(&self.programs.iperf3, INSTALL_IPERF)?;
        check_wrapper(self.flow, self.programs)
    }

    fn serve(&self, at: &Netns, port: u16, record: &mut Record) -> Result<End, Error> {
        let port_text = port.to_string();
        let interval = report_interval(self.flow);
        // Not bound to an address: subflows join at the addresses of the other paths.
        let arguments = ["-4", "-s", "-1", "-J", "-i", interval, "-p", &port_text];
        let server = Program::start(at, record, &self.command(&arguments), INSTALL_IPERF)?;
        let said = |ended: Ended| complaint(&ended.stdout).unwrap_or(ended.stderr);
        await_listening(server, (at, port), START_TIMEOUT, said).map(End::Program)
    }

    fn send(&self, setup: ClientSetup<'_>) -> Result<End, Error> {
        let ClientSetup { at, to: (to, port), record, .. } = setup;
        let flow = self.flow;
        let (to, port, seconds) = (to.to_string(), port.to_string(), flow.seconds().to_string());
        let (connections, cc) = (flow.connections.to_string(), flow.cc.kernel_name());
        let interval = report_interval(flow);
        let dscp = dscp(flow.class).to_string();
        let pace = self.pace().map(|(rate, chunk)| (rate.to_string(), chunk.to_string()));
        let mut arguments = vec!["-c", &to, "-p", &port, "-t", &seconds, "-P", &connections];
        arguments.extend(["-J", "-i", interval, "--get-server-output", "--connect-timeout", "5000"]);
        if flow.job.is_datagrams() {
            arguments.push("-u");
        } else {
            arguments.extend(["-C", &cc]);
        }
        if let Some((rate_bps, chunk_bytes)) = &pace {
            arguments.extend(["-b", rate_bps, "-l", chunk_bytes]);
        }
        if flow.class > 0 {
            arguments.extend(["--dscp", &dscp]);
        }
        Program::start(at, record, &self.command(&arguments), INSTALL_IPERF).map(End::Program)
    }

    fn report(&self, sender: &Ended, _server: &End) -> Result<Report, ReportError> {
        parse(&sender.stdout)
    }

    /// It calls that it was told to end an error, and says what it had read all the same.
    fn cut(&self, server: &Ended) -> Result<Report, ReportError> {
        report_of(serde_json::from_slice(&server.stdout)?)
    }
}

impl Iperf3<'_> {
    fn command(&self, arguments: &[&str]) -> Vec<String> {
        let wrapper = wrapper(self.flow, self.programs);
        let words = wrapper.into_iter().chain([&*self.programs.iperf3]).chain(arguments.iter().copied());
        words.map(str::to_owned).collect()
    }

    /// The rate of its payload, and how much of that is written at a time.
    fn pace(&self) -> Option<(u64, u64)> {
        match &self.flow.job {
            Job::Bulk { writes_at } => writes_at.map(|(rate, chunk)| (rate.get(), chunk.get())),
            Job::Datagrams { rate, packet } => {
                let payload = packet.get().saturating_sub(UDP_HEADERS_BYTES).max(1);
                let rate = u128::from(rate.get()) * u128::from(payload) / u128::from(packet.get().max(1));
                Some((u64::try_from(rate).unwrap_or(u64::MAX), payload))
            }
            _ => None,
        }
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
    report_of(server)
}

fn report_of(server: ServerJson) -> Result<Report, ReportError> {
    let connections: Vec<Connection> = server
        .start
        .connected
        .iter()
        .map(|connected| Connection {
            port: connected.remote_port,
            began_s: 0.0,
            size: None,
            read: intervals_of(&server.intervals, connected.socket),
            took_s: None,
            stalled_us: None,
            fetched: Vec::new(),
        })
        .collect();
    if connections.is_empty() {
        return Err(ReportError::NoConnection);
    }
    Ok(Report { connections, ..Report::default() })
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
    fn connections_are_distinguished_and_windows_prorated() {
        let report = parse(GOOD.as_bytes()).unwrap();
        assert_eq!(report.connections[0].port, 4000);
        assert_eq!(report.connections[0].bytes_within(0.5, 1.5), 500.0 + 1500.0);
        assert_eq!(report.connections[1].bytes_within(0.0, 9.0), 40.0);
        assert_eq!(report.connections[1].bytes_within(2.0, 9.0), 0.0);
    }

    #[test]
    fn terminated_server_reports_received_bytes() {
        let programs = Programs::default();
        let spec = crate::convert::tests::of_text(
            "[topology]\nkind='parallel-paths'\npaths=2\nrate='20mbit'\ndelay='20us'\n[[traffic]]\nkind='bulk'\n",
        );
        let spec = spec.unwrap();
        let iperf3 = Iperf3 { flow: &spec.flows[0], programs: &programs };
        let left = |stdout: &str| {
            let (status, stderr) = (std::os::unix::process::ExitStatusExt::from_raw(1 << 8), String::new());
            iperf3.cut(&Ended { status, stdout: stdout.into(), stderr })
        };
        let report = left(
            r#"{ "start": { "connected": [ { "socket": 5, "remote_port": 4000 } ] },
            "intervals": [ { "streams": [ { "socket": 5, "start": 0, "end": 1.0, "bytes": 1000 } ], "sum": {} } ],
            "end": {}, "error": "interrupt - the server has terminated" }"#,
        );
        assert_eq!(report.unwrap().connections[0].bytes_within(0.5, 9.0), 500.0);
        let none = left(r#"{ "start": {}, "error": "interrupt - the server has terminated" }"#);
        assert!(matches!(none, Err(ReportError::NoConnection)), "{none:?}");
    }

    #[test]
    fn json_errors_are_errors_at_any_exit_code() {
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
