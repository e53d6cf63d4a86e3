//! Two taps joined by this process, as a hypervisor would: frames to the second arrive at once, IPv4 frames back take a
//! while.

use crate::netns::{Namespace, run};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const LONGEST_FRAME: usize = 1 << 16;
const ETHER_TYPE: std::ops::Range<usize> = 12..14;
const IPV4: [u8; 2] = [8, 0];

/// Ends with the taps, which [`Wire::cut`] removes.
#[derive(Debug)]
pub(super) struct Wire {
    threads: Vec<JoinHandle<()>>,
    port: String,
}

impl Wire {
    pub(super) fn join(a: &Namespace, b: &Namespace, port: &str, delay: Duration) -> Self {
        let [near, far] = [a, b].map(|ns| ns.within(|| tap(port)));
        for ns in [a, b] {
            run(&format!("ip -n {ns} link set {port} up"));
        }
        let (to_sender, due) = mpsc::channel::<(Instant, Vec<u8>)>();
        let [mut near_in, mut far_in] = [&near, &far].map(|tap| tap.try_clone().unwrap());
        let (mut near_out, mut far_out) = (near, far);
        let threads = vec![
            thread::spawn(move || frames(&mut near_in, |frame| drop(far_out.write(frame)))),
            thread::spawn(move || {
                frames(&mut far_in, |frame| {
                    let late = if frame[ETHER_TYPE] == IPV4 { delay } else { Duration::ZERO };
                    let _ = to_sender.send((Instant::now() + late, frame.to_vec()));
                });
            }),
            thread::spawn(move || deliver(&due, &mut near_out)),
        ];
        Self { threads, port: port.to_owned() }
    }

    pub(super) fn cut(&mut self, ends: [&Namespace; 2]) {
        for ns in ends {
            run(&format!("ip -n {ns} link del {}", self.port));
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A tap whose frames have no header of the driver's.
fn tap(name: &str) -> File {
    const SET_INTERFACE: nix::libc::Ioctl = 0x4004_54ca;
    const TAP_WITHOUT_HEADER: u16 = 0x1002;
    let file = File::options().read(true).write(true).open("/dev/net/tun").expect("root, CONFIG_TUN");
    // `struct ifreq`: the name, then flags.
    let mut request = [0_u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&TAP_WITHOUT_HEADER.to_ne_bytes());
    // SAFETY: the descriptor is open, and the request is as long as the kernel's structure.
    let made = unsafe { nix::libc::ioctl(file.as_raw_fd(), SET_INTERFACE, request.as_mut_ptr()) };
    assert_eq!(made, 0, "{name}: {}", std::io::Error::last_os_error());
    file
}

/// Until the tap is gone.
fn frames(tap: &mut File, mut each: impl FnMut(&[u8])) {
    let mut frame = vec![0; LONGEST_FRAME];
    while let Ok(length @ 14..) = tap.read(&mut frame) {
        each(&frame[..length]);
    }
}

/// In the order in which they are due: those without delay overtake.
fn deliver(due: &mpsc::Receiver<(Instant, Vec<u8>)>, tap: &mut File) {
    let mut waiting = std::collections::VecDeque::new();
    loop {
        let next: Option<Instant> = waiting.front().map(|(at, _)| *at);
        let wait = next.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
        match due.recv_timeout(wait.min(Duration::from_secs(3600))) {
            Ok((at, frame)) if at <= Instant::now() => drop(tap.write(&frame)),
            Ok(later) => waiting.push_back(later),
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if let Some((_, frame)) = waiting.pop_front() {
                    let _ = tap.write(&frame);
                }
            }
        }
    }
}
