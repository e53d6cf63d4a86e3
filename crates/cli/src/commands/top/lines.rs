//! A connection as lines of text, as wide as there is room.

use super::row::{Row, plain, verdict};
use vmcc_agent::{ClosedPath, Path};

/// Kind of a line, for its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Connection,
    Path,
    Shares,
    Closed,
}

/// Beside the path: device, window, round-trip time, alpha, marked share, goodput, verdict, each after a blank.
const WIDTHS: [usize; 7] = [6, 5, 6, 5, 5, 7, 6];
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

fn beside() -> usize {
    WIDTHS.iter().map(|width| width + 1).sum()
}

/// The width of what is before the columns.
fn first(width: usize) -> usize {
    width.saturating_sub(beside()).max(20)
}

pub(crate) fn head(width: usize) -> String {
    let columns = ["DEVICE", "CWND", "RTT ms", "ALPHA", "ECE %", "Mbit/s", "FOUND"].map(str::to_owned);
    line(width, "CONNECTION / PATH", &columns)
}

/// Number of lines of a connection.
pub(crate) fn count(row: &Row) -> usize {
    1 + row.connection.paths.len() + row.connection.closed.len()
}

/// The connection, its paths, and those that were closed.
pub(crate) fn lines(row: &Row, history: &[f32], width: usize) -> Vec<(Kind, String)> {
    let mut lines = vec![(Kind::Connection, connection(row, history, width))];
    let figures = row.path_goodput_bps.iter().zip(&row.path_marked_share);
    let paths = row.connection.paths.iter().zip(figures);
    lines.extend(paths.map(|(found, (rate, marked))| (kind(found), path(found, *rate, *marked, width))));
    lines.extend(row.connection.closed.iter().map(|found| (Kind::Closed, closed(found, width))));
    lines
}

fn kind(path: &Path) -> Kind {
    if verdict(path) == "shares" { Kind::Shares } else { Kind::Path }
}

fn connection(row: &Row, history: &[f32], width: usize) -> String {
    let name = format!("{:<8} {} ", row.name(), row.connection.algorithm);
    let room = first(width).saturating_sub(name.chars().count());
    let columns = [
        String::new(),
        row.cwnd_pkt().to_string(),
        milliseconds(row.srtt_us()),
        share(row.highest(|path| path.alpha), 1.0, 3),
        share(row.marked_share(), 100.0, 1),
        megabits(row.goodput_bps),
        String::new(),
    ];
    line(width, &(name + &sparkline(history, room)), &columns)
}

fn path(path: &Path, rate: Option<f64>, marked: Option<f64>, width: usize) -> String {
    let columns = [
        path.device.clone().unwrap_or_else(|| "-".to_owned()),
        path.cwnd_pkt.to_string(),
        milliseconds(path.srtt_us),
        share(path.alpha, 1.0, 3),
        share(marked, 100.0, 1),
        megabits(rate),
        match path {
            Path { silent: true, .. } => "silent",
            Path { backup: true, .. } => "backup",
            path => verdict(path),
        }
        .to_owned(),
    ];
    line(width, &ends(path, first(width)), &columns)
}

/// Both ends, or as much of them as there is room for: ports tell less than addresses, the local one least.
fn ends(path: &Path, room: usize) -> String {
    let (local, remote) = (plain(path.local), plain(path.remote));
    let forms = [
        format!(" {local} -> {remote}"),
        format!(" {} -> {remote}", local.ip()),
        format!(" {} -> {}", local.ip(), remote.ip()),
    ];
    let [.., shortest] = &forms;
    forms.iter().find(|form| form.len() <= room).unwrap_or(shortest).clone()
}

fn closed(path: &ClosedPath, width: usize) -> String {
    let ends = format!(" {} -> {}", plain(path.local).ip(), plain(path.remote).ip());
    fit(&format!("{ends} closed {:.0} s ago: {}", path.seconds_ago, path.reason), width)
}

fn line(width: usize, begin: &str, columns: &[String; 7]) -> String {
    let room = first(width);
    let mut text = format!("{:<room$}", fit(begin, room));
    for (index, (column, width)) in columns.iter().zip(WIDTHS).enumerate() {
        let column = fit(column, width);
        // Words to the left, numbers to the right.
        text += &if index == 0 || index == 6 {
            format!(" {column:<width$}")
        } else {
            format!(" {column:>width$}")
        };
    }
    text
}

/// Truncates text to this many characters and marks the cut.
pub(crate) fn fit(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

fn milliseconds(us: u32) -> String {
    let ms = f64::from(us) / 1e3;
    if ms < 1000.0 { format!("{ms:.2}") } else { format!("{ms:.0}") }
}

fn share(share: Option<f64>, times: f64, digits: usize) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.digits$}", share * times))
}

fn megabits(bps: Option<f64>) -> String {
    bps.map_or_else(|| "-".to_owned(), |bps| format!("{:.1}", bps / 1e6))
}

/// The latest values, as high as their share of the highest.
fn sparkline(history: &[f32], room: usize) -> String {
    let latest = &history[history.len().saturating_sub(room)..];
    let highest = latest.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
    let bar = |value: &f32| BARS[((value / highest * 7.0).round() as usize).min(7)];
    latest.iter().map(bar).collect()
}

/// Findings about a connection's paths, in sentences.
pub(crate) fn details(row: &Row) -> Vec<String> {
    let path = |path: &Path| {
        let device = path.device.as_deref().unwrap_or("no device");
        let backup = if path.backup { ", backup" } else { "" };
        let silent = if path.silent { ", silent" } else { "" };
        let found = path.siblings.iter().map(super::finding).collect::<Vec<_>>().join("; ");
        let found = if found.is_empty() { "not compared".to_owned() } else { found };
        format!("{} {device}{backup}{silent}: {found}", plain(path.local))
    };
    let closed = |path: &ClosedPath| {
        format!("{}: closed {:.0} s ago: {}", plain(path.local), path.seconds_ago, path.reason)
    };
    let paths = row.connection.paths.iter().map(path);
    row.connection.closed.iter().map(closed).chain(paths).collect()
}
