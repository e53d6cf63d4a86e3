//! Requests to `redis-server` by `redis-benchmark`, which gets and sets one key. A mix has a program for each, side by side.

use super::answers::Answers;
use super::clients::Clients;
use super::http_client::{connect_to, is_late};
use super::in_process::{InProcess, exit_with};
use super::{
    ClientSetup, End, Programs, Report, ReportError, START_TIMEOUT, Workload, await_listening,
    check_installed, check_wrapper, wrapper,
};
use crate::process::{Ended, Program};
use crate::registry::Record;
use crate::rng::Rng;
use crate::spec::{Flow, Requests, Transport};
use crate::{Error, Netns};
use socket2::Socket;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::time::Duration;
use vmcc_units::Bytes;

const INSTALL_SERVER: &str = "apt-get install -y redis-server";
const INSTALL_TOOLS: &str = "apt-get install -y redis-tools";
/// redis-benchmark's key, unless several are configured.
const KEY: &str = "key:__rand_int__";
/// Timeout of the value's verification.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(5);

/// A flow's server and clients.
pub(super) struct Redis<'a> {
    pub(super) flow: &'a Flow,
    pub(super) programs: &'a Programs,
    pub(super) requests: &'a Requests,
}

impl Workload for Redis<'_> {
    fn check(&self) -> Result<(), Error> {
        check_installed(&self.programs.redis_server, INSTALL_SERVER)?;
        check_installed(&self.programs.redis_benchmark, INSTALL_TOOLS)?;
        check_wrapper(self.flow, self.programs)
    }

    fn versioned(&self) -> Vec<(String, &'static str)> {
        [&self.programs.redis_server, &self.programs.redis_benchmark]
            .map(|program| (program.clone(), "--version"))
            .into()
    }

    fn serve(&self, at: &Netns, port: u16, record: &mut Record) -> Result<End, Error> {
        let number = port.to_string();
        let mut words = wrapper(self.flow, self.programs);
        words.extend([&*self.programs.redis_server, "--port", &number, "--bind", "0.0.0.0"]);
        // In memory alone, and without the host's settings.
        words.extend(["--save", "", "--appendonly", "no", "--protected-mode", "no", "--maxclients", "10000"]);
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let server = Program::start(at, record, &words, INSTALL_SERVER)?;
        let said = |ended: Ended| String::from_utf8_lossy(&ended.stdout).into_owned();
        let server = await_listening(server, (at, port), START_TIMEOUT, said)?;
        let value = value(self.requests.size);
        let put = at.run(move || Session::open((Ipv4Addr::LOCALHOST, port), false)?.set(&value));
        put.map_err(|e| Error::kernel("filling", format!("redis-server in namespace {}", at.name()), e))?;
        Ok(End::Program(server))
    }

    fn send(&self, setup: ClientSetup<'_>) -> Result<End, Error> {
        let ClientSetup { at, to, lasts, .. } = setup;
        let parts: Vec<(&str, u32, u64)> = self.parts();
        let commands: Vec<Vec<String>> = parts.iter().map(|part| self.command(to, *part)).collect();
        let wanted: Vec<u64> = parts.iter().map(|(_, _, requests)| *requests).collect();
        let only_read = parts.iter().all(|(test, ..)| *test == "get");
        let multipath = matches!(self.flow.transport, Transport::Mptcp { .. });
        let value = value(self.requests.size);
        let clients = Clients::new(at, lasts, INSTALL_TOOLS);
        InProcess::spawn(at, "redis-benchmark", move |end| {
            let (mut text, mut started) = (String::new(), Vec::new());
            let run = clients.run(&commands, end, &mut started, |number, ended| {
                text.push_str(&said(ended, wanted[number])?);
                Ok(())
            });
            let unfinished = started.iter().zip(&wanted).filter(|(client, _)| client.took.is_none());
            let unfinished: u64 = unfinished.map(|(_, requests)| requests).sum();
            text.push_str(&format!("{UNFINISHED} {unfinished}\n"));
            let verified = run.and_then(|()| verify(to, multipath, &value, only_read));
            // Where a path has failed, no new connection may reach the server.
            match verified {
                Err(e) if unfinished > 0 || is_late(&e) => text.push_str(&format!("{UNVERIFIED} {e}\n")),
                Err(e) => return exit_with(text, Some(e)),
                Ok(()) => {}
            }
            exit_with(text, None)
        })
    }

    fn report(&self, client: &Ended, _server: &End) -> Result<Report, ReportError> {
        if !client.stderr.is_empty() {
            return Err(ReportError::Transfer(client.stderr.clone()));
        }
        let text = String::from_utf8_lossy(&client.stdout);
        let answers = parse(&text)?;
        let unverified = text.lines().find_map(|line| line.strip_prefix(UNVERIFIED));
        // Of a write, a short word comes back.
        let bytes = (answers.answered as f64 * self.requests.reads) as u64 * self.requests.size.get();
        let warning = |cause: &str| format!("the key's value could not be read after the requests:{cause}");
        let warnings = unverified.into_iter().map(warning).collect();
        Ok(Report { warnings, ..answers.report(self.flow.connections, bytes) })
    }
}

