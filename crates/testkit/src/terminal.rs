//! A program on a terminal of its own, and what a person sees there.

use nix::libc;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A test that waits longer hangs.
const HANGS: Duration = Duration::from_secs(60);

/// A program on a terminal; killed on drop.
pub struct Terminal {
    child: Child,
    keys: File,
    screen: Arc<Mutex<vt100::Parser>>,
    /// Reads what is shown until nobody is left, or the next thing after `closing`.
    reader: Option<JoinHandle<()>>,
    closing: Arc<AtomicBool>,
    /// Keeps the terminal, so that its settings can be read after the program has ended.
    end: File,
}

impl Terminal {
    /// Starts the command as the leader of a session on a terminal of this size.
    pub fn start(command: &Command, rows: u16, columns: u16) -> Self {
        Self::start_by(&["setsid", "--ctty"], command, rows, columns)
    }

    /// The same for a process that leads nothing: nobody signals it when the terminal goes.
    pub fn start_unsignalled(command: &Command, rows: u16, columns: u16) -> Self {
        Self::start_by(&["setsid"], command, rows, columns)
    }

    fn start_by(starter: &[&str], command: &Command, rows: u16, columns: u16) -> Self {
        let (keys, end) = pair(rows, columns);
        let mut of_session = Command::new(starter[0]);
        of_session.args(&starter[1..]).arg(command.get_program()).args(command.get_args());
        of_session.env("TERM", "xterm-256color");
        of_session.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let at_end = || Stdio::from(end.try_clone().unwrap());
        let child = of_session.stdin(at_end()).stdout(at_end()).stderr(at_end()).spawn().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(some(rows), some(columns), 0)));
        let (seen, mut output) = (Arc::clone(&screen), keys.try_clone().unwrap());
        let closing = Arc::new(AtomicBool::new(false));
        let closes = Arc::clone(&closing);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 65_536];
            while let Ok(length @ 1..) = output.read(&mut bytes)
                && !closes.load(Ordering::SeqCst)
            {
                seen.lock().unwrap().process(&bytes[..length]);
            }
        });
        Self { child, keys, screen, reader: Some(reader), closing, end }
    }

    /// Types these keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Changes the terminal's size, as a window does.
    pub fn resize(&self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(some(rows), some(columns));
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the call reads `size`, which outlives it.
        assert_eq!(unsafe { libc::ioctl(self.keys.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }, 0);
    }

    /// Lines that are shown now.
    pub fn lines(&self) -> Vec<String> {
        let screen = self.screen.lock().unwrap();
        let columns = screen.screen().size().1;
        screen.screen().rows(0, columns.into()).map(|line| line.trim_end().to_owned()).collect()
    }

    /// Color of a word's first letter, by its number in the palette; `None` for the terminal's own.
    pub fn color_of(&self, word: &str) -> Option<u8> {
        let lines = self.lines().into_iter().zip(0..);
        let (column, row) = lines.filter_map(|(line, row)| Some((line.find(word)?, row))).next()?;
        let screen = self.screen.lock().unwrap();
        match screen.screen().cell(row, u16::try_from(column).unwrap())?.fgcolor() {
            vt100::Color::Idx(number) => Some(number),
            vt100::Color::Default | vt100::Color::Rgb(..) => None,
        }
    }

    /// Waits until the screen is so.
    pub fn shows(&self, what: &str, is: impl Fn(&[String]) -> bool) -> Vec<String> {
        let began = Instant::now();
        loop {
            let lines = self.lines();
            if is(&lines) {
                return lines;
            }
            assert!(began.elapsed() < HANGS, "{what}: {lines:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// To the processes that have the terminal now.
    pub fn signal_foreground(&self, signal: Signal) {
        // SAFETY: a descriptor that is open, and no memory.
        let group = unsafe { libc::tcgetpgrp(self.keys.as_raw_fd()) };
        assert!(group > 0, "{}", std::io::Error::last_os_error());
        killpg(Pid::from_raw(group), signal).unwrap();
    }

    /// Closes it as a window is closed. Its own end of the terminal stays open, as another program's might.
    pub fn close(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        self.end.write_all(b"\n").unwrap();
        self.reader.take().unwrap().join().unwrap();
        self.keys = File::open("/dev/null").unwrap();
    }

    /// Waits until the program ends.
    pub fn ends(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// True if lines are edited and echoed, the usual screen is shown and the cursor is visible.
    pub fn is_as_before(&self) -> bool {
        let edited = libc::ECHO | libc::ICANON;
        settings(&self.end).c_lflag & edited == edited && self.shows_usual_screen()
    }

    /// A shell may have its own way to edit lines.
    pub fn shows_usual_screen(&self) -> bool {
        let began = Instant::now();
        // What was written last may not have been read yet.
        loop {
            let screen = self.screen.lock().unwrap();
            let usual = !screen.screen().alternate_screen() && !screen.screen().hide_cursor();
            drop(screen);
            if usual || began.elapsed() > Duration::from_secs(5) {
                return usual;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn some(size: u16) -> NonZero<u16> {
    NonZero::new(size).unwrap()
}

fn settings(end: &File) -> libc::termios {
    // SAFETY: all of it is numbers, for which zero is a value; the call fills it in.
    unsafe {
        let mut settings = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(end.as_raw_fd(), &raw mut settings), 0);
        settings
    }
}

/// Both ends of a new terminal.
fn pair(rows: u16, columns: u16) -> (File, File) {
    let (mut one, mut other) = (-1, -1);
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: places for two descriptors, no name, no settings, and a size that outlives the call.
    let made = unsafe {
        libc::openpty(&raw mut one, &raw mut other, std::ptr::null_mut(), std::ptr::null(), &raw const size)
    };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the call has just made these descriptors for nobody else.
    let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    let close_on_exec = |fd: &OwnedFd| {
        // SAFETY: a descriptor that is open, and no memory.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) }
    };
    let (one, other) = (own(one), own(other));
    assert_eq!((close_on_exec(&one), close_on_exec(&other)), (0, 0));
    (File::from(one), File::from(other))
}
