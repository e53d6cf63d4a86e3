//! A virtual machine (QEMU, virtio-net) on a tap of this thread's network namespace.

use super::traffic::Measured;
use super::{Host, run};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vmcc_lab::guest::{Guest, GuestError, GuestOptions, Stream, kernel};

pub const ADDRESS: &str = "10.79.0.100";
/// The VM's server listens here, and its client connects there.
pub const TO_VM: u16 = 5301;
pub const FROM_VM: u16 = 5302;

/// How often something that takes the VM's time is tried again, and how long apart.
const TRIES: u32 = 300;
const PAUSE: Duration = Duration::from_millis(200);

/// What the VM runs: a server, and a client that reports each time it got through.
const PROGRAM: &str = r#"
modprobe virtio_net
while [ ! -e /sys/class/net/eth0 ]; do sleep 0.1; done
ip link set eth0 up; ip addr add ADDRESS/24 dev eth0
sysctl -qw net.ipv4.tcp_congestion_control=reno net.ipv4.tcp_ecn=1
(while :; do iperf3 -s -1 -p TO_VM; done) >/dev/null 2>&1 &
while :; do
	iperf3 -J -i 0.1 -c PEER -p FROM_VM -t 4 >/tmp/report 2>/dev/null
	grep -q '"error"' /tmp/report || { cat /tmp/report; echo END; }
	sleep 0.3
done
"#;

/// A running VM; ends with this.
pub struct Vm {
    stop: &'static AtomicBool,
    said: Arc<Mutex<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Vm {
    /// Boots one on `tap`; it sends to `peer`.
    pub fn start(tap: &str, peer: &str) -> Self {
        let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let said = Arc::new(Mutex::new(String::new()));
        let options = GuestOptions {
            tap: Some(tap.to_owned()),
            stop: Some(stop),
            time_limit: Duration::from_secs(240),
            ..GuestOptions::default()
        };
        let program = PROGRAM
            .replace("ADDRESS", ADDRESS)
            .replace("PEER", peer)
            .replace("TO_VM", &TO_VM.to_string())
            .replace("FROM_VM", &FROM_VM.to_string());
        let (image, heard) = (kernel("6.18").unwrap_or_else(|e| panic!("{e}")), said.clone());
        let thread = thread::spawn(move || {
            let mut listen = |stream, text: &[u8]| {
                if stream == Stream::Stdout {
                    heard.lock().unwrap().push_str(&String::from_utf8_lossy(text));
                }
            };
            match Guest::new(options).run_streaming(&image, "sh", ["-c", &program], &mut listen) {
                Err(GuestError::Interrupted) => {}
                other => panic!("the VM ended by itself: {other:?}"),
            }
        });
        Self { stop, said, thread: Some(thread) }
    }

    /// iperf3 from a host to the VM, once it is up.
    pub fn receive(&self, from: &Host) -> Measured {
        let client = format!("iperf3 -J -i 0.1 -c {ADDRESS} -p {TO_VM} -t 4 --connect-timeout 2000");
        let words = format!("netns exec {} {client}", from.namespace.0);
        for _ in 0..TRIES {
            let output = std::process::Command::new("ip").args(words.split(' ')).output().expect("ip");
            let report = String::from_utf8_lossy(&output.stdout);
            // Its exit code says nothing.
            if !report.contains("\"error\"") {
                return Measured::from_json(&report);
            }
            self.wait();
        }
        panic!("the VM cannot be reached");
    }

    /// iperf3 from the VM to a host.
    pub fn send(&self, to: &Host) -> Measured {
        self.said.lock().unwrap().clear();
        let _server = super::traffic::Server::start(&to.namespace, FROM_VM);
        for _ in 0..TRIES {
            if let Some((report, _)) = self.said.lock().unwrap().split_once("END") {
                return Measured::from_json(report);
            }
            self.wait();
        }
        panic!("the VM sent nothing");
    }

    fn wait(&self) {
        assert!(self.thread.as_ref().is_some_and(|thread| !thread.is_finished()), "the VM ended");
        thread::sleep(PAUSE);
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it panicked with has been printed.
            let _ = thread.join();
        }
    }
}

/// A tap that is a port of the bridge `br0`.
pub fn add_tap(tap: &str) {
    run(&format!("ip tuntap add {tap} mode tap"));
    run(&format!("ip link set {tap} master br0"));
    run(&format!("ip link set {tap} up"));
}
