//! Requests by `wrk` for one page that `nginx` holds in memory. wrk corrects its latencies for requests that it would have sent
//! while it waited (coordinated omission).

use super::answers::Answers;
use super::nginx;
use super::private_mount::mounted_path;
use super::{
    ClientSetup, End, Programs, Report, ReportError, START_TIMEOUT, Workload, await_listening,
    check_installed, check_wrapper, wrapper,
};
use crate::process::{Ended, Program};
use crate::registry::Record;
use crate::spec::{Flow, Requests};
use crate::{Error, Netns};
use std::path::PathBuf;

const INSTALL_WRK: &str = "apt-get install -y wrk";
/// Prints what wrk has counted, then each latency in microseconds with its count.
const SCRIPT: &str = "done = function(summary, latency)\n  local e = summary.errors\n  \
    local late = e.connect + e.read + e.write + e.timeout\n  \
    io.write(string.format('vmcc %d %d %d %d %d\\n', summary.duration, summary.requests, summary.bytes, late, e.status))\n  \
    for i = 1, #latency do\n    local us, count = latency(i)\n    io.write(string.format('%d %d\\n', us, count))\n  end\nend\n";

/// A flow's server and client.
pub(super) struct Wrk<'a> {
    pub(super) flow: &'a Flow,
    pub(super) programs: &'a Programs,
    pub(super) requests: &'a Requests,
}

impl Workload for Wrk<'_> {
    fn check(&self) -> Result<(), Error> {
        check_installed(&self.programs.nginx, nginx::INSTALL)?;
        check_installed(&self.programs.wrk, INSTALL_WRK)?;
        check_wrapper(self.flow, self.programs)
    }

    fn versioned(&self) -> Vec<(String, &'static str)> {
        vec![(self.programs.nginx.clone(), "-v"), (self.programs.wrk.clone(), "--version")]
    }

    fn serve(&self, at: &Netns, port: u16, record: &mut Record) -> Result<End, Error> {
        let size = self.requests.size.get();
        let server = nginx::start((self.flow, self.programs), at, record, &settings(port), size)?;
        let server = await_listening(server, (at, port), START_TIMEOUT, |ended| ended.stderr)?;
        std::fs::write(mounted_path(&server, "script"), SCRIPT)
            .map_err(|e| Error::file("the script of wrk", e))?;
        Ok(End::Program(server))
    }

    /// The script.
    fn data(&self, server: &End) -> Option<PathBuf> {
        Some(mounted_path(server.program()?, "script"))
    }

    fn send(&self, setup: ClientSetup<'_>) -> Result<End, Error> {
        let ClientSetup { at, to: (to, port), lasts, data, record } = setup;
        let script = data.ok_or_else(|| Error::spec("traffic", "there is no script for wrk"))?;
        let script = script.to_string_lossy().into_owned();
        let (count, seconds) = (self.flow.connections.to_string(), lasts.as_secs().max(1).to_string());
        let url = format!("http://{to}:{port}/data");
        let mut words = wrapper(self.flow, self.programs);
        words.extend([&*self.programs.wrk, "-t", "1", "-c", &count, "-d", &seconds, "-s", &script, &url]);
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        Program::start(at, record, &words, INSTALL_WRK).map(End::Program)
    }

    fn report(&self, client: &Ended, _server: &End) -> Result<Report, ReportError> {
        let text = String::from_utf8_lossy(&client.stdout);
        let (mut answers, bytes) = parse(&text, self.requests.size.get())?;
        // Each connection sends its next request at once, and wrk ends without waiting for the last answers.
        answers.unfinished += u64::from(self.flow.connections);
        Ok(answers.report(self.flow.connections, bytes))
    }
}

/// One process, which stays in the foreground and keeps its page in memory.
fn settings(port: u16) -> String {
    let server = "root /run; location = /data { } location / { return 404; }";
    nginx::settings(port, (16_384, 16_384), "keepalive_requests 1000000000;", server)
}

/// Reads the script's lines: the answers, and the payload that came.
fn parse(text: &str, size: u64) -> Result<(Answers, u64), ReportError> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("vmcc "));
    let head = lines.next().ok_or_else(|| ReportError::Said(text.trim().to_owned()))?;
    let unreadable = |line: &str| ReportError::Line(line.to_owned());
    let numbers = |line: &str| line.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>().ok();
    let Some([us, requests, bytes, late, refused]) =
        head.strip_prefix("vmcc ").and_then(numbers).as_deref().copied_array()
    else {
        return Err(unreadable(head));
    };
    let payload = requests.saturating_mul(size);
    if refused > 0 || bytes < payload {
        return Err(ReportError::Transfer(format!(
            "wrk counts {refused} refusals and {bytes} bytes in {requests} answers of {size} bytes each"
        )));
    }
    let mut answers =
        Answers { answered: requests, unfinished: late, secs: us as f64 / 1e6, ..Answers::none() };
    for line in lines {
        let Some([us, count]) = numbers(line).as_deref().copied_array() else { return Err(unreadable(line)) };
        answers.record(us as f64, count);
    }
    Ok((answers, payload))
}

/// Numbers of a line, if there are as many.
trait CopiedArray {
    fn copied_array<const N: usize>(self) -> Option<[u64; N]>;
}

impl CopiedArray for Option<&[u64]> {
    fn copied_array<const N: usize>(self) -> Option<[u64; N]> {
        self?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Running 1s test\n  1 threads\nvmcc 1007562 3 3366 0 0\n275 1\n303 2\n";

    #[test]
    fn script_output_gives_counts_and_latencies() {
        let (answers, payload) = parse(SAID, 1_000).unwrap();
        assert_eq!((answers.answered, payload, answers.latencies_ns.len()), (3, 3_000, 3));
        assert!((answers.secs - 1.007_562).abs() < 1e-9 && answers.unfinished == 0);
        assert_eq!(parse(&SAID.replace("3366 0 0", "3366 2 0"), 1_000).unwrap().0.unfinished, 2);
        assert!((answers.latencies_ns.max() as f64 / 303_000.0 - 1.0).abs() < 0.01);
    }

    #[test]
    fn short_answers_and_errors_are_failures() {
        let refused = |text: &str, size, words: &str| {
            let error = parse(text, size).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        refused(SAID, 2_000, "3366 bytes in 3 answers of 2000 bytes each");
        refused(&SAID.replace("3366 0 0", "3366 0 4"), 1_000, "4 refusals");
        refused("unable to connect to 10.0.0.1:5201 Connection refused", 1, "Connection refused");
        refused("vmcc 1 2 3\n", 1, "cannot be read");
        refused("vmcc 1 2 300 0 0\n7 x\n", 1, "cannot be read");
    }
}
