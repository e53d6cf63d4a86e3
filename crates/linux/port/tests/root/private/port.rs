//! A port of a virtual switch: rates, marks, lifetime. Needs root: without it these tests fail, they do not skip.

use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_port::{Port, PortError, attached};
use vmcc_testkit::netns::{Server, run};
use vmcc_testkit::port::{Pair, client, config, iperf, socket_min_rtt_ns};

/// Packets of full size that wait for 0.6 s at 2 Mbit/s: looks at the queue are seldom that late.
const FULL_PKT: u64 = 100;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

fn attach(pair: &Pair, text: &str) -> Port {
    Port::attach_in(&pair.netns(), "p0", &config(text)).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn root_port_one_class_is_capped_and_marks() {
    let pair = Pair::new();
    let before = pair.queues();
    let port = attach(&pair, "rate = '100mbit'\nmarking = { rule = 'threshold', at = '30kB' }");
    let rate = iperf(&pair, 5601, "-t 2");
    let stats = port.detach().unwrap();
    println!("{:.1} Mbit/s {stats:?}", rate / 1e6);
    let class = &stats.classes[0];
    assert!(class.marked > 2 && class.drops_full == 0, "{class:?}");
    assert!(class.max_backlog_bytes < 400_000, "{class:?}");
    assert!(rate < 100e6, "{rate}");
    assert_eq!(pair.queues(), before, "as before");
}

/// Sends datagrams until told to stop; the socket's buffer holds about 90 that wait.
fn flood(stop: &AtomicBool) {
    let socket = UdpSocket::bind("10.78.0.1:0").unwrap();
    while !stop.load(Relaxed) {
        socket.send_to(&[0; 1448], "10.78.0.2:9").unwrap();
    }
}

/// Least and most rate at which bytes left in two seconds or more, by the clock before and after each look, within 2 % of each other;
/// none if the queue was not full.
fn served_bps(port: &Port) -> Option<[f64; 2]> {
    let look = || {
        let before = Instant::now();
        let class = &port.stats().unwrap().classes[0];
        // Dropped ones were of full size, like the others.
        let dropped_bytes = class.drops_full * class.bytes / class.packets.max(1);
        let left = class.bytes - class.backlog_bytes - dropped_bytes;
        (class.backlog_packets >= FULL_PKT).then_some((before, left, Instant::now()))
    };
    thread::sleep(LOOK_INTERVAL);
    let begin = look()?;
    loop {
        thread::sleep(LOOK_INTERVAL);
        let end = look()?;
        let (shortest, longest) = (end.0 - begin.2, end.2 - begin.0);
        if shortest >= Duration::from_secs(2) && longest <= shortest.mul_f64(1.02) {
            return Some([longest, shortest].map(|time| (end.1 - begin.1) as f64 * 8.0 / time.as_secs_f64()));
        }
    }
}

/// A full queue leaves the rate to the port alone, however busy the machine is: at this rate a timer may be late by two packets, 12 ms,
/// before the port loses capacity.
#[test]
fn root_port_serves_a_full_queue_at_its_rate() {
    const RATE_BPS: f64 = 2e6;
    let pair = Pair::new();
    let port = attach(&pair, "rate = '2mbit'");
    let stop = AtomicBool::new(false);
    let served = thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| pair.a.within(|| flood(&stop)));
        }
        let until = Instant::now() + Duration::from_secs(60);
        let mut served = None;
        while served.is_none() && Instant::now() < until {
            served = served_bps(&port);
        }
        stop.store(true, Relaxed);
        served
    });
    let [least, most] = served.expect("two seconds with a full queue");
    println!("{least:.0} to {most:.0} bit/s");
    assert!(least < RATE_BPS * 1.03 && most > RATE_BPS * 0.9, "{least:.0} to {most:.0} bit/s");
}

#[test]
fn root_port_keeps_earlier_and_foreign_filters() {
    let pair = Pair::new();
    let tc = |command: &str| run(&format!("tc -n {} {command}", pair.a));
    // A queue and a place for filters of somebody else's: both stay.
    tc("qdisc add dev p0 root handle 7: bfifo limit 77777");
    tc("qdisc add dev p0 clsact");
    let before = pair.queues();
    let port = attach(&pair, "rate = '100mbit'");
    port.detach().unwrap();
    assert_eq!(pair.queues(), before);
    tc("qdisc del dev p0 clsact");
    // A filter that came while the port was served keeps its place.
    let port = attach(&pair, "rate = '100mbit'");
    let filter = ["filter", "add", "dev", "p0", "ingress", "bpf", "bytecode", "1,6 0 0 0,"];
    assert!(Command::new("tc").args(["-n", &pair.a.0]).args(filter).status().unwrap().success());
    port.detach().unwrap();
    assert!(tc("filter show dev p0 ingress").contains("bpf"));
    assert_eq!(pair.queues(), before);
}

#[test]
fn root_port_is_cleaned_after_a_killed_process() {
    let pair = Pair::new();
    run(&format!("tc -n {} qdisc add dev p0 root handle 7: bfifo limit 77777", pair.a));
    let before = pair.queues();
    attach(&pair, "rate = '100mbit'").keep();
    // What a kill between taking the program off and removing the queues leaves, or between making both.
    run(&format!("tc -n {} filter del dev p0 egress", pair.a));
    let port = attach(&pair, "rate = '200mbit'");
    assert_eq!(port.stats().unwrap().rate_bps, Some(200_000_000));
    port.detach().unwrap();
    assert_eq!(pair.queues(), before);
}

