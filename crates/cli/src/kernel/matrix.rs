//! `vmcc internal kernel-check`: what this kernel can do with each algorithm.

use crate::failure::{Exit, Failure, chain};
use crate::kernel::veth::Veth;
use crate::ui::Ui;
use serde::Serialize;
use serde_json::json;
use std::time::Duration;
use vmcc_cc::{Algorithm, Params};
use vmcc_host::{LoadError, Loaded};

/// Long enough for both subflows to join and leave slow start, on an emulated machine as well.
const DURATION: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Line {
    algorithm: &'static str,
    /// `ok`, `fail` or `unsupported`.
    result: &'static str,
    detail: String,
}

pub(crate) fn check(names: &[String], ui: &Ui) -> Result<Exit, Failure> {
    let algorithms: Vec<Algorithm> = match names {
        [] => Algorithm::all().collect(),
        _ => names.iter().map(|n| Algorithm::by_name(n)).collect::<Result<_, _>>().map_err(Failure::usage)?,
    };
    let lines: Vec<Line> = algorithms.into_iter().map(check_one).collect();
    ui.answer(&json!({ "algorithms": lines }), || {
        let line = |l: &Line| format!("{}\t{}\t{}", l.algorithm, l.result, l.detail);
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    let failed = lines.iter().any(|l| l.result == "fail");
    Ok(if failed { Exit::CheckFailed } else { Exit::Done })
}

fn check_one(algorithm: Algorithm) -> Line {
    let (result, detail) = match Loaded::load(algorithm, &Params::defaults(algorithm)) {
        Err(error) => (if is_a_failure(&error) { "fail" } else { "unsupported" }, one_line(&chain(&error))),
        Ok(loaded) => match carry(loaded.kernel_name()) {
            Ok(detail) => ("ok", detail),
            Err(error) => ("fail", one_line(&error)),
        },
    };
    Line { algorithm: algorithm.name(), result, detail }
}

/// A name that is taken says nothing about the kernel; everything else is what the kernel lacks or refuses.
fn is_a_failure(error: &LoadError) -> bool {
    matches!(error, LoadError::AlreadyRegistered { .. })
}

fn carry(kernel_name: &str) -> Result<String, String> {
    let mut veth = Veth::new(2)?;
    veth.select(kernel_name)?;
    let done = veth.transfer(DURATION)?;
    let rate = done.bytes as f64 * 8.0 / done.seconds / 1e6;
    Ok(format!("{} MB over MPTCP, SHA-256 equal, {rate:.0} Mbit/s", done.bytes / 1_000_000))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
