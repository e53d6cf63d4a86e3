//! Connections that a client of what holds objects keeps: a thread each, which asks for one object at a time, in the order in which they were
//! wanted, as clients of memcached do. It reports in lines: `opened` with a connection's number and port, and for each object the
//! connection's number, the object, when it was wanted, when it was asked for and how long after it was wanted it was there (`-`: never).

use super::http_client::{Plan, STACK_BYTES, connect, exchange, is_late, port_of, run_arrivals};
use super::in_process::exit_with;
use super::object_store::key;
use super::verify::{ExpectedResponse, request};
use super::{Connection, Fetched, Interval, ReportError};
use crate::process::Ended;
use std::fmt::Write as _;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_units::Bytes;

/// An object that somebody wants, and since when.
struct Wanted {
    object: usize,
    at: Duration,
}

/// Line of a connection's report, or its failure.
type Line = io::Result<String>;

/// Opens this many connections, and begins fetches on them in turn until their time is over.
pub(super) fn fetch_persistent(plan: Plan, count: u32, end: &AtomicBool) -> Ended {
    let plan = Arc::new(plan);
    let (tell, told) = channel();
    let begun = Instant::now();
    let opened: io::Result<Vec<Sender<Wanted>>> =
        (0..count).map(|number| open(&plan, number, begun, &tell)).collect();
    drop(tell);
    let mut fault = opened.and_then(|clients| {
        let mut turns = clients.iter().cycle();
        let arrived = run_arrivals(&plan, begun, end, |object, at| {
            // One whose connection failed has told so.
            let _ = turns.next().map(|client| client.send(Wanted { object, at }));
            Ok(())
        });
        arrived.map_or(Ok(()), Err)
    });
    let mut text = String::new();
    for line in told {
        match line {
            Ok(line) => text.push_str(&line),
            Err(e) => fault = fault.and(Err(e)),
        }
    }
    exit_with(text, fault.err())
}

/// A connection, and where it takes what is wanted from.
fn open(plan: &Arc<Plan>, number: u32, begun: Instant, tell: &Sender<Line>) -> io::Result<Sender<Wanted>> {
    let (want, wanted) = channel();
    let (plan, tell) = (Arc::clone(plan), tell.clone());
    let serve = move || {
        if let Err(e) = serve(&plan, number, begun, (&wanted, &tell)) {
            // Nobody listens any more when the run was given up.
            let _ = tell.send(Err(e));
        }
    };
    let started = thread::Builder::new().stack_size(STACK_BYTES).spawn(serve);
    started.map_err(|e| io::Error::other(format!("a thread for a connection: {e}")))?;
    Ok(want)
}

fn serve(
    plan: &Plan,
    number: u32,
    begun: Instant,
    (wanted, tell): (&Receiver<Wanted>, &Sender<Line>),
) -> io::Result<()> {
    let until = begun + plan.lasts;
    let socket = match connect(plan, until) {
        Ok(socket) => Some(socket),
        Err(e) if is_late(&e) => None,
        Err(e) => return Err(io::Error::other(format!("connection {number}: {e}"))),
    };
    let port = socket.as_ref().map_or(0, port_of);
    let _ = tell.send(Ok(format!("opened {number} {port}\n")));
    // When its time is over nothing is asked for any more, since the rest of an answer may still come.
    let mut open = socket.as_ref();
    for Wanted { object, at } in wanted {
        let asked = open.filter(|_| Instant::now() < until).map(|socket| (socket, begun.elapsed()));
        let mut line = format!("{number} {object} {}", at.as_secs_f64());
        let there = match asked {
            None => None,
            Some((socket, asked)) => {
                let _ = write!(line, " {}", asked.as_secs_f64());
                let mut answer = ExpectedResponse::of(plan.holder, object, plan.store.object(object));
                exchange(socket, &request(plan.holder, object), &mut answer, until)
                    .map_err(|e| io::Error::other(format!("a fetch of {}: {e}", key(object))))?
            }
        };
        match (asked, there) {
            (_, Some(there)) => {
                let took = there.duration_since(begun).saturating_sub(at);
                let _ = writeln!(line, " {}", took.as_secs_f64());
            }
            (Some(_), None) => line.push_str(" -\n"),
            (None, None) => line.push_str(" - -\n"),
        }
        open = open.filter(|_| there.is_some());
        let _ = tell.send(Ok(line));
    }
    if socket.is_some() {
        thread::sleep(plan.linger);
    }
    Ok(())
}

