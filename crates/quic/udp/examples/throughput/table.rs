//! Results, for people and for programs.

use crate::options::{Case, Options};
use crate::process::Usage;
use std::fmt::Write;

/// A case and its figures, one of each for every round.
pub(crate) struct Row {
    pub(crate) case: Case,
    /// Gbit/s of payload by the clock.
    rate: Vec<f64>,
    /// Gbit of payload for each second of processor: of the sender, of the receiver, of the one that used more.
    sender: Vec<f64>,
    receiver: Vec<f64>,
    busier: Vec<f64>,
    system: Vec<f64>,
    /// Reasons of transfers that were not completed.
    failures: Vec<String>,
}

impl Row {
    pub(crate) fn new(case: Case) -> Row {
        let none = Vec::new;
        Row {
            case,
            rate: none(),
            sender: none(),
            receiver: none(),
            busier: none(),
            system: none(),
            failures: Vec::new(),
        }
    }

    /// A transfer came to nothing; the others still count.
    pub(crate) fn fail(&mut self, why: &str) {
        eprintln!("{}, {} paths: {why}", self.case.library, self.case.paths());
        self.failures.push(why.to_owned());
    }

    pub(crate) fn add(&mut self, sent: &Usage, received: &Usage) {
        let gbit = self.case.bytes() as f64 * 8e-9;
        self.rate.push(gbit / sent.wall);
        self.sender.push(gbit / sent.cpu());
        self.receiver.push(gbit / received.cpu());
        self.busier.push(gbit / sent.cpu().max(received.cpu()));
        self.system.push((sent.system + received.system) / (sent.cpu() + received.cpu()));
    }

    fn columns(&self) -> [(&'static str, &[f64]); 5] {
        [
            ("per_core", &self.busier),
            ("sender", &self.sender),
            ("receiver", &self.receiver),
            ("clock", &self.rate),
            ("system_share", &self.system),
        ]
    }
}

/// Least, median, most.
fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |i: usize| sorted.get(i).copied().unwrap_or(f64::NAN);
    let middle = (at(sorted.len().saturating_sub(1) / 2) + at(sorted.len() / 2)) / 2.0;
    (at(0), middle, at(sorted.len().saturating_sub(1)))
}

fn machine() -> String {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cpus = info.lines().filter(|line| line.starts_with("processor")).count();
    let (kernel, load) = (read("/proc/sys/kernel/osrelease"), read("/proc/loadavg"));
    let load = load.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    format!("{cpus} x {}, Linux {}, load {load}", model.unwrap_or("processor"), kernel.trim())
}

fn versions() -> String {
    let lock = include_str!("../../../../../Cargo.lock");
    let of = |name: &str| {
        let (_, rest) = lock.split_once(&format!("\nname = \"{name}\"\nversion = \""))?;
        rest.split_once('"').map(|found| format!("{name} {}", found.0))
    };
    let names = ["quinn", "quinn-proto", "noq", "noq-proto", "rustls", "aws-lc-rs", "tokio"];
    names.into_iter().filter_map(of).collect::<Vec<_>>().join(", ")
}

pub(crate) fn markdown(options: &Options, rows: &[Row]) -> String {
    let mut out = format!(
        "{}; {}.\n{} GiB each, {} rounds; median (least to most).\n\n",
        machine(),
        versions(),
        options.gib,
        options.rounds
    );
    out += "| offload | paths | | Gbit/s per core | sender alone | receiver alone | Gbit/s by the clock | of it in the kernel |\n";
    out += "|---|---|---|---|---|---|---|---|\n";
    for row in rows {
        let offload = if row.case.offload { "on" } else { "off" };
        let _ = write!(out, "| {offload} | {} | {} |", row.case.paths(), row.case.library);
        for (name, values) in row.columns() {
            let (least, middle, most) = spread(values);
            let _ = match name {
                "per_core" => write!(out, " **{middle:.2}** ({least:.2} to {most:.2}) |"),
                "system_share" => write!(out, " {:.0} % |", middle * 100.0),
                _ => write!(out, " {middle:.2} ({least:.2} to {most:.2}) |"),
            };
        }
        if !row.failures.is_empty() {
            let _ = write!(out, " {} of {} not completed |", row.failures.len(), options.rounds);
        }
        out.push('\n');
    }
    out
}

pub(crate) fn json(options: &Options, rows: &[Row]) -> String {
    let of = |row: &Row| {
        let figures = row.columns().map(|(name, values)| format!("\"{name}\":{values:?}")).join(",");
        let Case { library, offload, .. } = &row.case;
        format!(
            "{{\"library\":\"{library}\",\"offload\":{offload},\"paths\":{},\"failed\":{},{figures}}}",
            row.case.paths(),
            row.failures.len()
        )
    };
    let rows = rows.iter().map(of).collect::<Vec<_>>().join(",\n");
    format!(
        "{{\"machine\":\"{}\",\"versions\":\"{}\",\"gib\":{},\"unit\":\"Gbit/s\",\"rows\":[\n{rows}\n]}}\n",
        machine(),
        versions(),
        options.gib
    )
}
