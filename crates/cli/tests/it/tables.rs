//! Tables for people: width, choice of columns, color.

use crate::common::{folder, refused, vmcc};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use vmcc_testkit::terminal::Terminal;

const RUN: [&str; 4] = ["run", "two.toml", "--engine", "sim"];

fn printed(dir: &Path, columns: &str, extra: &[&str]) -> String {
    let run = vmcc(dir).args(RUN).args(extra).env("COLUMNS", columns).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

/// Lines of tables, which begin with the padding of their first column.
fn table_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.starts_with(' '))
}

/// Cells of tables that are not wrapped.
fn cells(text: &str) -> BTreeSet<&str> {
    table_lines(text)
        .flat_map(|line| line.split("  "))
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .collect()
}

#[test]
fn tables_fit_the_output_without_losing_numbers() {
    let dir = folder();
    let whole =
        printed(dir.path(), "1000", &["--columns", "goodput_bps,rtt_us.p50,rtt_us.p99,drops,retransmits"]);
    assert_eq!(whole.lines().filter(|line| line.starts_with(" reno")).count(), 1, "{whole}");
    for (columns, width) in [("80", 80), ("100", 100), ("150", 150), ("", 80), ("0", 80), ("wide", 80)] {
        let text = printed(dir.path(), columns, &[]);
        for line in table_lines(&text) {
            assert!(line.chars().count() <= width, "{columns}: {line}");
        }
        let (all, shown) = (cells(&whole), cells(&text));
        let figures: Vec<_> =
            all.iter().filter(|cell| cell.starts_with(|c: char| c.is_ascii_digit())).collect();
        assert!(figures.len() > 4 && figures.iter().all(|cell| shown.contains(*cell)), "{figures:?}: {text}");
        assert!(shown.contains("moves-data") && shown.contains("pass"), "{text}");
    }
}

#[test]
fn case_name_longer_than_the_line_is_wrapped() {
    let dir = folder();
    let title = "host 擁塞 of the far rack ".repeat(8);
    let variants = format!(
        "[[sweep.variant]]\nname = \"{title}\"\ncc = \"reno\"\n[[sweep.variant]]\nname = \"short\"\ncc = \"lia\""
    );
    let scenario = crate::common::SCENARIO.replace("[sweep]\ncc = [\"reno\", \"lia\"]", &variants);
    std::fs::write(dir.path().join("two.toml"), scenario.replace(", cc='lia'", "")).unwrap();
    let text = printed(dir.path(), "80", &[]);
    assert!(text.matches('擁').count() >= 8, "{text}");
    let columns =
        |line: &str| line.chars().map(|c| if c.is_ascii() || c == '±' { 1 } else { 2 }).sum::<usize>();
    for line in table_lines(&text) {
        assert!(columns(line) <= 80, "{line}");
    }
}

#[test]
fn case_table_columns_are_selectable() {
    let dir = folder();
    let text = printed(dir.path(), "200", &["--columns", "goodput_bps,paths.a.rtt_us.min"]);
    let header: Vec<&str> = table_lines(&text).next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["cc", "goodput", "paths.a.rtt_us.min"], "{text}");
    let message = refused(dir.path(), &[&RUN[..], &["--columns", "goodputs_bps"]].concat(), 2);
    assert!(
        message.contains("no metric `goodputs_bps` in two") && message.contains("`goodput_bps`"),
        "{message}"
    );
}

/// Probes are none of this run, and cubic is not DCTCP: the names are known, and nothing has a value.
#[test]
fn chosen_metrics_without_a_value_are_named_with_those_that_have_one() {
    let dir = folder();
    let chosen = ["--columns", "probe_rtt_us.p50,goodput_bps,cpu_s_per_gb,paths.a.probe_rtt_us"];
    let run = vmcc(dir.path()).args(RUN).args(chosen).env("COLUMNS", "200").output().unwrap();
    let (text, said) = (String::from_utf8(run.stdout).unwrap(), String::from_utf8(run.stderr).unwrap());
    assert!(run.status.success() && text.contains("goodput"), "{text}{said}");
    let warned = |missing: &str| {
        let line = said.lines().find(|line| line.contains(&format!("no run measured {missing};")));
        line.unwrap_or_else(|| panic!("{missing}: {said}")).to_owned()
    };
    let of_run = warned("`probe_rtt_us.p50`, `cpu_s_per_gb`");
    assert!(of_run.contains(" goodput_bps,") && of_run.contains(" rtt_us,"), "{of_run}");
    let of_path = warned("`paths.a.probe_rtt_us`");
    assert!(of_path.contains(" paths.a.rtt_us,") && !of_path.contains(" rtt_us,"), "{of_path}");
    let run = vmcc(dir.path()).args(RUN).args(["--columns", "goodput_bps"]).output().unwrap();
    assert!(!String::from_utf8(run.stderr).unwrap().contains("--columns"));
}

/// Sentence over both cases, below the tables.
#[test]
fn sentences_fit_the_output() {
    let dir = folder();
    for (columns, width) in [("60", 60), ("", 80)] {
        let text = printed(dir.path(), columns, &[]);
        let (_, after) = text.split_once("lia carried ").unwrap_or_else(|| panic!("{text}"));
        let (sentence, _) = after.split_once("\n\n").unwrap();
        assert!(sentence.lines().count() > 1 && sentence.ends_with('.'), "{text}");
        assert!(sentence.lines().all(|line| line.chars().count() <= width), "{width}: {sentence}");
    }
}

#[test]
fn verdicts_are_colored_on_a_terminal_unless_no_color_is_set() {
    let dir = folder();
    let on_terminal = |no_color: &str| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("vmcc"));
        // A terminal starts it from this program's folder.
        let scenario = dir.path().join("two.toml");
        command.args(["run", scenario.to_str().unwrap(), "--engine", "sim", "--quiet", "--out"]);
        command.arg(dir.path().join(format!("out{no_color}"))).env("NO_COLOR", no_color).env("COLUMNS", "");
        let mut terminal = Terminal::start(&command, 50, 90);
        let lines =
            terminal.shows("the whole answer", |lines| lines.iter().any(|l| l.starts_with("Report: ")));
        assert!(terminal.ends().success());
        assert!(lines.iter().any(|line| line.starts_with(" moves-data")), "{lines:#?}");
        terminal.color_of("pass")
    };
    assert_eq!((on_terminal(""), on_terminal("1")), (Some(2), None));
}
