//! A cache: `memcached` holds objects, and a client fetches one at a time, each on a connection of its own (see `fetching`).

use super::fetching::{Plan, fetch_all};
use super::own::Own;
use super::{
    Connection, End, Interval, Programs, Report, ReportError, START_TIME, Workload, await_listening,
    check_installed, check_wrapper, wrapper,
};
use crate::draws::Draws;
use crate::process::{Ended, Program};
use crate::registry::Record;
use crate::spec::{Flow, Transport};
use crate::{Error, Netns};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use vmcc_units::Bytes;

const INSTALL: &str = "apt-get install -y memcached";
/// Connections at a time that are more than any run has, and megabytes for the largest objects.
const MOST_CONNECTIONS: &str = "16384";
const MEMORY: &str = "1024";

/// What a cache holds: random bytes, so that no object equals another.
#[derive(Debug)]
pub(super) struct Shelf {
    sizes: Vec<usize>,
    /// Object `i` begins at byte `i`.
    bytes: Vec<u8>,
}

impl Shelf {
    pub(super) fn of(sizes: &[Bytes]) -> Self {
        let sizes: Vec<usize> =
            sizes.iter().map(|size| usize::try_from(size.get()).unwrap_or(usize::MAX)).collect();
        let longest = sizes.iter().max().copied().unwrap_or(0);
        let mut draws = Draws::new(1, 0);
        let bytes = (0..longest + sizes.len()).map(|_| draws.next() as u8).collect();
        Self { sizes, bytes }
    }

    pub(super) fn count(&self) -> usize {
        self.sizes.len()
    }

    pub(super) fn object(&self, number: usize) -> &[u8] {
        &self.bytes[number..number + self.sizes[number]]
    }

    /// All that memcached answers to a request for an object.
    pub(super) fn answer(&self, number: usize) -> Vec<u8> {
        let object = self.object(number);
        let head = format!("VALUE {} 0 {}\r\n", key(number), object.len());
        [head.as_bytes(), object, b"\r\nEND\r\n"].concat()
    }

    /// Puts every object into the cache at `port` of this host.
    fn fill(&self, port: u16) -> io::Result<()> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        let mut answers = BufReader::new(stream.try_clone()?);
        for number in 0..self.count() {
            let object = self.object(number);
            let head = format!("set {} 0 0 {}\r\n", key(number), object.len());
            stream.write_all(&[head.as_bytes(), object, b"\r\n"].concat())?;
            let mut answer = String::new();
            answers.read_line(&mut answer)?;
            if answer.trim_end() != "STORED" {
                return Err(io::Error::other(format!("memcached answers {:?}", answer.trim_end())));
            }
        }
        Ok(())
    }
}

/// The key of an object.
pub(super) fn key(number: usize) -> String {
    format!("object{number}")
}

/// A flow's cache and client.
pub(super) struct Objects<'a> {
    pub(super) flow: &'a Flow,
    pub(super) programs: &'a Programs,
    pub(super) sizes: &'a [Bytes],
    pub(super) per_second: f64,
    pub(super) seed: u64,
}

impl Workload for Objects<'_> {
    fn check(&self) -> Result<(), Error> {
        check_installed(&self.programs.memcached, INSTALL)?;
        check_wrapper(self.flow, self.programs)
    }

    fn serve(&self, at: &Netns, port: u16, record: &mut Record) -> Result<End, Error> {
        let number = port.to_string();
        let mut words = wrapper(self.flow, self.programs);
        words.extend([&*self.programs.memcached, "-u", "root", "-l", "0.0.0.0", "-p", &number, "-U", "0"]);
        words.extend(["-t", "1", "-c", MOST_CONNECTIONS, "-b", "4096", "-m", MEMORY]);
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let server = Program::start(at, record, &words, INSTALL)?;
        let server = await_listening(server, (at, port), START_TIME, |ended| ended.stderr)?;
        let shelf = Shelf::of(self.sizes);
        let filled = at.run(move || shelf.fill(port));
        filled.map_err(|e| Error::kernel("filling", format!("memcached in namespace {}", at.name()), e))?;
        Ok(End::Program(server))
    }

    fn send(
        &self,
        at: &Netns,
        (to, port): (Ipv4Addr, u16),
        _data: Option<&Path>,
        _record: &mut Record,
    ) -> Result<End, Error> {
        let lasts = self.flow.stop.to_duration().saturating_sub(self.flow.start.to_duration());
        let plan = Plan {
            to: SocketAddr::from((to, port)),
            multipath: matches!(self.flow.transport, Transport::Mptcp { .. }),
            per_second: self.per_second,
            seed: self.seed ^ u64::from(port),
            lasts,
            shelf: Arc::new(Shelf::of(self.sizes)),
        };
        Own::begin(at, "client of memcached", move |end| fetch_all(plan, end)).map(End::Own)
    }

    fn report(&self, client: &Ended, _server: &End) -> Result<Report, ReportError> {
        let said = String::from_utf8_lossy(&client.stdout);
        let connections = said.lines().map(|line| self.connection(line)).collect::<Result<Vec<_>, _>>()?;
        if !client.stderr.is_empty() {
            return Err(ReportError::Transfer(client.stderr.clone()));
        }
        Ok(Report { connections, ..Report::default() })
    }
}

impl Objects<'_> {
    /// What is said of one fetch: port, object, when it began, how long it took or `-`.
    fn connection(&self, line: &str) -> Result<Connection, ReportError> {
        let wrong = || ReportError::Line(line.to_owned());
        let [port, object, began, took] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(wrong());
        };
        let object: usize = object.parse().map_err(|_| wrong())?;
        let size = self.sizes.get(object).ok_or_else(wrong)?.get();
        let took_s = if took == "-" { None } else { Some(took.parse().map_err(|_| wrong())?) };
        let read = took_s.map(|end_s| Interval { start_s: 0.0, end_s, bytes: size as f64 });
        Ok(Connection {
            port: port.parse().map_err(|_| wrong())?,
            began_s: began.parse().map_err(|_| wrong())?,
            size: Some(size),
            read: read.into_iter().collect(),
            took_s,
            stalled_us: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_their_sizes_and_none_is_like_another() {
        let shelf = Shelf::of(&[10, 1_000, 1_000].map(Bytes::new));
        assert_eq!([0, 1, 2].map(|number| shelf.object(number).len()), [10, 1_000, 1_000]);
        assert_ne!(shelf.object(1), shelf.object(2));
        let answer = shelf.answer(0);
        assert!(answer.starts_with(b"VALUE object0 0 10\r\n") && answer.ends_with(b"\r\nEND\r\n"));
        assert_eq!(answer.len(), "VALUE object0 0 10\r\n".len() + 10 + 7);
    }
}