impl Redis<'_> {
    /// Test, connections and requests of each program.
    fn parts(&self) -> Vec<(&'static str, u32, u64)> {
        let (all, readers) = (self.flow.connections, self.requests.readers.min(self.flow.connections));
        let share = |connections: u32| self.requests.count * u64::from(connections) / u64::from(all.max(1));
        let parts = [("get", readers, share(readers)), ("set", all - readers, share(all - readers))];
        parts.into_iter().filter(|(_, connections, _)| *connections > 0).collect()
    }

    fn command(&self, (to, port): (Ipv4Addr, u16), part: (&str, u32, u64)) -> Vec<String> {
        let (test, connections, requests) = part;
        let mut words: Vec<String> =
            wrapper(self.flow, self.programs).into_iter().map(str::to_owned).collect();
        let numbers = [port.to_string(), connections.to_string(), requests.to_string()];
        let [port, connections, requests] = numbers;
        words.extend([self.programs.redis_benchmark.clone(), "-h".into(), to.to_string(), "-p".into(), port]);
        words.extend(["-c".into(), connections, "-n".into(), requests]);
        words.extend(["-d".into(), self.requests.size.get().to_string(), "-t".into(), test.into()]);
        words
    }
}

/// The line that says how many requests were cut off.
const UNFINISHED: &str = "unfinished";
/// The line that says why the value was not compared.
const UNVERIFIED: &str = "unverified";

/// Value of the key: random bytes.
fn value(size: Bytes) -> Vec<u8> {
    let mut rng = Rng::new(size.get(), 0);
    (0..size.get()).map(|_| rng.next() as u8).collect()
}

/// Output of a program, without what only its progress says.
fn said(ended: &Ended, wanted: u64) -> io::Result<String> {
    let text = String::from_utf8_lossy(&ended.stdout);
    if !ended.status.success() || !text.contains(&format!("  {wanted} requests completed in ")) {
        let last = text.lines().last().unwrap_or_default();
        return Err(io::Error::other(format!("redis-benchmark: {} {last} [{}]", ended.stderr, ended.status)));
    }
    Ok(text.into_owned())
}

/// Compares the key's value with what was put there. Writes put bytes of redis-benchmark's own, of the same number.
fn verify(to: (Ipv4Addr, u16), multipath: bool, value: &[u8], only_read: bool) -> io::Result<()> {
    let got = Session::open(to, multipath)?.get(value.len())?;
    if only_read && got != value {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the key's value is not what was put there"));
    }
    Ok(())
}

/// A connection to the server, which speaks its protocol.
struct Session(BufReader<Socket>);

impl Session {
    fn open(to: (Ipv4Addr, u16), multipath: bool) -> io::Result<Self> {
        let socket = connect_to(to.into(), multipath, VERIFY_TIMEOUT)?;
        socket.set_read_timeout(Some(VERIFY_TIMEOUT))?;
        Ok(Self(BufReader::new(socket)))
    }

    fn set(&mut self, value: &[u8]) -> io::Result<()> {
        let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{KEY}\r\n${}\r\n", KEY.len(), value.len());
        self.0.get_mut().write_all(&[head.as_bytes(), value, b"\r\n"].concat())?;
        self.expect("+OK")
    }

    fn get(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let request = format!("*2\r\n$3\r\nGET\r\n${}\r\n{KEY}\r\n", KEY.len());
        self.0.get_mut().write_all(request.as_bytes())?;
        self.expect(&format!("${length}"))?;
        let mut value = vec![0; length];
        self.0.read_exact(&mut value)?;
        Ok(value)
    }

    fn expect(&mut self, wanted: &str) -> io::Result<()> {
        let mut line = String::new();
        self.0.by_ref().take(1 << 10).read_line(&mut line)?;
        if line.trim_end() == wanted {
            return Ok(());
        }
        Err(io::Error::other(format!("redis-server answers {:?} instead of {wanted:?}", line.trim_end())))
    }
}

