//! Chunks of a network file system: `ganesha.nfsd` serves a file that lies in memory, and `nfs-cat` reads it, once per connection.
//!
//! NFS 4.0, so that one connection carries all. Both are programs in user space, whose sockets `mptcpize` makes MPTCP's; a kernel's
//! NFS opens TCP only, at either end.

use super::in_process::{InProcess, exit_with};
use super::private_mount::{SETTINGS, mounted_command, mounted_path};
use super::{
    Connection, End, Programs, Report, ReportError, START_TIMEOUT, Workload, await_listening,
    check_installed, check_wrapper, wrapper,
};
use crate::process::{Ended, Program, SpawnContext, find};
use crate::registry::Record;
use crate::spec::Flow;
use crate::{Error, Netns};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_units::Bytes;

const INSTALL_GANESHA: &str = "apt-get install -y nfs-ganesha-vfs";
const INSTALL_NFS_CAT: &str = "apt-get install -y libnfs-utils";
/// Poll interval, and so the resolution of a chunk's duration.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A flow's server and clients.
pub(super) struct Chunks<'a> {
    pub(super) flow: &'a Flow,
    pub(super) programs: &'a Programs,
    pub(super) size: Bytes,
}

impl Workload for Chunks<'_> {
    fn check(&self) -> Result<(), Error> {
        check_installed(&self.programs.ganesha, INSTALL_GANESHA)?;
        check_installed(&self.programs.nfs_cat, INSTALL_NFS_CAT)?;
        check_wrapper(self.flow, self.programs)
    }

    fn serve(&self, at: &Netns, port: u16, record: &mut Record) -> Result<End, Error> {
        let unpacked = Unpacked::of(&self.programs.ganesha);
        let mut before: Vec<&str> = unpacked.iter().flat_map(|place| ["env", &place.libraries]).collect();
        before.extend(wrapper(self.flow, self.programs));
        let mut words = mounted_command(&settings(port, unpacked.as_ref()), self.size.get(), &before);
        let own = [&*self.programs.ganesha, "-F", "-f", SETTINGS, "-L", "/dev/stderr", "-p", "/run/pid"];
        words.extend(own.map(str::to_owned));
        let server = Program::start(at, record, &words, INSTALL_GANESHA)?;
        await_listening(server, (at, port), 3 * START_TIMEOUT, |ended| ended.stderr).map(End::Program)
    }

    fn data(&self, server: &End) -> Option<PathBuf> {
        Some(mounted_path(server.program()?, "data"))
    }

    fn send(
        &self,
        at: &Netns,
        (to, port): (Ipv4Addr, u16),
        lasts: Duration,
        data: Option<&Path>,
        _record: &mut Record,
    ) -> Result<End, Error> {
        let data = data.ok_or_else(|| Error::spec("traffic", "there is no file to be read"))?;
        let wanted = fs::read(data).map_err(|e| Error::file("the file to be read", e))?;
        let url = format!("nfs://{to}/files/data?version=4&nfsport={port}");
        let mut words = wrapper(self.flow, self.programs);
        words.extend([&*self.programs.nfs_cat, &url]);
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let reading = Reading { server: (to, port), wanted, begun: Instant::now(), lasts };
        let (place, count) = (SpawnContext::of(at), self.flow.connections);
        InProcess::spawn(at, "readers of files", move |end| reading.with(&place, &words, count, end))
            .map(End::InProcess)
    }

    fn report(&self, client: &Ended, _server: &End) -> Result<Report, ReportError> {
        if !client.stderr.is_empty() {
            return Err(ReportError::Transfer(client.stderr.clone()));
        }
        let said = String::from_utf8_lossy(&client.stdout);
        let connections = said.lines().map(|line| self.connection(line)).collect::<Result<_, _>>()?;
        Ok(Report { connections, ..Report::default() })
    }
}

impl Chunks<'_> {
    /// Parses the line about one reader: port, start time, duration or `-`.
    fn connection(&self, line: &str) -> Result<Connection, ReportError> {
        let wrong = || ReportError::Line(line.to_owned());
        let [port, began, took] = line.split(' ').collect::<Vec<_>>()[..] else { return Err(wrong()) };
        let took_s = if took == "-" { None } else { Some(took.parse().map_err(|_| wrong())?) };
        let (port, began_s) = (port.parse().map_err(|_| wrong())?, began.parse().map_err(|_| wrong())?);
        Ok(Connection::transfer(port, began_s, took_s, self.size.get()))
    }
}

/// Libraries and plugins of a server that is not installed.
struct Unpacked {
    /// For `env`.
    libraries: String,
    plugins: String,
}

impl Unpacked {
    fn of(program: &str) -> Option<Self> {
        let program = find(program)?;
        let usr = program.parent()?.parent()?;
        let (libraries, plugins) =
            (usr.join("lib/ganesha"), usr.join(format!("lib/{}-linux-gnu/ganesha", std::env::consts::ARCH)));
        (libraries.is_dir() && plugins.is_dir()).then(|| Self {
            libraries: format!("LD_LIBRARY_PATH={}", libraries.display()),
            plugins: format!("Plugins_Dir = \"{}\"; ", plugins.display()),
        })
    }
}

