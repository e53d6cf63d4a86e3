//! `vmcc bench kernel --connections N`: what an agent costs while that many connections are open.

use crate::commands::top;
use crate::failure::{Exit, Failure, agent_failure, chain};
use crate::ui::Ui;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::json;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vmcc_agent::Observer;
use vmcc_bpf::Loaded;
use vmcc_cc::{Algorithm, Params};
use vmcc_lab::bench::IdleConnections;

const ALGORITHM: &str = "vmcc";
const FIGURES: &str = "127.0.0.1:9464";
/// Several rounds of the agent.
const REST: Duration = Duration::from_secs(40);
/// Of which the mean is taken.
const LOOKS: u32 = 3;
/// Clock ticks per second in the files of a process: USER_HZ, which is part of the kernel's interface.
const TICKS_PER_SECOND: f64 = 100.0;

/// An agent of this program in the namespace; it ends, and puts everything back, with this.
struct Agent {
    process: Child,
    file: tempfile::NamedTempFile,
}

impl Agent {
    fn start(crowd: &IdleConnections) -> io::Result<Self> {
        let mut file = tempfile::NamedTempFile::new()?;
        write!(file, "[algorithm.{ALGORITHM}]\n[guard]\nenabled = true\n[metrics]\nlisten = '{FIGURES}'\n")?;
        let (program, path) = (std::env::current_exe()?, file.path().to_owned());
        let mut process = crowd.client().run(move || {
            let mut command = Command::new(program);
            command.args(["up", "--config"]).arg(path).stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(Stdio::piped()).spawn()
        })?;
        let said = process.stderr.take().map(BufReader::new);
        let mut lines = said.into_iter().flat_map(BufRead::lines).map_while(Result::ok);
        let mut heard = Vec::new();
        let ready = lines.any(|line| {
            heard.push(line);
            heard.last().is_some_and(|line| line.starts_with("ready: "))
        });
        // Whatever it says later must find a reader.
        std::thread::spawn(move || lines.for_each(drop));
        let agent = Self { process, file };
        if ready { Ok(agent) } else { Err(io::Error::other(heard.join("\n"))) }
    }

    /// CPU time so far.
    fn cpu_s(&self) -> io::Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        // The name, which may have blanks, ends with the last bracket; 14 and 15 of all fields are user and system time.
        let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        Ok(fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND)
    }

    /// Resident memory.
    fn resident_bytes(&self) -> io::Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("no VmRSS"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.process.id().cast_signed());
        // It is our child and was not waited for, so the number is its.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.process.wait();
        let _ = self.file.path();
    }
}

pub(super) fn bench(count: usize, ui: &Ui) -> Result<Exit, Failure> {
    vmcc_agent::needs_root("bench kernel: needs root to load BPF programs").map_err(|e| agent_failure(&e))?;
    let failed = |e: io::Error| Failure::host(format!("agent: {e}"));
    let lab = |e: vmcc_lab::Error| Failure::host(chain(&e));
    let mut crowd = IdleConnections::new().map_err(lab)?;
    let algorithm = Algorithm::by_name(ALGORITHM).map_err(Failure::usage)?;
    let kernel_bytes = Loaded::load(algorithm, &Params::defaults(algorithm))
        .map_err(|e| Failure::host(chain(&e)))?
        .bytes_per_connection();
    let agent = Agent::start(&crowd).map_err(failed)?;
    ui.note(&format!("opening {count} MPTCP connections with two subflows each"));
    crowd.connect(algorithm.info().kernel_name, count).map_err(lab)?;
    ui.note(&format!("at rest for {} s", REST.as_secs()));
    let rest = at_rest(&agent).map_err(failed)?;
    let (before, scrapes) = (agent.cpu_s().map_err(failed)?, LOOKS * 4);
    let bytes = (0..scrapes).try_fold(0, |_, _| crowd.client().run(scrape)).map_err(failed)?;
    let scrape_s = (agent.cpu_s().map_err(failed)? - before) / f64::from(scrapes);
    let (status_s, top_s) = crowd.client().run(looks).map_err(|e| agent_failure(&e))?;
    let resident = agent.resident_bytes().map_err(failed)?;
    let document = json!({
        "engine": "kernel",
        "connections": count,
        "rest_cpu_share": rest,
        "resident_bytes": resident,
        "kernel_bytes_per_connection": kernel_bytes,
        "scrape_cpu_s": scrape_s,
        "scrape_bytes": bytes,
        "status_cpu_s": status_s,
        "top_cpu_s": top_s,
    });
    ui.answer(&document, || {
        format!(
            "{count} connections, guard and figures on\nagent at rest        {:.2} % of a core\nresident memory      {:.1} MiB\n\
             kernel state         {} B per connection\none scrape           {:.1} ms of CPU, {bytes} B\n\
             one `vmcc status`    {:.1} ms of CPU\none screen of `top`  {:.1} ms of CPU beside that",
            rest * 100.0,
            resident as f64 / f64::from(1 << 20),
            kernel_bytes.unwrap_or(0),
            scrape_s * 1e3,
            status_s * 1e3,
            top_s * 1e3
        )
    });
    Ok(Exit::Done)
}

/// The agent's share of a core while nothing happens.
fn at_rest(agent: &Agent) -> io::Result<f64> {
    let (began, before) = (Instant::now(), agent.cpu_s()?);
    std::thread::sleep(REST);
    Ok((agent.cpu_s()? - before) / began.elapsed().as_secs_f64())
}

/// Bytes of an answer.
fn scrape() -> io::Result<usize> {
    let at: SocketAddr = FIGURES.parse().map_err(io::Error::other)?;
    let mut socket = TcpStream::connect(at)?;
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: vmcc\r\n\r\n")?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer)
}

/// CPU seconds of a look at everything, and of what `vmcc top` does with it.
fn looks() -> Result<(f64, f64), vmcc_agent::Error> {
    let mut observer = Observer::open()?;
    let mut screen = top::Bench::new();
    let (mut status, mut shown) = (0.0, 0.0);
    for _ in 0..LOOKS {
        let begin = own_cpu_s();
        let found = observer.status()?;
        let looked = own_cpu_s();
        screen.show(found);
        status += looked - begin;
        shown += own_cpu_s() - looked;
    }
    Ok((status / f64::from(LOOKS), shown / f64::from(LOOKS)))
}

/// Of this thread.
fn own_cpu_s() -> f64 {
    let used = getrusage(UsageWho::RUSAGE_THREAD);
    used.map_or(0.0, |used| (used.user_time() + used.system_time()).num_microseconds() as f64 / 1e6)
}
