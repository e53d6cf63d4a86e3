//! `vmcc top` on a real terminal, of real connections.

use crate::kept::{Agent, until, within};
use crate::pair::{FILE, Pair};
use nix::sys::signal::Signal;
use serde_json::Value;
use vmcc_testkit::terminal::Terminal;

fn top(pair: &Pair, arguments: &[&str]) -> Terminal {
    let all: Vec<&str> = ["top"].iter().chain(arguments).copied().collect();
    Terminal::start(&within(&pair.here, &all), 24, 80)
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// True if a path of the document is a line of the screen: both ends (the local port only where there is room), the device
/// and figures of the same kind. Figures that change between looks are compared by their order of magnitude.
fn is_shown(path: &Value, lines: &[String]) -> bool {
    let text = |key: &str| path[key].as_str().unwrap_or_default().to_owned();
    let (local, remote) = (text("local"), text("remote"));
    let ip = local.rsplit_once(':').unwrap().0.to_owned();
    let line = lines
        .iter()
        .map(|line| words(line))
        .find(|words| words.len() >= 10 && (words[0] == local || words[0] == ip) && words[2] == remote);
    let Some(line) = line else { return false };
    let number = |at: usize| line[at].parse::<f64>().unwrap_or(f64::NAN);
    let near = |shown: f64, known: f64| shown <= known * 20.0 + 1.0 && known <= shown * 20.0 + 1.0;
    line[3] == text("device")
        && near(number(4), path["cwnd_pkt"].as_f64().unwrap())
        && near(number(5), path["srtt_us"].as_f64().unwrap() / 1e3)
        && (0.0..=1.0).contains(&number(6))
        && (0.0..=100.0).contains(&number(7))
        && number(8) > 0.0
}

#[test]
fn root_top_matches_status_and_follows_it() {
    let pair = Pair::new();
    let agent = Agent::start(&pair.here, &pair.file(FILE));
    let _server = pair.server();
    let _client = pair.client(60);
    let carries = |path: &Value| path["bytes_acked"].as_u64() > Some(1_000_000);
    let both = |c: &Value| c["paths"].as_array().is_some_and(|p| p.len() == 2 && p.iter().all(carries));
    let found = || pair.status()["connections"].as_array().unwrap().iter().find(|c| both(c)).cloned();
    until("a connection over both paths", || found().is_some());
    let connection = found().unwrap();
    let token = format!("{:08x}", connection["token"].as_u64().unwrap());

    let paths = connection["paths"].as_array().unwrap();
    // Its algorithm compares them; on two links that are not shared it finds at most that.
    for (path, other) in [(0, 1), (1, 0)] {
        let siblings = paths[path]["siblings"].as_array().unwrap();
        assert_eq!((siblings.len(), &siblings[0]["local"]), (1, &paths[other]["local"]), "{connection}");
        assert!(["apart", "unknown"].contains(&siblings[0]["verdict"].as_str().unwrap()), "{connection}");
    }

    let mut top = top(&pair, &["--interval", "500ms"]);
    let lines =
        top.shows("the paths as status has them", |lines| paths.iter().all(|path| is_shown(path, lines)));
    assert!(lines[0].contains(&format!("agent {}, guard off", agent.pid())), "{lines:#?}");
    // By goodput, so the one that carries data comes before the one that controls.
    assert_eq!(words(&lines[4])[..2], [token.as_str(), "mp_vmcc"], "{lines:#?}");
    let rate = |lines: &[String], line: usize, at: usize| words(&lines[line])[at].parse::<f64>().unwrap();
    let (first, second) = (rate(&lines, 5, 8), rate(&lines, 6, 8));
    let whole = words(&lines[4]).last().unwrap().parse::<f64>().unwrap();
    assert!((whole - first - second).abs() < 0.3, "{lines:#?}");

    top.press("/p1\r");
    top.shows("a filter that both connections have", |lines| lines[2].contains("2 with `p1`"));
    top.press("/nobody\r");
    top.shows("a filter that none has", |lines| lines[2].contains("0 with `nobody`") && lines[4].is_empty());
    top.press("\x1b");
    top.shows("all again", |lines| lines[4].starts_with(&token));
    top.press(" ");
    let paused = top.shows("a pause", |lines| lines[2].starts_with("PAUSED"));
    top.resize(40, 140);
    let wide = top.shows("another size", |lines| {
        lines.len() == 40 && words(&lines[3]).last() == Some(&"FOUND") && lines[39].starts_with("q quit")
    });
    assert_eq!(words(&wide[5])[4..], words(&paused[5])[4..], "figures stand still: {wide:#?}");
    top.press(" q");
    assert_eq!(top.ends().code(), Some(0));
    assert!(top.is_as_before());

    let once = within(&pair.here, &["top", "--once", "--json", "--filter", &token]).output().unwrap();
    let once: Value = serde_json::from_slice(&once.stdout).unwrap();
    let seen = &once["connections"][0];
    assert_eq!(
        (seen["token"].as_u64(), once["connections"].as_array().unwrap().len()),
        (connection["token"].as_u64(), 1)
    );
    assert!(seen["goodput_bps"].as_f64() > Some(1e6) && seen["path_goodput_bps"][1].is_f64(), "{seen}");
}

#[test]
fn root_top_restores_the_terminal_on_every_exit() {
    let pair = Pair::new();
    let shown = |lines: &[String]| {
        lines[0].starts_with("vmcc top: 0 connections") && lines[0].contains("no agent runs")
    };
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut top = top(&pair, &[]);
        top.shows("no connections", shown);
        assert!(!top.is_as_before(), "it is a screen of its own");
        top.signal(signal);
        assert_eq!(top.ends().code(), Some(130), "{signal}");
        assert!(top.is_as_before(), "{signal}");
    }
    let mut top = top(&pair, &[]);
    top.shows("no connections", shown);
    top.press("\x03");
    assert_eq!(top.ends().code(), Some(130));
    assert!(top.is_as_before());
}