/// Without the services that older versions of NFS need, nothing of which is asked here.
fn settings(port: u16, unpacked: Option<&Unpacked>) -> String {
    let plugins = unpacked.map_or("", |place| &place.plugins);
    format!(
        "NFS_CORE_PARAM {{ {plugins}NFS_Port = {port}; Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; }}\n\
         NFSv4 {{ Graceless = true; Minor_Versions = 0; RecoveryBackend = fs; RecoveryRoot = \"/run\"; Only_Numeric_Owners = true; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"/run\"; Pseudo = \"/files\"; Access_Type = RO; Squash = No_Root_Squash; \
         Transports = TCP; SecType = sys; FSAL {{ Name = VFS; }} }}\n\
         LOG {{ Default_Log_Level = FATAL; }}\n"
    )
}

/// Programs that read the file, each on a connection of its own.
struct Reading {
    server: (Ipv4Addr, u16),
    wanted: Vec<u8>,
    begun: Instant,
    lasts: Duration,
}

struct Reader {
    /// Until it has ended.
    program: Option<Program>,
    began: Duration,
    took: Option<Duration>,
    /// Its connection's.
    port: Option<u16>,
}

impl Reading {
    /// Starts them, and waits until all have read the file or their time is over; a line for each, and the first fault.
    fn with(&self, place: &SpawnContext, words: &[String], count: u32, end: &AtomicBool) -> Ended {
        let mut readers = Vec::new();
        let fault = self.read(place, words, count, (&mut readers, end)).err();
        let mut text = String::new();
        for reader in &readers {
            let took = reader.took.map_or("-".to_owned(), |took| took.as_secs_f64().to_string());
            let _ = writeln!(text, "{} {} {took}", reader.port.unwrap_or(0), reader.began.as_secs_f64());
        }
        exit_with(text, fault)
    }

    fn read(
        &self,
        place: &SpawnContext,
        words: &[String],
        count: u32,
        (readers, end): (&mut Vec<Reader>, &AtomicBool),
    ) -> io::Result<()> {
        for _ in 0..count {
            let began = self.begun.elapsed();
            let program = Program::start_here(place, words, INSTALL_NFS_CAT).map_err(io::Error::other)?;
            readers.push(Reader { program: Some(program), began, took: None, port: None });
            self.look(readers)?;
        }
        while !end.load(Ordering::Relaxed) && self.begun.elapsed() < self.lasts {
            self.look(readers)?;
            if readers.iter().all(|reader| reader.program.is_none()) {
                break;
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn look(&self, readers: &mut [Reader]) -> io::Result<()> {
        readers.iter_mut().try_for_each(|reader| reader.look(self.server, &self.wanted, self.begun))
    }
}

impl Reader {
    /// Notes its connection's port, and what it left if it has ended.
    fn look(&mut self, server: (Ipv4Addr, u16), wanted: &[u8], begun: Instant) -> io::Result<()> {
        let Some(program) = &mut self.program else { return Ok(()) };
        if self.port.is_none() {
            self.port = port_of(program.pid(), server);
        }
        let took = begun.elapsed().saturating_sub(self.began);
        let Some(ended) = program.output().map_err(io::Error::other)? else { return Ok(()) };
        self.program = None;
        if !ended.status.success() {
            return Err(io::Error::other(format!(
                "a file could not be read: {} [{}]",
                ended.stderr, ended.status
            )));
        }
        compare(&ended.stdout, wanted)?;
        self.took = Some(took);
        Ok(())
    }
}

fn compare(got: &[u8], wanted: &[u8]) -> io::Result<()> {
    if got == wanted {
        return Ok(());
    }
    let same = got.iter().zip(wanted).take_while(|(got, wanted)| got == wanted).count();
    Err(io::Error::other(format!(
        "{} bytes were read that are not the file's {} from byte {same} on",
        got.len(),
        wanted.len()
    )))
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
    fn a_row_of_the_kernels_table_has_both_ends_and_the_inode() {
        let line = "   1: 0100007F:03E7 0200000A:1451 01 00000000:00000000 00:00000000 00000000     0        0 12345 1 0 20 4 30 10 -1";
        if cfg!(target_endian = "little") {
            assert_eq!(row(line), Some((999, (Ipv4Addr::new(10, 0, 0, 2), 5201), 12345)));
        }
        assert_eq!(row("  sl  local_address rem_address   st"), None);
    }

    #[test]
    fn a_connection_of_this_process_is_found_by_its_socket() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = (Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(port_of(pid, server), None);
        let stream = std::net::TcpStream::connect(server).unwrap();
        assert_eq!(port_of(pid, server), Some(stream.local_addr().unwrap().port()));
    }

    #[test]
    fn what_is_read_is_the_file_to_the_last_byte() {
        assert!(compare(b"abc", b"abc").is_ok());
        for (got, at) in [(&b"abd"[..], "byte 2"), (b"ab", "byte 2"), (b"abcd", "byte 3"), (b"", "byte 0")] {
            assert!(compare(got, b"abc").unwrap_err().to_string().contains(at), "{got:?}");
        }
    }
}
