//! Chunks of a network file system: `ganesha.nfsd` serves a file that lies in memory, and `nfs-cat` reads it, once per connection.
//!
//! NFS 4.0, so that one connection carries all. Both are programs in user space, whose sockets `mptcpize` makes MPTCP's; a kernel's
//! NFS opens TCP only, at either end.

use super::clients::{Clients, transfers};
use super::in_process::InProcess;
use super::private_mount::{SETTINGS, mounted_command, mounted_path};
use super::{
    ClientSetup, End, Programs, Report, ReportError, START_TIMEOUT, Workload, await_listening,
    check_installed, check_wrapper, wrapper,
};
use crate::process::{Ended, Program, find};
use crate::registry::Record;
use crate::spec::Flow;
use crate::{Error, Netns};
use std::fs;
use std::io;
use std::path::PathBuf;
use vmcc_units::Bytes;

const INSTALL_GANESHA: &str = "apt-get install -y nfs-ganesha-vfs";
const INSTALL_NFS_CAT: &str = "apt-get install -y libnfs-utils";
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

    fn send(&self, setup: ClientSetup<'_>) -> Result<End, Error> {
        let ClientSetup { at, to: (to, port), lasts, data, .. } = setup;
        let data = data.ok_or_else(|| Error::spec("traffic", "there is no file to be read"))?;
        let wanted = fs::read(data).map_err(|e| Error::file("the file to be read", e))?;
        let url = format!("nfs://{to}/files/data?version=4&nfsport={port}");
        let mut words = wrapper(self.flow, self.programs);
        words.extend([&*self.programs.nfs_cat, &url]);
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let clients = Clients::new(at, lasts, INSTALL_NFS_CAT).with_server((to, port));
        let commands = vec![words; self.flow.connections as usize];
        let judge = move |_, ended: &Ended| judge(ended, &wanted);
        InProcess::spawn(at, "readers of files", move |end| clients.transfer(&commands, end, judge))
    }

    fn report(&self, client: &Ended, _server: &End) -> Result<Report, ReportError> {
        let connections = transfers(client, self.size)?;
        Ok(Report { connections, ..Report::default() })
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

fn judge(ended: &Ended, wanted: &[u8]) -> io::Result<()> {
    if !ended.status.success() {
        return Err(io::Error::other(format!(
            "a file could not be read: {} [{}]",
            ended.stderr, ended.status
        )));
    }
    compare(&ended.stdout, wanted)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_file_to_the_last_byte() {
        assert!(compare(b"abc", b"abc").is_ok());
        for (got, at) in [(&b"abd"[..], "byte 2"), (b"ab", "byte 2"), (b"abcd", "byte 3"), (b"", "byte 0")] {
            assert!(compare(got, b"abc").unwrap_err().to_string().contains(at), "{got:?}");
        }
    }
}
