//! Client programs of a flow that start together. Each runs until it has ended or the flow's time is over.

use super::in_process::exit_with;
use super::{Connection, ReportError};
use crate::Netns;
use crate::process::{Ended, Program, SpawnContext};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_units::Bytes;

/// Poll interval, and so the resolution of a program's duration.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Programs of a flow, started by a thread of the lab.
pub(super) struct Clients {
    begun: Instant,
    lasts: Duration,
    /// Server whose connection names a program's port, if one connection is all that a program has.
    server: Option<(Ipv4Addr, u16)>,
    place: SpawnContext,
    /// Package of the programs.
    remedy: &'static str,
}

/// One program.
pub(super) struct Client {
    /// Until it has ended.
    program: Option<Program>,
    began: Duration,
    /// Duration of one that ended well.
    pub(super) took: Option<Duration>,
    port: Option<u16>,
}

impl Clients {
    /// Clients in `at` for `lasts` from now on.
    pub(super) fn new(at: &Netns, lasts: Duration, remedy: &'static str) -> Self {
        Self { begun: Instant::now(), lasts, server: None, place: SpawnContext::of(at), remedy }
    }

    /// The same, of programs that have one connection each, all to `server`.
    pub(super) fn with_server(self, server: (Ipv4Addr, u16)) -> Self {
        Self { server: Some(server), ..self }
    }

    /// Runs the programs of `commands`. `judge` says whether the end of one was good.
    ///
    /// # Errors
    /// The first fault; `clients` are those that were started until then.
    pub(super) fn run(
        &self,
        commands: &[Vec<String>],
        end: &AtomicBool,
        clients: &mut Vec<Client>,
        mut judge: impl FnMut(usize, &Ended) -> io::Result<()>,
    ) -> io::Result<()> {
        for command in commands {
            let began = self.begun.elapsed();
            let program = Program::start_here(&self.place, command, self.remedy).map_err(io::Error::other)?;
            clients.push(Client { program: Some(program), began, took: None, port: None });
            self.poll(clients, &mut judge)?;
        }
        while !end.load(Ordering::Relaxed) && self.begun.elapsed() < self.lasts {
            self.poll(clients, &mut judge)?;
            if clients.iter().all(|client| client.program.is_none()) {
                break;
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// The same of programs that transfer a file each; a line per program.
    pub(super) fn transfer(
        &self,
        commands: &[Vec<String>],
        end: &AtomicBool,
        judge: impl FnMut(usize, &Ended) -> io::Result<()>,
    ) -> Ended {
        let mut clients = Vec::new();
        let fault = self.run(commands, end, &mut clients, judge).err();
        let mut lines = String::new();
        for client in &clients {
            let took = client.took.map_or("-".to_owned(), |took| took.as_secs_f64().to_string());
            let _ = writeln!(lines, "{} {} {took}", client.port.unwrap_or(0), client.began.as_secs_f64());
        }
        exit_with(lines, fault)
    }

    fn poll(
        &self,
        clients: &mut [Client],
        judge: &mut impl FnMut(usize, &Ended) -> io::Result<()>,
    ) -> io::Result<()> {
        for (number, client) in clients.iter_mut().enumerate() {
            let Some(program) = &mut client.program else { continue };
            if let Some(server) = self.server.filter(|_| client.port.is_none()) {
                client.port = port_of(program.pid(), server);
            }
            let took = self.begun.elapsed().saturating_sub(client.began);
            let Some(ended) = program.output().map_err(io::Error::other)? else { continue };
            client.program = None;
            judge(number, &ended)?;
            client.took = Some(took);
        }
        Ok(())
    }
}

/// Judge of programs whose exit code tells how they ended; `program` is named in the error.
pub(super) fn by_exit_code(program: &'static str) -> impl Fn(usize, &Ended) -> io::Result<()> {
    move |_, ended| {
        if ended.status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("{program}: {} [{}]", ended.stderr, ended.status)))
    }
}

/// Parses the lines of [`Clients::transfer`]: port, start time, duration or `-`.
pub(super) fn transfers(ended: &Ended, size: Bytes) -> Result<Vec<Connection>, ReportError> {
    if !ended.stderr.is_empty() {
        return Err(ReportError::Transfer(ended.stderr.clone()));
    }
    let one = |line: &str| {
        let [port, began, took] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        let took_s = if took == "-" { None } else { Some(took.parse().ok()?) };
        Some(Connection::transfer(port.parse().ok()?, began.parse().ok()?, took_s, size.get()))
    };
    let text = String::from_utf8_lossy(&ended.stdout);
    text.lines().map(|line| one(line).ok_or_else(|| ReportError::Line(line.to_owned()))).collect()
}

/// The local port of a program's connection to `server`, once it has one.
fn port_of(pid: i32, server: (Ipv4Addr, u16)) -> Option<u16> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let sockets = links.filter_map(|link| {
        let target = fs::read_link(link.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    });
    let own: BTreeSet<u64> = sockets.collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).ok()?;
    table.lines().find_map(|line| {
        let (local, remote, inode) = row(line)?;
        (remote == server && own.contains(&inode)).then_some(local)
    })
}

/// Of a line of `/proc/net/tcp`: the local port, the remote end and the socket's inode. Every subflow has that of its connection.
fn row(line: &str) -> Option<(u16, (Ipv4Addr, u16), u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let end = |word: &str| {
        let (address, port) = word.split_once(':')?;
        let address = u32::from_str_radix(address, 16).ok()?;
        // The kernel prints an address as its memory's number.
        Some((Ipv4Addr::from(address.to_ne_bytes()), u16::from_str_radix(port, 16).ok()?))
    };
    Some((end(words.get(1)?)?.1, end(words.get(2)?)?, words.get(9)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_table_row_has_both_ends_and_the_inode() {
        let line = "   1: 0100007F:03E7 0200000A:1451 01 00000000:00000000 00:00000000 00000000     0        0 12345 1 0 20 4 30 10 -1";
        if cfg!(target_endian = "little") {
            assert_eq!(row(line), Some((999, (Ipv4Addr::new(10, 0, 0, 2), 5201), 12345)));
        }
        assert_eq!(row("  sl  local_address rem_address   st"), None);
    }

    #[test]
    fn connection_is_found_by_its_socket_inode() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = (Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(port_of(pid, server), None);
        let stream = std::net::TcpStream::connect(server).unwrap();
        assert_eq!(port_of(pid, server), Some(stream.local_addr().unwrap().port()));
    }

    #[test]
    fn malformed_transfer_lines_are_refused() {
        let ended = |text: &str| exit_with(text.to_owned(), None);
        let size = Bytes::new(1_000);
        let all = transfers(&ended("0 0.5 0.25\n4000 0 -\n"), size).unwrap();
        assert_eq!((all[0].began_s, all[0].took_s, all[1].port), (0.5, Some(0.25), 4000));
        assert!(all[1].took_s.is_none());
        for line in ["", "0 0", "0 x 1", "0 0 1 2"] {
            let error = transfers(&ended(&format!("{line}\n")), size).unwrap_err().to_string();
            assert!(error.contains("cannot be read"), "{line}: {error}");
        }
        let failed = Ended { stderr: "refused".into(), ..ended("0 0 -\n") };
        assert!(matches!(transfers(&failed, size), Err(ReportError::Transfer(_))));
    }
}
