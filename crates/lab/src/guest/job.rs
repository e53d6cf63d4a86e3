//! The directory that the host and one guest share: what to run, and what came back.
//!
//! The guest reads `init` and `share` through virtiofs. QEMU writes `stdout`, `stderr`, `control` and
//! `console` from the guest's serial ports; on `control` the guest says `ready` when the program starts and
//! `exit N` when it has ended.

use super::{GuestError, GuestOptions, KernelImage, Stream};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The most that is read of each output, 64 MiB.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;
/// Lines of a log in an error message.
const DIAGNOSIS_LINES: usize = 25;
/// Start of the directories' names; the process id and a random part follow.
const PREFIX: &str = "vmcc-guest-";
/// PATH of programs in a guest, where the host's PATH may not exist.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A job's directory, removed with it.
#[derive(Debug)]
pub(super) struct Job {
    dir: tempfile::TempDir,
    stdout: Follower,
    stderr: Follower,
    control: Follower,
}

/// State that the guest has reported so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    pub(super) ready: bool,
    pub(super) exit_code: Option<i32>,
}

impl Job {
    pub(super) fn create(
        kernel: &KernelImage,
        command: &[OsString],
        options: &GuestOptions,
    ) -> Result<Self, GuestError> {
        let parent = std::env::temp_dir();
        // The directory's name travels on the kernel's command line, which separates words by spaces.
        if parent.as_os_str().as_bytes().iter().any(|byte| byte.is_ascii_whitespace() || *byte == b'"') {
            let problem = format!("a temporary directory with a space in its name ({})", parent.display());
            return Err(GuestError::Options { problem });
        }
        let dir = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", std::process::id()))
            .tempdir_in(&parent)
            .map_err(GuestError::file(&parent))?;
        let write = |name: &str, content: Vec<u8>| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).map_err(GuestError::file(path))
        };
        write("init", script(kernel, command, options))?;
        let share = options.shared_dir.as_deref().map_or_else(Vec::new, |dir| line(dir.as_os_str()));
        write("share", share)?;
        let follow = |name: &'static str| Follower::create(dir.path(), name);
        let (stdout, stderr, control) = (follow("stdout")?, follow("stderr")?, follow("control")?);
        Ok(Self { dir, stdout, stderr, control })
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Takes in what the guest has written since the last call.
    pub(super) fn poll(&mut self, sink: &mut dyn FnMut(Stream, &[u8])) -> Result<State, GuestError> {
        // Control first: what it announces has been written before, so it is read after.
        self.control.read_new()?;
        let state = state(&self.control.content);
        for (stream, follower) in [(Stream::Stdout, &mut self.stdout), (Stream::Stderr, &mut self.stderr)] {
            let new = follower.read_new()?;
            if !new.is_empty() {
                sink(stream, new);
            }
        }
        Ok(state)
    }

    pub(super) fn into_output(self) -> (Vec<u8>, Vec<u8>) {
        (self.stdout.content, self.stderr.content)
    }

    /// The ends of the logs that tell why a guest failed.
    pub(super) fn diagnosis(&self) -> String {
        let ends = ["virtiofsd.log", "qemu.log", "console"].map(|name| end_of(&self.dir.path().join(name)));
        ends.concat().trim_end().to_owned()
    }
}

/// A file that grows.
#[derive(Debug)]
struct Follower {
    name: &'static str,
    path: PathBuf,
    file: File,
    content: Vec<u8>,
}

impl Follower {
    fn create(dir: &Path, name: &'static str) -> Result<Self, GuestError> {
        let path = dir.join(name);
        File::create(&path).map_err(GuestError::file(&path))?;
        let file = File::open(&path).map_err(GuestError::file(&path))?;
        Ok(Self { name, path, file, content: Vec::new() })
    }

    /// Appends what is new to `content` and returns it.
    fn read_new(&mut self) -> Result<&[u8], GuestError> {
        let before = self.content.len();
        let room = MAX_OUTPUT_BYTES + 1 - before as u64;
        let file = &mut self.file;
        file.take(room).read_to_end(&mut self.content).map_err(GuestError::file(&self.path))?;
        if self.content.len() as u64 > MAX_OUTPUT_BYTES {
            return Err(GuestError::TooMuchOutput {
                what: self.name.to_owned(),
                limit_bytes: MAX_OUTPUT_BYTES,
            });
        }
        Ok(&self.content[before..])
    }
}

/// State according to the complete lines on the control port.
fn state(control: &[u8]) -> State {
    let mut state = State { ready: false, exit_code: None };
    for line in control.split_inclusive(|byte| *byte == b'\n') {
        match line {
            b"ready\n" => state.ready = true,
            [b'e', b'x', b'i', b't', b' ', code @ .., b'\n'] => {
                state.exit_code = std::str::from_utf8(code).ok().and_then(|code| code.parse().ok());
            }
            _ => {}
        }
    }
    state
}

