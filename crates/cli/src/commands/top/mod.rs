//! `vmcc top`: connections and their paths, live.
//!
//! | | |
//! |---|---|
//! | `rates` | what is carried per second, from look to look |
//! | `model` | which connections are shown, in which order |
//! | `lines` | a connection as text |
//! | `screen` | what is on the screen; keys |
//! | `look` | looks at the host, and asks the agent, in threads of their own |
//! | `live` | what is heard: keys, looks, signals |
//! | `tty` | the terminal |

mod lines;
mod live;
mod look;
mod model;
mod rates;
mod row;
mod screen;
#[cfg(test)]
mod tests;
mod tty;

use super::{programs, taken};
use crate::args::{SortKey, TopOptions};
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::ui::Ui;
use live::Heard;
use look::{Look, Looker};
use model::Model;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use row::Row;
use screen::{Above, Screen};
use serde_json::json;
use std::io::{self, IsTerminal};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use vmcc_agent::{HostStatus, Sibling, Verdict};
use vmcc_cc::SHARING_PATHS;

/// The width of what is printed and not shown.
const PRINTED: usize = 120;

pub(crate) fn top(options: &TopOptions, ui: &Ui) -> Result<Exit, Failure> {
    if options.once { once(options, ui) } else { live(options, ui) }
}

fn interval(options: &TopOptions) -> Duration {
    Duration::from_secs_f64(options.interval.as_secs_f64())
}

fn live(options: &TopOptions, ui: &Ui) -> Result<Exit, Failure> {
    if ui.json() {
        return Err(
            Failure::usage("top: a live view is no JSON").help("add --once, or use `vmcc status --json`")
        );
    }
    if !io::stdout().is_terminal() || std::env::var_os("TERM").is_none_or(|term| term == "dumb") {
        return Err(Failure::usage("top: stdout is no terminal that can be drawn on")
            .help("run it in a terminal, or add --once to print what it would show"));
    }
    tty::hold_signals().map_err(|e| Failure::host(format!("signals: cannot hold them: {e}")))?;
    let (tell, heard) = channel();
    let looks = tell.clone();
    let looker = Looker::start(move |look| looks.send(Heard::Seen(Box::new(look))).is_ok());
    looker.ask();
    let began = Instant::now();
    let mut screen =
        Screen::new(Model::new(options.sort, &options.filter), options.interval.to_string(), ui.color());
    // Before the screen is taken: what is wrong is said where it can be read.
    if let Ok(Heard::Seen(first)) = heard.recv() {
        let status = first.status?;
        take(&mut screen, status, first.at.saturating_duration_since(began));
        screen.above.silent = first.silent;
    }
    let take = |screen: &mut Screen, look: Look| {
        match look.status {
            Ok(status) => take(screen, status, look.at.saturating_duration_since(began)),
            Err(failure) => screen.above.problem = Some(failure.message),
        }
        screen.above.silent = look.silent;
    };
    live::run(&mut screen, interval(options), &|| looker.ask(), &take, (tell, heard))
}

fn take(screen: &mut Screen, status: HostStatus, at: Duration) {
    screen.above = Above {
        agent: agent(status.agent.as_ref()),
        algorithms: algorithms(&status),
        problem: None,
        silent: None,
    };
    screen.model.update(status.connections, at);
}

fn agent(view: Option<&serde_json::Value>) -> String {
    let Some(view) = view else { return "no agent runs".to_owned() };
    let problems = view["problems"].as_array().map_or(0, Vec::len);
    let guard = if view["guard"] == true { "on" } else { "off" };
    let problems = if problems > 0 { format!(", {problems} PROBLEMS: vmcc status") } else { String::new() };
    format!("agent {}, guard {guard}{problems}", view["pid"])
}

fn algorithms(status: &HostStatus) -> String {
    let of = |one: &vmcc_bpf::Status| {
        let sockets = status.sockets.iter().filter(|s| s.algorithm == one.kernel_name).count();
        format!("{} {sockets}", one.kernel_name)
    };
    let ports = match status.ports.len() {
        0 => String::new(),
        some => format!("; ports served: {some}"),
    };
    match status.algorithms.as_slice() {
        [] if programs::are_all(status) => "only programs in user space are seen".to_owned(),
        [] => "no algorithm is loaded; `vmcc up` loads them".to_owned(),
        some => {
            let off = status.agent.as_ref().map_or(&serde_json::Value::Null, |view| &view["off"]);
            let taken = taken::short(&status.taken, off);
            format!("sockets here: {}{ports}{taken}", some.iter().map(of).collect::<Vec<_>>().join(", "))
        }
    }
}

fn once(options: &TopOptions, ui: &Ui) -> Result<Exit, Failure> {
    let stop = interrupt::listen()?;
    let (tell, seen) = channel();
    let looker = Looker::start(move |look| tell.send(look).is_ok());
    let mut model = Model::new(options.sort, &options.filter);
    let began = Instant::now();
    let look = |model: &mut Model| {
        looker.ask();
        let Ok(look) = seen.recv() else { return Ok(()) };
        model.update(look.status?.connections, look.at.saturating_duration_since(began));
        Ok::<_, Failure>(())
    };
    look(&mut model)?;
    if !interrupt::wait(interval(options), stop) {
        return Ok(Exit::Interrupted);
    }
    look(&mut model)?;
    let rows: Vec<&Row> = model.rows().collect();
    ui.answer(&json!({ "connections": rows }), || text(&model));
    Ok(Exit::Done)
}

fn text(model: &Model) -> String {
    let rows = model.rows().flat_map(|row| lines::lines(row, model.history(row), PRINTED));
    let lines = std::iter::once(lines::head(PRINTED)).chain(rows.map(|(_, text)| text));
    lines.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// In words.
fn finding(sibling: &Sibling) -> String {
    let (other, evidence) = (row::plain(sibling.local), sibling.finding.evidence);
    let percent = evidence.abs() * 100.0;
    match sibling.finding.verdict {
        Verdict::Shares => format!("shares a bottleneck with {other}"),
        Verdict::Apart => format!("apart from {other}"),
        Verdict::NotCompared => {
            format!("not compared with {other}: only the first {SHARING_PATHS} paths are")
        }
        Verdict::Unknown if evidence == 0.0 => format!("nothing known yet with {other}"),
        Verdict::Unknown if evidence > 0.0 => format!("{percent:.0} % of what says it shares with {other}"),
        Verdict::Unknown => format!("{percent:.0} % of what says it is apart from {other}"),
    }
}

/// Everything that a look becomes, drawn into memory: for who measures it.
pub(crate) struct Bench {
    screen: Screen,
    terminal: Terminal<TestBackend>,
    began: Instant,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let screen = Screen::new(Model::new(SortKey::Goodput, ""), "1s".to_owned(), true);
        let Ok(terminal) = Terminal::new(TestBackend::new(80, 24));
        Self { screen, terminal, began: Instant::now() }
    }

    pub(crate) fn show(&mut self, status: HostStatus) {
        take(&mut self.screen, status, self.began.elapsed());
        let Ok(_) = self.terminal.draw(|frame| self.screen.draw(frame));
    }
}