#[test]
fn root_port_is_served_once_and_survives_its_process() {
    let pair = Pair::new();
    let port = attach(&pair, "rate = '100mbit'");
    let again = Port::attach_in(&pair.netns(), "p0", &config("rate = '1gbit'"));
    assert!(matches!(again, Err(PortError::Held { .. })), "{:?}", again.err());
    port.keep();
    pair.a.within(|| {
        assert_eq!(attached().unwrap(), ["p0"]);
        let again = Port::attach("p0", &config("rate = '1gbit'"));
        assert!(matches!(again, Err(PortError::AlreadyAttached { .. })), "{:?}", again.err());
        let mut port = Port::adopt("p0").unwrap_or_else(|e| panic!("{e}"));
        port.reconfigure(&config("rate = '200mbit'")).unwrap();
        assert_eq!(port.stats().unwrap().rate_bps, Some(200_000_000));
        port.detach().unwrap();
        assert_eq!(attached().unwrap(), Vec::<String>::new());
        assert!(matches!(Port::adopt("p0"), Err(PortError::NotAttached { .. })));
        assert!(matches!(Port::adopt("p9"), Err(PortError::NoSuchPort { .. })));
    });
}

/// Sends for two seconds, and asks sockets and port for the RTT after one.
fn rtts(pair: &Pair, port: &Port, number: u16, options: &str) -> (u64, u64) {
    let _server = Server::start(&pair.b, number);
    thread::scope(|scope| {
        let transfer = scope.spawn(|| client(pair, number, &format!("-t 2 {options}")));
        thread::sleep(Duration::from_secs(1));
        let socket = socket_min_rtt_ns(pair, number);
        let measured = port.stats().unwrap();
        println!("{options}: socket {socket} ns, port {:?} ns ({})", measured.rtt_ns, measured.rtt_samples);
        transfer.join().unwrap();
        assert!(measured.rtt_samples > 20, "{measured:?}");
        (socket, measured.rtt_ns.unwrap())
    })
}

#[test]
fn root_port_measures_the_rtt_of_passing_flows() {
    let pair = Pair::new();
    // Data that leaves, data that comes in; by echoed timestamps, and by acknowledgment numbers.
    for (number, options, timestamps) in
        [(5611, "", "1"), (5612, "-R", "1"), (5613, "-6", "1"), (5614, "", "0")]
    {
        pair.a.sysctl("ipv4/tcp_timestamps", timestamps);
        let port = attach(&pair, "rate = '100mbit'\nmarking = { rule = 'mq-ecn', lambda = 1.0 }");
        assert_eq!(port.stats().unwrap().rtt_ns, None, "nothing has passed");
        let (socket, measured) = rtts(&pair, &port, number, options);
        // Both have the shortest of their own packets' round trips, which a busy machine delays alike but not by the same. What is
        // less than a packet's time at the port's rate moves no threshold.
        let packet_ns = 1500 * 8 * 10;
        let near = |a: u64, b: u64| a < 4 * b + packet_ns;
        assert!(near(measured, socket) && near(socket, measured), "{options}: {measured} ns, {socket} ns");
        let stats = port.detach().unwrap();
        let class = &stats.classes[0];
        assert!(class.threshold_bytes.is_some() && (class.marked > 2 || options == "-R"), "{stats:?}");
    }
}

#[test]
fn root_port_buffers_of_one_and_two_packets_carry_tcp() {
    const SENT: u64 = 20;
    let pair = Pair::new();
    run(&format!("ip -n {} neigh replace 10.78.0.2 lladdr 02:00:00:00:00:02 dev p0", pair.a));
    let socket = pair.a.within(|| UdpSocket::bind("0.0.0.0:0").expect("a socket"));
    for held in [1, 2] {
        // A packet of full size leaves in 1.5 s.
        let port =
            attach(&pair, &format!("rate = '8kbit'\nbuffer = '{held}pkt'\nmarking = {{ rule = 'mq-ecn' }}"));
        (0..SENT).for_each(|_| drop(socket.send_to(&[0; 1472], "10.78.0.2:9")));
        let stats = port.stats().unwrap();
        let class = &stats.classes[0];
        // More than were sent, if the host itself says something.
        assert!(class.packets >= SENT && class.backlog_packets == held, "{class:?}");
        // The end of the buffer is overloaded, too.
        let dropped = class.drops_full + class.drops_overload;
        let passed = class.packets - class.backlog_packets - dropped;
        assert!(
            (1..=4).contains(&passed) && class.drops_other == 0,
            "the bucket is full at first: {class:?}"
        );
        port.detach().unwrap();
    }
    run(&format!("ip -n {} neigh del 10.78.0.2 dev p0", pair.a));
    let _port = attach(&pair, "rate = '20mbit'\nbuffer = '1pkt'\nmarking = { rule = 'mq-ecn' }");
    let _server = Server::start(&pair.b, 5621);
    client(&pair, 5621, "-n 1M");
}
