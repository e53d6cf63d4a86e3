//! A virtual machine (QEMU, virtio-net) on taps of this thread's network namespace.

use super::traffic::Measured;
use super::{Host, Namespace, Server, Vnic, multipath, run};
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vmcc_lab::guest::{Guest, GuestError, GuestOptions, Stream, kernel};

pub const ADDRESS: &str = "10.79.0.100";
const SECOND_ADDRESS: &str = "10.79.1.100";
/// The VM's server listens here, and its client connects there.
pub const TO_VM: u16 = 5301;
pub const FROM_VM: u16 = 5302;

/// Number of attempts at something that the VM needs time for, and the pause between two.
const TRIES: u32 = 300;
const PAUSE: Duration = Duration::from_millis(200);

/// Shell program of the VM: a server, and a client that prints the report of each successful run.
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

/// The test of this binary that is the program of a VM with two interfaces, and what tells it its peer's address.
const MULTIPATH_PROGRAM: &str = "guest::taps::vm_with_two_interfaces";
const PEER: &str = "VMCC_TEST_PEER";
/// Prefix of a measurement in the VM's output.
pub const MEASURED: &str = "measured: ";

/// A running VM; ends with this.
pub struct Vm {
    stop: &'static AtomicBool,
    said: Arc<Mutex<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Vm {
    /// Boots one on `tap`; it sends to `peer`.
    pub fn start(tap: &str, peer: &str) -> Self {
        let program = PROGRAM
            .replace("ADDRESS", ADDRESS)
            .replace("PEER", peer)
            .replace("TO_VM", &TO_VM.to_string())
            .replace("FROM_VM", &FROM_VM.to_string());
        Self::boot("6.18", &[tap], peer, "sh".into(), vec!["-c".to_owned(), program])
    }

    /// Boots one with two interfaces, which speaks MPTCP under vMCC.
    pub fn start_multipath(taps: [&str; 2], peer: &str) -> Self {
        Self::start_test("6.18", MULTIPATH_PROGRAM, taps, peer)
    }

    /// Boots one with two interfaces, whose program is a test of this binary.
    pub fn start_test(series: &str, test: &str, taps: [&str; 2], peer: &str) -> Self {
        let program = std::env::current_exe().expect("this binary");
        let arguments = [test, "--ignored", "--nocapture"].map(str::to_owned);
        Self::boot(series, &taps, peer, program.into_os_string(), arguments.to_vec())
    }

    fn boot(series: &str, taps: &[&str], peer: &str, program: OsString, arguments: Vec<String>) -> Self {
        let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let said = Arc::new(Mutex::new(String::new()));
        let options = GuestOptions {
            taps: taps.iter().map(|&tap| tap.to_owned()).collect(),
            stop: Some(stop),
            time_limit: Duration::from_secs(240),
            env: vec![(PEER.into(), peer.into())],
            ..GuestOptions::default()
        };
        let (image, heard) = (kernel(series).unwrap_or_else(|e| panic!("{e}")), said.clone());
        let thread = thread::spawn(move || {
            let mut listen = |stream, text: &[u8]| {
                let text = String::from_utf8_lossy(text);
                match stream {
                    Stream::Stdout => heard.lock().unwrap().push_str(&text),
                    Stream::Stderr => print!("VM: {text}"),
                }
            };
            match Guest::new(options).run_streaming(&image, program, arguments, &mut listen) {
                Err(GuestError::Interrupted) => {}
                other => panic!("the VM ended by itself: {other:?}"),
            }
        });
        Self { stop, said, thread: Some(thread) }
    }

    /// As [`Vm::receive`], for a VM with two interfaces.
    pub fn receive_multipath(&self, from: &Host) -> Measured {
        for _ in 0..TRIES {
            match multipath::send(from, ADDRESS, TO_VM, 4) {
                Ok(measured) => return measured,
                Err(_) => self.wait(),
            }
        }
        panic!("the VM cannot be reached");
    }

    /// As [`Vm::send`], for a VM with two interfaces.
    pub fn send_multipath(&self, to: &Host) -> Measured {
        self.said.lock().unwrap().clear();
        let _server = Server::start_multipath(&to.namespace, FROM_VM);
        self.measured()
    }

    /// Waits for a measurement of the VM's program, as long as that runs.
    pub fn measured<T: serde::de::DeserializeOwned>(&self) -> T {
        loop {
            let said = self.said.lock().unwrap().clone();
            let lines = said.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            if let Some(line) = lines.filter_map(|line| line.strip_prefix(MEASURED)).next() {
                return serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            }
            self.wait();
        }
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
        let _server = Server::start(&to.namespace, FROM_VM);
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

/// Program of a VM with two interfaces: serves, and sends to its peer each time that it listens.
pub fn run_multipath() {
    run("modprobe virtio_net");
    // As a namespace, so that it is a host like the others.
    let host = Host {
        namespace: Namespace::new("vm"),
        port: String::new(),
        address: ADDRESS.to_owned(),
        second: Some(Vnic { port: String::new(), address: SECOND_ADDRESS.to_owned() }),
    };
    let name = &host.namespace.0;
    for (number, address) in [ADDRESS, SECOND_ADDRESS].into_iter().enumerate() {
        while !std::path::Path::new(&format!("/sys/class/net/eth{number}")).exists() {
            thread::sleep(PAUSE);
        }
        run(&format!("ip link set eth{number} netns {name} name e{number}"));
        run(&format!("ip -n {name} addr add {address}/24 dev e{number}"));
        run(&format!("ip -n {name} link set e{number} up"));
    }
    let _vmcc = multipath::load();
    multipath::prepare(&host, multipath::Role::Both);
    let peer = std::env::var(PEER).expect("a peer");
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                Server::start_multipath(&host.namespace, TO_VM).wait();
            }
        });
        // Until the machine is switched off.
        loop {
            if let Ok(measured) = multipath::send(&host, &peer, FROM_VM, 4) {
                println!("{MEASURED}{}", serde_json::to_string(&measured).expect("JSON"));
            }
            thread::sleep(PAUSE);
        }
    })
}

/// A tap that is a port of the bridge `br0`.
pub fn add_tap(tap: &str) {
    run(&format!("ip tuntap add {tap} mode tap"));
    run(&format!("ip link set {tap} master br0"));
    run(&format!("ip link set {tap} up"));
}
