//! Amount of data that a receiver accepts without reading: the kernel and the simulator, with the same buffer.

use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;
use vmcc_scenario::{Document, Overrides};
use vmcc_sim::{Options, run_case};
use vmcc_testkit::netns::{Namespace, join};

/// Writes until nothing has been taken for half a second.
fn fill(mut sender: &TcpStream) {
    let mut idle = 0;
    while idle < 50 {
        match sender.write(&[0; 1 << 16]) {
            Ok(_) => idle = 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                idle += 1;
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Payload that waits to be read, and the memory that it takes.
fn on_the_kernel(first: u64) -> (u64, u64) {
    let (a, b) = (Namespace::new("wa"), Namespace::new("wb"));
    join(&a, &b, "v0", "10.97.1");
    for end in [&a, &b] {
        end.sysctl("ipv4/tcp_rmem", &format!("4096 {first} 6291456"));
    }
    let listener = b.within(|| TcpListener::bind("10.97.1.2:5000").expect("listen"));
    let sender = a.within(|| TcpStream::connect("10.97.1.2:5000").expect("connect"));
    let (_receiver, _) = listener.accept().expect("accept");
    sender.set_nonblocking(true).expect("nonblocking");
    fill(&sender);
    let sockets = b.run("ss -Htmn state established");
    let waiting = sockets.split_whitespace().next().and_then(|word| word.parse().ok());
    let memory = sockets.split("skmem:(r").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok());
    (waiting.expect("Recv-Q"), memory.expect("skmem"))
}

/// Payload that the simulator's receiver has accepted when its window is shut.
fn on_the_simulator(most: u64, packet_memory: u64) -> u64 {
    let text = format!(
        "title = 't'\nduration = '4s'\n[host]\nprotocol = 'tcp'\nreceive_buffer = '{most}B'\n\
         packet_memory = '{packet_memory}B'\n[topology]\nkind = 'parallel-paths'\npaths = 1\nrate = '1gbit'\n\
         delay = '10us'\n[[traffic]]\nkind = 'bulk'\nread_rate = '2kbit'\n"
    );
    let plan = Document::parse("t", &text).and_then(|d| d.plan(&Overrides::default())).expect("a plan");
    let output = run_case(&plan.cases[0], 1, &Options { threads: 1, ..Options::default() }).expect("a run");
    (output.metrics.goodput_bps.expect("goodput") * 4.0 / 8.0).round() as u64
}

#[test]
fn root_receive_window_closes_like_the_kernel() {
    for first in [131_072, 65_536, 16_384] {
        let (accepted, memory) = on_the_kernel(first);
        let packet_memory = (1448 * memory / accepted).max(1500);
        let simulated = on_the_simulator(first, packet_memory);
        // Here windows are whole segments.
        let tolerance = accepted / 20 + 1448;
        assert!(
            simulated.abs_diff(accepted) <= tolerance,
            "tcp_rmem {first}: {accepted} on the kernel in {memory}, {simulated} simulated"
        );
    }
}
