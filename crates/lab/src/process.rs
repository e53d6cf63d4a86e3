//! Programs inside a namespace. None outlives the run: dropping kills, and the kernel kills them with the
//! thread that started them, which lives as long as the namespace's handle.

use crate::registry::Record;
use crate::{Error, netns::Netns};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// The most output of one program that is read.
pub(crate) const MAX_OUTPUT_BYTES: u64 = 64 << 20;

/// A running program and what it has written.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    namespace: String,
    child: Child,
    stdout: File,
    stderr: File,
    ended: Option<ExitStatus>,
}

/// Namespace and cgroup in which programs start.
#[derive(Debug, Clone)]
pub(crate) struct SpawnContext {
    namespace: String,
    /// The file that takes the members of its cgroup.
    members: Option<PathBuf>,
}

impl SpawnContext {
    pub(crate) fn of(namespace: &Netns) -> Self {
        let members = namespace.cgroup().map(|path| path.join("cgroup.procs"));
        Self { namespace: namespace.name().to_owned(), members }
    }
}

/// Exit status and output of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Program {
    /// Starts `arguments[0]` inside `namespace` and writes it into the run's record. `remedy` installs it.
    pub(crate) fn start(
        namespace: &Netns,
        record: &mut Record,
        arguments: &[String],
        remedy: &str,
    ) -> Result<Self, Error> {
        let (place, arguments, remedy) = (SpawnContext::of(namespace), arguments.to_vec(), remedy.to_owned());
        let program = namespace.run(move || Self::start_here(&place, &arguments, &remedy))?;
        record.add_process(program.pid())?;
        Ok(program)
    }

    /// The same in the namespace of the calling thread, which is `place`. It ends with that thread at the latest, and is in no record: the cleanup
    /// of a killed run kills the processes in its namespaces.
    pub(crate) fn start_here(
        place: &SpawnContext,
        arguments: &[String],
        remedy: &str,
    ) -> Result<Self, Error> {
        let name = arguments.first().cloned().unwrap_or_default();
        let (child, stdout, stderr) =
            spawn(arguments, place.members.as_deref()).map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => {
                    Error::ProgramMissing { program: name.clone(), remedy: remedy.to_owned() }
                }
                _ => Error::kernel("starting", format!("{name} in namespace {}", place.namespace), e),
            })?;
        Ok(Self { name, namespace: place.namespace.clone(), child, stdout, stderr, ended: None })
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }

    /// True if it has ended; never blocks.
    pub(crate) fn has_ended(&mut self) -> Result<bool, Error> {
        if self.ended.is_none() {
            let waited = self.child.try_wait();
            self.ended = waited.map_err(|e| Error::kernel("waiting for", self.name.clone(), e))?;
        }
        Ok(self.ended.is_some())
    }

    /// Asks it to end, if it has not.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        if !self.has_ended()? {
            // It may end this very moment, but nobody else has its number before it is waited for.
            let _ = kill(Pid::from_raw(-self.pid()), Signal::SIGTERM);
        }
        Ok(())
    }

    /// Exit status and output, if it has ended.
    pub(crate) fn output(&mut self) -> Result<Option<Ended>, Error> {
        if !self.has_ended()? {
            return Ok(None);
        }
        let failed = |e| Error::file(format!("the output of {}", self.name), e);
        let stdout = read_all(&self.stdout).map_err(failed)?;
        let stderr = read_all(&self.stderr).map_err(failed)?;
        let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
        Ok(self.ended.map(|status| Ended { status, stdout, stderr }))
    }

    /// Standard output so far, before and after its end.
    pub(crate) fn written(&self) -> Result<Vec<u8>, Error> {
        let failed = |e| Error::file(format!("the output of {}", self.name), e);
        read_all(&self.stdout).map_err(failed)
    }

    /// An error about this program.
    pub(crate) fn failed(&self, cause: impl Into<String>, remedy: &str) -> Error {
        Error::ProgramFailed {
            program: self.name.clone(),
            namespace: self.namespace.clone(),
            cause: cause.into(),
            remedy: remedy.to_owned(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // The program leads its own group; its children die with it.
            let _ = kill(Pid::from_raw(-self.pid()), Signal::SIGKILL);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Finds a program by path or in PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let there = |path: PathBuf| path.is_file().then_some(path);
    if program.contains('/') {
        return there(program.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).find_map(|directory| there(directory.join(program)))
}

/// True if a program is installed: by path or in PATH.
pub(crate) fn is_installed(program: &str) -> bool {
    find(program).is_some()
}

/// `members` is the file that takes the members of the program's cgroup.
fn spawn(arguments: &[String], members: Option<&Path>) -> io::Result<(Child, File, File)> {
    let members = members.map(|path| File::options().write(true).open(path)).transpose()?;
    let (program, rest) = arguments.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut command = Command::new(program);
    command
        .args(rest)
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        // Its own group: Ctrl-C reaches vmcc only, which then ends the run in order.
        .process_group(0);
    // SAFETY: the closure runs between fork and exec and makes two system calls, which are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            // Itself, whatever its number.
            members.as_ref().map_or(Ok(()), |mut members| members.write_all(b"0"))?;
            set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)
        });
    }
    Ok((command.spawn()?, stdout, stderr))
}

/// From its start, and from another place of the file than where the program writes. Half of an output would pass for all of it: one that is too
/// long is an error.
fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let (mut bytes, mut part) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match file.read_at(&mut part, bytes.len() as u64)? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&part[..count]),
        }
        if bytes.len() as u64 > MAX_OUTPUT_BYTES {
            let limit = MAX_OUTPUT_BYTES >> 20;
            let cause = format!("more than {limit} MiB; a shorter run, or fewer connections, write less");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, cause));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_returned_whole_or_refused() {
        let file = tempfile::tempfile().unwrap();
        for (len, whole) in
            [(0, true), (100_000, true), (MAX_OUTPUT_BYTES, true), (MAX_OUTPUT_BYTES + 1, false)]
        {
            file.set_len(len).unwrap();
            let read = read_all(&file).map(|bytes| bytes.len() as u64);
            assert_eq!(read.ok(), whole.then_some(len));
        }
    }

    #[test]
    fn programs_are_searched_in_path() {
        assert!(is_installed("sh") && is_installed("/bin/sh"));
        assert!(!is_installed("no-such-program") && !is_installed("/no/such/program"));
    }
}
