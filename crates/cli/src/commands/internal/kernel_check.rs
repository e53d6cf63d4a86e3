//! `vmcc internal kernel-check`: what this kernel can do with each algorithm.

use crate::failure::{Exit, Failure, chain};
use crate::ui::Ui;
use serde::Serialize;
use serde_json::json;
use vmcc_cc::Algorithm;
use vmcc_lab::bench::{Checked, check as check_one};

#[derive(Serialize)]
struct Line {
    algorithm: &'static str,
    /// `ok`, `fail` or `unsupported`.
    result: &'static str,
    detail: String,
}

pub(super) fn check(names: &[String], ui: &Ui) -> Result<Exit, Failure> {
    let algorithms: Vec<Algorithm> = match names {
        [] => Algorithm::all().collect(),
        _ => names.iter().map(|n| Algorithm::by_name(n)).collect::<Result<_, _>>().map_err(Failure::usage)?,
    };
    let lines: Vec<Line> = algorithms.into_iter().map(line).collect();
    ui.answer(&json!({ "algorithms": lines }), || {
        let line = |l: &Line| format!("{}\t{}\t{}", l.algorithm, l.result, l.detail);
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    let failed = lines.iter().any(|l| l.result == "fail");
    Ok(if failed { Exit::CheckFailed } else { Exit::Done })
}

fn line(algorithm: Algorithm) -> Line {
    let (result, detail) = match check_one(algorithm) {
        Checked::Carried { bytes, seconds } => {
            let rate = bytes as f64 * 8.0 / seconds / 1e6;
            let carried = bytes / 1_000_000;
            ("ok", format!("{carried} MB over MPTCP, SHA-256 equal, {rate:.0} Mbit/s"))
        }
        Checked::Failed(error) => ("fail", chain(&error)),
        Checked::NameInUse(error) => ("fail", chain(&error)),
        Checked::Unsupported(error) => ("unsupported", chain(&error)),
    };
    Line { algorithm: algorithm.name(), result, detail: one_line(&detail) }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
