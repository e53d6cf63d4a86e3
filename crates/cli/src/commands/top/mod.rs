//! `vmcc top`: connections and their paths, live.
//!
//! | | |
//! |---|---|
//! | `rates` | what is carried per second, from look to look |
//! | `model` | which connections are shown, in which order |
//! | `lines` | a connection as text |
//! | `screen` | what is on the screen; keys |
//! | `live` | the terminal |

mod lines;
mod live;
mod model;
mod rates;
mod screen;
#[cfg(test)]
mod tests;

use crate::args::{SortKey, TopOptions};
use crate::failure::{Exit, Failure, agent_failure};
use crate::interrupt;
use crate::ui::Ui;
use model::{Model, Row};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use screen::{Above, Screen};
use serde_json::json;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use vmcc_agent::{HostStatus, Observer, Sibling, Verdict};

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
    let mut observer = Observer::open().map_err(|e| agent_failure(&e))?;
    // Before the screen is taken: what is wrong is said where it can be read.
    let first = observer.status().map_err(|e| agent_failure(&e))?;
    let mut screen =
        Screen::new(Model::new(options.sort, &options.filter), options.interval.to_string(), ui.color());
    let began = Instant::now();
    take(&mut screen, first, began.elapsed());
    let mut look = |screen: &mut Screen| match observer.status() {
        Ok(status) => take(screen, status, began.elapsed()),
        Err(error) => screen.above.problem = Some(error.to_string()),
    };
    live::run(&mut screen, interval(options), &mut look)
}

fn take(screen: &mut Screen, status: HostStatus, at: Duration) {
    screen.above =
        Above { agent: agent(status.agent.as_ref()), algorithms: algorithms(&status), problem: None };
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
    let of = |one: &vmcc_host::Status| {
        let sockets = status.sockets.iter().filter(|s| s.algorithm == one.kernel_name).count();
        format!("{} {sockets}", one.kernel_name)
    };
    let ports = match status.ports.len() {
        0 => String::new(),
        some => format!("; ports served: {some}"),
    };
    match status.algorithms.as_slice() {
        [] => "no algorithm is loaded; `vmcc up` loads them".to_owned(),
        some => format!("sockets here: {}{ports}", some.iter().map(of).collect::<Vec<_>>().join(", ")),
    }
}

fn once(options: &TopOptions, ui: &Ui) -> Result<Exit, Failure> {
    let stop = interrupt::listen()?;
    let mut observer = Observer::open().map_err(|e| agent_failure(&e))?;
    let mut model = Model::new(options.sort, &options.filter);
    let began = Instant::now();
    let mut look = |model: &mut Model| {
        let status = observer.status().map_err(|e| agent_failure(&e))?;
        model.update(status.connections, began.elapsed());
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
    let (other, evidence) = (sibling.local, sibling.finding.evidence);
    let percent = evidence.abs() * 100.0;
    match sibling.finding.verdict {
        Verdict::Shares => format!("shares a bottleneck with {other}"),
        Verdict::Apart => format!("apart from {other}"),
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
