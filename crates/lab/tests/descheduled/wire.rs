//! A user-space link with a delay and a queue, between two taps: where the host's kernel has no netem.
//!
//! From the first end to the second packets pass a queue of a rate that drops at its tail, then a delay; from the second to
//! the first only the delay.

use crate::switch::{Namespace, run};
use nix::libc;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub rate_bps: f64,
    pub queue_bytes: f64,
    /// One way.
    pub delay: Duration,
}

/// Ends with this, and its taps with it.
pub struct Wire {
    namespace: String,
    ends: [String; 2],
    threads: Vec<JoinHandle<()>>,
}

type Due = (Instant, Vec<u8>);

impl Wire {
    /// Makes the taps `NAMEa` and `NAMEb` in a namespace.
    pub fn new(namespace: &Namespace, name: &str, shape: Shape) -> Self {
        let ends = ["a", "b"].map(|end| format!("{name}{end}"));
        let open = |tap: &String| Arc::new(namespace.within(|| attach(tap)));
        let files = [open(&ends[0]), open(&ends[1])];
        let mut threads = Vec::new();
        for (from, to, queue) in [(0, 1, Some(shape)), (1, 0, None)] {
            let (send, receive) = channel();
            let (source, sink) = (files[from].clone(), files[to].clone());
            threads.push(thread::spawn(move || take(&source, queue, shape.delay, &send)));
            threads.push(thread::spawn(move || give(&sink, &receive)));
        }
        Self { namespace: namespace.0.clone(), ends, threads }
    }

    pub fn near(&self) -> &str {
        &self.ends[0]
    }

    /// Moves the far end to another namespace, under this name.
    pub fn lead_to(&mut self, to: &Namespace, name: &str) {
        run(&format!("ip -n {} link set {} netns {to} name {name}", self.namespace, self.ends[1]));
        self.ends[1] = name.to_owned();
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // What waits at a tap ends with the tap; the far one goes with its namespace.
        let near = ["-n", &self.namespace, "link", "del", &self.ends[0]];
        let _ = std::process::Command::new("ip").args(near).output();
        self.threads.clear();
    }
}

/// Reads packets as they come, and says when each leaves at the other end.
fn take(tap: &File, queue: Option<Shape>, delay: Duration, send: &Sender<Due>) {
    let mut packet = [0; 2048];
    let mut idle_at = Instant::now();
    while let Ok(length) = { tap }.read(&mut packet) {
        let now = Instant::now();
        let mut leaves = now;
        if let Some(shape) = queue {
            let waiting = idle_at.saturating_duration_since(now).as_secs_f64() * shape.rate_bps / 8.0;
            if waiting + length as f64 > shape.queue_bytes {
                continue;
            }
            let takes = Duration::from_secs_f64(length as f64 * 8.0 / shape.rate_bps);
            idle_at = idle_at.max(now) + takes;
            leaves = idle_at;
        }
        if send.send((leaves + delay, packet[..length].to_vec())).is_err() {
            return;
        }
    }
}

fn give(tap: &File, receive: &Receiver<Due>) {
    while let Ok((at, packet)) = receive.recv() {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        // A tap that is down takes nothing, as a link to nowhere.
        let _ = { tap }.write(&packet);
    }
}

/// A new tap of the calling thread's namespace.
fn attach(name: &str) -> File {
    // From the kernel's user interface, linux/if_tun.h: a type with a direction, as x86-64 and arm64 write it.
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun").expect("taps");
    // SAFETY: all bits zero are a request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the kernel reads and writes the request, which outlives the call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
    assert_eq!(done, 0, "{name}: {}", std::io::Error::last_os_error());
    file
}