#[test]
fn root_top_exits_on_hangup() {
    let pair = Pair::new();
    // A session leader that loses its terminal gets a signal; any other process detects it.
    for start in [Terminal::start, Terminal::start_unsignalled] {
        let mut top = start(&within(&pair.here, &["top"]), 24, 80);
        top.shows("no connections", |lines| lines[0].starts_with("vmcc top: 0 connections"));
        top.close();
        assert_eq!(top.ends().code(), Some(130));
    }
}

#[test]
fn root_top_suspends_and_resumes() {
    let pair = Pair::new();
    let mut shell = std::process::Command::new("bash");
    shell.args(["--norc", "--noprofile", "-i"]).env("PS1", "prompt> ");
    let mut terminal = Terminal::start(&shell, 24, 80);
    let prompt =
        |lines: &[String]| lines.iter().rfind(|line| !line.is_empty()).is_some_and(|line| line == "prompt>");
    let top =
        |lines: &[String]| lines[0].starts_with("vmcc top: 0 connections") && lines[23].starts_with("q quit");
    terminal.shows("a prompt", prompt);
    let command = within(&pair.here, &["top"]);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_str().unwrap()).collect();
    terminal.press(&format!("{}\r", words.join(" ")));
    terminal.shows("its screen", top);
    for by_key in [true, false] {
        if by_key {
            terminal.press("\x1a");
        } else {
            terminal.signal_foreground(Signal::SIGTSTP);
        }
        terminal.shows("the shell", prompt);
        assert!(terminal.shows_usual_screen(), "by a key: {by_key}");
        terminal.press("echo a$((1 + 1))b\r");
        terminal.shows("an echo, and what it echoes", |lines| lines.iter().any(|line| line == "a2b"));
        terminal.press("fg\r");
        terminal.shows("its screen again", top);
    }
    // Stopped by what it cannot hear of, and continued: the shell has shown something meanwhile.
    terminal.signal_foreground(Signal::SIGSTOP);
    terminal.shows("that it is stopped", |lines| lines.iter().any(|line| line.contains("Stopped")));
    terminal.press("fg\r");
    terminal.shows("its screen again", top);
    terminal.press("q");
    terminal.shows("the shell", prompt);
    terminal.press("exit\r");
    terminal.ends();
}

#[test]
fn root_top_survives_a_stopped_agent() {
    let pair = Pair::new();
    let agent = Agent::start(&pair.here, &pair.file(FILE));
    let mut top = top(&pair, &["--interval", "100ms"]);
    let answers = format!("agent {}, guard off", agent.pid());
    let silent = |lines: &[String]| lines[0].contains("agent does not answer since ");
    top.shows("the agent", |lines| lines[0].contains(&answers));
    agent.signal(Signal::SIGSTOP);
    top.shows("that it does not answer", silent);
    top.press("/nobody\r");
    top.shows("keys", |lines| lines[2].contains("0 with `nobody`"));
    // One that begins now says so, too.
    let mut late = self::top(&pair, &["--interval", "100ms"]);
    late.shows("that it does not answer", silent);
    agent.signal(Signal::SIGCONT);
    for top in [&mut top, &mut late] {
        top.shows("the agent again", |lines| lines[0].contains(&answers));
        top.press("q");
        assert_eq!(top.ends().code(), Some(0));
        assert!(top.is_as_before());
    }
}

#[test]
fn root_top_errors_name_their_cause() {
    let pair = Pair::new();
    let said = |arguments: &[&str]| {
        let output = within(&pair.here, arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, message) = said(&["top"]);
    assert!(
        code == Some(2) && message.contains("stdout is no terminal") && message.contains("--once"),
        "{message}"
    );
    let (code, message) = said(&["top", "--json"]);
    assert!(code == Some(2) && message.contains("vmcc status --json"), "{message}");
    assert_eq!(said(&["top", "--interval", "1ms"]).0, Some(2));
    assert_eq!(said(&["top", "--once", "--interval", "100ms"]).0, Some(0));
    let powerless = ["setpriv", "--reuid=65534", "--clear-groups", env!("CARGO_BIN_EXE_vmcc"), "top"];
    let mut command = std::process::Command::new(powerless[0]);
    command.args(&powerless[1..]);
    let mut refused = Terminal::start(&command, 24, 80);
    refused.shows("what is missing", |lines| lines.iter().any(|line| line.contains("root")));
    assert_eq!(refused.ends().code(), Some(3));
    assert!(refused.is_as_before());
}