/// Parses the report of `count` connections, by their numbers.
pub(super) fn connections(told: &str, count: u32, sizes: &[Bytes]) -> Result<Vec<Connection>, ReportError> {
    let mut all: Vec<Connection> = (0..count).map(|_| Connection::transfer(0, 0.0, None, 0)).collect();
    for line in told.lines() {
        take(line, &mut all, sizes).ok_or_else(|| ReportError::Line(line.to_owned()))?;
    }
    Ok(all)
}

fn take(line: &str, all: &mut [Connection], sizes: &[Bytes]) -> Option<()> {
    let words: Vec<&str> = line.split(' ').collect();
    if let ["opened", number, port] = words[..] {
        all.get_mut(number.parse::<usize>().ok()?)?.port = port.parse().ok()?;
        return Some(());
    }
    let [number, object, wanted, asked, took] = words[..] else { return None };
    let connection = all.get_mut(number.parse::<usize>().ok()?)?;
    let bytes = sizes.get(object.parse::<usize>().ok()?)?.get();
    let fetched = Fetched { bytes, wanted_s: number_of(wanted)?, took_s: number_or_none(took)? };
    if let (Some(start_s), Some(took_s)) = (number_or_none(asked)?, fetched.took_s) {
        // Only its end tells how it went: its bytes came evenly since it was asked for.
        let end_s = fetched.wanted_s + took_s;
        connection.read.push(Interval { start_s, end_s, bytes: bytes as f64 });
    }
    connection.fetched.push(fetched);
    Some(())
}

fn number_of<T: FromStr>(word: &str) -> Option<T> {
    word.parse().ok()
}

/// `Some(None)` of what never was.
fn number_or_none(word: &str) -> Option<Option<f64>> {
    if word == "-" { Some(None) } else { number_of(word).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [Bytes; 2] = [Bytes::new(1_000), Bytes::new(3_000)];

    #[test]
    fn client_reports_are_matched_by_connection_number() {
        let told =
            "opened 1 4001\n1 1 0.5 0.75 0.5\nopened 0 4000\n0 0 0.25 0.25 0.125\n1 0 0.5 1 -\n1 1 1.5 - -\n";
        let all = connections(told, 3, &SIZES).unwrap();
        assert_eq!(
            all.iter().map(|one| one.port).collect::<Vec<_>>(),
            [4000, 4001, 0],
            "the third never was"
        );
        let fetched = |bytes, wanted_s, took_s| Fetched { bytes, wanted_s, took_s };
        assert_eq!(all[0].fetched, [fetched(1_000, 0.25, Some(0.125))]);
        let expected = [fetched(3_000, 0.5, Some(0.5)), fetched(1_000, 0.5, None), fetched(3_000, 1.5, None)];
        assert_eq!(all[1].fetched, expected);
        assert_eq!(
            all[1].read,
            [Interval { start_s: 0.75, end_s: 1.0, bytes: 3_000.0 }],
            "since it was asked for"
        );
        assert_eq!(all[1].bytes_within(0.875, 9.0), 1_500.0);
        assert!(all[2].fetched.is_empty() && all[2].read.is_empty());
    }

    #[test]
    fn malformed_client_lines_are_refused() {
        for line in ["", "opened 2 4000", "opened 0", "0 2 0 0 0", "0 0 x 0 0", "0 0 0 0", "0 0 - 0 0"] {
            let error = connections(&format!("{line}\n"), 2, &SIZES).unwrap_err().to_string();
            assert!(error.contains("cannot be read"), "{line}: {error}");
        }
    }
}