/// Reads the reports of all programs: their durations are those of the longest.
fn parse(text: &str) -> Result<Answers, ReportError> {
    let mut all = Answers::none();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    // Latencies up to which requests were counted; what both tables say is in order together.
    let mut counted: Vec<(f64, u64)> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let unreadable = || ReportError::Line((*line).to_owned());
        if let Some((count, rest)) = line.split_once(" requests completed in ") {
            flush(&mut all, &mut counted);
            let secs = rest.strip_suffix(" seconds").and_then(|secs| secs.parse().ok());
            all.answered += count.parse::<u64>().map_err(|_| unreadable())?;
            all.secs = all.secs.max(secs.ok_or_else(unreadable)?);
        } else if let Some((_, rest)) = line.split_once("% <= ") {
            counted.push(step(rest).ok_or_else(unreadable)?);
        } else if line.starts_with("avg ") {
            let figures = lines.get(at + 1).ok_or_else(unreadable)?;
            let figures: Vec<f64> = figures.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let [_, _, p50, p95, p99, _] = figures[..] else { return Err(unreadable()) };
            let total = counted.iter().map(|(_, count)| *count).max().unwrap_or(0) as f64;
            let exact = [(p50, 0.50), (p95, 0.95), (p99, 0.99)];
            counted.extend(exact.map(|(ms, share)| (ms, (total * share).ceil() as u64)));
        } else if let Some(count) = line.strip_prefix(UNFINISHED) {
            all.unfinished = count.trim().parse().map_err(|_| unreadable())?;
        }
    }
    flush(&mut all, &mut counted);
    Ok(all)
}

/// `0.087 milliseconds (cumulative count 10270)`.
fn step(text: &str) -> Option<(f64, u64)> {
    let (ms, rest) = text.split_once(" milliseconds (cumulative count ")?;
    Some((ms.parse().ok()?, rest.strip_suffix(')')?.parse().ok()?))
}

/// Counts each request with the smallest latency that it was counted up to.
fn flush(all: &mut Answers, counted: &mut Vec<(f64, u64)>) {
    counted.sort_by(|(a, m), (b, n)| a.total_cmp(b).then(m.cmp(n)));
    let mut before = 0;
    for (ms, count) in counted.drain(..) {
        all.record(ms * 1e3, count.saturating_sub(before));
        before = before.max(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\r \rGET: rps=0.0 (overall: -nan)\r\n====== GET ======\n  200 requests completed in 0.29 seconds\n  \
        10 parallel clients\n  256 bytes payload\n\nLatency by percentile distribution:\n\
        0.000% <= 0.031 milliseconds (cumulative count 2)\n50.000% <= 0.087 milliseconds (cumulative count 110)\n\
        100.000% <= 9.351 milliseconds (cumulative count 200)\n\nCumulative distribution of latencies:\n\
        68.625% <= 0.103 milliseconds (cumulative count 137)\n100.000% <= 10.103 milliseconds (cumulative count 200)\n\n\
        Summary:\n  throughput summary: 689.65 requests per second\n  latency summary (msec):\n          \
        avg       min       p50       p95       p99       max\n        0.096     0.024     0.087     0.135     0.183     9.351\n";

    #[test]
    fn report_gives_counts_and_percentiles() {
        let answers = parse(&format!("{SAID}unfinished 0\n")).unwrap();
        assert_eq!((answers.answered, answers.unfinished, answers.secs), (200, 0, 0.29));
        assert_eq!(answers.latencies_ns.len(), 200, "each request once");
        let us = |quantile| answers.latencies_ns.value_at_quantile(quantile) as f64 / 1e3;
        assert!((us(0.5) - 87.0).abs() < 1.0 && (us(0.99) - 183.0).abs() < 1.0, "{} {}", us(0.5), us(0.99));
        assert!((us(1.0) - 9_351.0).abs() < 10.0, "the second table has nothing beyond the first's last");
    }

    #[test]
    fn reports_of_a_mix_are_added() {
        let slower = SAID.replace("in 0.29 seconds", "in 0.5 seconds").replace("GET ==", "SET ==");
        let answers = parse(&format!("{SAID}{slower}unfinished 7\n")).unwrap();
        assert_eq!((answers.answered, answers.unfinished, answers.secs), (400, 7, 0.5));
        assert_eq!(answers.latencies_ns.len(), 400);
    }

    #[test]
    fn malformed_reports_are_refused() {
        for (from, to) in [
            ("200 requests completed", "many requests completed"),
            ("(cumulative count 110)", "(cumulative)"),
            ("     0.183     9.351", ""),
        ] {
            assert!(parse(&SAID.replace(from, to)).is_err(), "{to}");
        }
        assert_eq!(parse("").unwrap(), Answers::none());
    }
}