/// The guest's second script: the first one (`scripts/guest-init.sh`) has mounted the root.
fn script(kernel: &KernelImage, command: &[OsString], options: &GuestOptions) -> Vec<u8> {
    let mut script = Vec::new();
    let mut push = |parts: &[&[u8]]| parts.iter().for_each(|part| script.extend_from_slice(part));
    push(&[b"#!/bin/sh\nexport HOME=/root LANG=C.UTF-8 PATH=", PATH.as_bytes(), b"\nmodule_root="]);
    push(&[&quoted(kernel.module_root().as_os_str()), b"\n", include_bytes!("init.sh")]);
    for (name, value) in &options.env {
        push(&[b"export ", &quoted(&joined(name, value)), b"\n"]);
    }
    let cwd = options.cwd.as_deref().unwrap_or(Path::new("/"));
    push(&[b"run() {\n\tcd ", &quoted(cwd.as_os_str()), b" && exec"]);
    for word in command {
        push(&[b" ", &quoted(word)]);
    }
    push(&[b"\n}\nfinish\n"]);
    script
}

fn joined(name: &OsStr, value: &OsStr) -> OsString {
    let mut both = name.to_os_string();
    both.push("=");
    both.push(value);
    both
}

/// `text` as one word of the shell.
fn quoted(text: &OsStr) -> Vec<u8> {
    let mut word = vec![b'\''];
    for byte in text.as_bytes() {
        match byte {
            b'\'' => word.extend_from_slice(b"'\\''"),
            other => word.push(*other),
        }
    }
    word.push(b'\'');
    word
}

fn line(text: &OsStr) -> Vec<u8> {
    let mut line = text.to_os_string().into_vec();
    line.push(b'\n');
    line
}

/// The last lines of a log, or those from a kernel's crash on, each marked with its name; nothing if it is empty.
fn end_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(16 << 10)))?;
        let mut end = Vec::new();
        file.take(16 << 10).read_to_end(&mut end)?;
        Ok(end)
    };
    let end = read().unwrap_or_default();
    let end = String::from_utf8_lossy(&end);
    let lines = end.lines().filter(|line| !line.trim().is_empty()).collect::<Vec<_>>();
    // A crashed kernel says why first and where at length; what made it give up may come far behind a first complaint.
    let has = |words: &[&str], line: &str| words.iter().any(|word| line.contains(word));
    let crash = lines.iter().position(|line| has(&["BUG: ", "Oops: ", "Kernel panic"], line));
    let start = crash.unwrap_or(lines.len().saturating_sub(DIAGNOSIS_LINES));
    let beyond = lines.iter().skip(start + DIAGNOSIS_LINES).find(|line| has(&["Kernel panic"], line));
    let shown = lines[start..].iter().take(DIAGNOSIS_LINES).chain(beyond);
    shown.map(|line| format!("  {name}: {line}\n")).collect()
}

/// Removes the directories of runs whose process is gone.
pub(super) fn remove_orphans() -> Result<Vec<PathBuf>, GuestError> {
    let parent = std::env::temp_dir();
    let entries = parent.read_dir().map_err(GuestError::file(&parent))?;
    let mut removed = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(owner_of);
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let path = entry.path();
            std::fs::remove_dir_all(&path).map_err(GuestError::file(&path))?;
            removed.push(path);
        }
    }
    Ok(removed)
}

/// The process that a job's directory names.
fn owner_of(name: &str) -> Option<u32> {
    let (pid, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    pid.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_control_lines_are_ignored() {
        let said = |text: &str| state(text.as_bytes());
        assert_eq!(said(""), State { ready: false, exit_code: None });
        assert_eq!(said("read"), State { ready: false, exit_code: None });
        assert_eq!(said("ready\nexit 1"), State { ready: true, exit_code: None });
        assert_eq!(said("ready\nexit 13\n"), State { ready: true, exit_code: Some(13) });
        assert_eq!(said("noise\nexit x\n"), State { ready: false, exit_code: None });
    }

    #[test]
    fn arguments_reach_the_program_unchanged() {
        let words = ["plain", "two words", "it's", "$HOME `id` \\", "", "*", "new\nline", "-n"];
        let quoted_words = words.map(|word| String::from_utf8(quoted(OsStr::new(word))).expect("UTF-8"));
        let script = format!("printf '%s\\0' {}", quoted_words.join(" "));
        let output = std::process::Command::new("/bin/sh").arg("-c").arg(script).output().expect("a shell");
        let expected = words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect::<Vec<_>>();
        assert_eq!(output.stdout, expected);
    }

    #[test]
    fn directories_name_their_owner() {
        assert_eq!(owner_of("vmcc-guest-123-aB3"), Some(123));
        assert_eq!(owner_of("vmcc-guest-x-aB3"), None);
        assert_eq!(owner_of("other-123-aB3"), None);
    }
}
