//! Traffic that passes while a port's queues are exchanged, on the kernel of this machine or of a guest.

use nix::sys::socket::{setsockopt, sockopt};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_port::Port;
use vmcc_testkit::netns::run;
use vmcc_testkit::port::{Pair, config};

/// Destination of the datagrams.
const TO: &str = "10.78.0.2:5661";

/// Packets that pass a served port before it is detached, and the time for that on a busy machine.
const SERVED_PACKETS: u64 = 500;
const SERVED_TIMEOUT: Duration = Duration::from_secs(30);

/// Counts of numbered datagrams.
struct Passed {
    sent: u32,
    lost: u32,
    /// Came behind one that was sent later.
    late: u32,
}

/// Runs `action` while datagrams leave at some 60 Mbit/s.
fn passing(pair: &Pair, action: impl FnOnce()) -> Passed {
    let receiver = pair.b.within(|| UdpSocket::bind(TO).unwrap());
    setsockopt(&receiver, sockopt::RcvBufForce, &(64 << 20)).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let sender = pair.a.within(|| UdpSocket::bind("10.78.0.1:0").unwrap());
    let (ended, all_sent) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let sent = scope.spawn(|| {
            let sent = send_until(&sender, &ended);
            all_sent.store(true, Ordering::Relaxed);
            sent
        });
        let received = scope.spawn(|| received(&receiver, &all_sent));
        let end = End(&ended);
        thread::sleep(Duration::from_millis(100));
        action();
        thread::sleep(Duration::from_millis(100));
        drop(end);
        let (sent, (count, late)) = (sent.join().unwrap(), received.join().unwrap());
        Passed { sent, lost: sent - count, late }
    })
}

/// Ends the sender, also when a check fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Five datagrams in every millisecond; how many.
fn send_until(socket: &UdpSocket, ended: &AtomicBool) -> u32 {
    let mut sent = 0_u32;
    let mut datagram = [0; 1448];
    while !ended.load(Ordering::Relaxed) {
        for _ in 0..5 {
            datagram[..4].copy_from_slice(&sent.to_ne_bytes());
            sent += u32::from(socket.send_to(&datagram, TO).is_ok());
        }
        thread::sleep(Duration::from_millis(1));
    }
    sent
}

/// Counts datagrams that arrive, and those of them that are late. A busy machine may hold packets longer than the socket
/// waits, so silence is the end only once all are sent.
fn received(socket: &UdpSocket, all_sent: &AtomicBool) -> (u32, u32) {
    let (mut count, mut late, mut highest) = (0, 0, 0);
    let mut datagram = [0; 2048];
    loop {
        let no_more = all_sent.load(Ordering::Relaxed);
        if socket.recv(&mut datagram).is_err() {
            if no_more {
                return (count, late);
            }
            continue;
        }
        let number = u32::from_ne_bytes(datagram[..4].try_into().unwrap());
        count += 1;
        late += u32::from(number < highest);
        highest = highest.max(number);
    }
}

/// Serves the port for a while, again and again; how many packets its queues dropped.
fn exchange(pair: &Pair, settings: &str, rounds: usize) -> u64 {
    let once = || {
        let port = Port::attach_in(&pair.netns(), "p0", &config(settings)).unwrap_or_else(|e| panic!("{e}"));
        let begun = Instant::now();
        while port.stats().unwrap().classes[0].packets < SERVED_PACKETS {
            assert!(begun.elapsed() < SERVED_TIMEOUT, "traffic passes: {:?}", port.stats());
            thread::sleep(Duration::from_millis(10));
        }
        let stats = port.detach().unwrap();
        thread::sleep(Duration::from_millis(50));
        stats.classes.iter().map(|class| class.drops_full + class.drops_other).sum::<u64>()
    };
    (0..rounds).map(|_| once()).sum()
}

/// Fails if a port loses what no full queue dropped while it is attached and detached `rounds` times.
pub fn exchanges_without_loss(rounds: usize) {
    let pair = Pair::new();
    let settings = [
        "rate = '200mbit'",
        // Its queue stays; clsact comes and goes.
        "phantom = 0.9\nmarking = { rule = 'threshold', at = '30kB' }",
        "vm = { name = 'db', rate = '200mbit', share = 'shared' }",
    ];
    // The kernel's choice, which is none for veth; somebody's queue, which is put back.
    for (queue, settings) in
        settings.map(|s| (None, s)).into_iter().chain([(Some("bfifo limit 3000000"), settings[0])])
    {
        if let Some(queue) = queue {
            run(&format!("tc -n {} qdisc replace dev p0 root handle 7: {queue}", pair.a));
        }
        let before = pair.queues();
        let mut dropped = 0;
        let passed = passing(&pair, || dropped = exchange(&pair, settings, rounds));
        let Passed { sent, lost, late } = passed;
        println!(
            "{queue:?}, {settings:?}: {lost} of {sent} lost ({dropped} by full queues), {late} late, {} exchanges",
            2 * rounds
        );
        assert_eq!(u64::from(lost), dropped, "lost, dropped by queues");
        assert_eq!(pair.queues(), before);
        let links = run(&format!("ip -n {} link", pair.a));
        assert!(!links.contains("vmcch") && !links.contains("vmccr"), "no device stays: {links}");
    }
}
