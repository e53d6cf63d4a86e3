//! Conformance tests of a port's backends, one body per property: HTB on this host, the BPF queueing discipline in guests. Rates are low
//! enough for emulation.

use super::traffic::{Inbox, send_datagrams, transfer, transfers};
use super::{Bridge, config, run};
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};
use vmcc_bpf::bench::Statistics;
use vmcc_port::{Backend, Port, PortStats};
use vmcc_testkit::control::{payload_bps, tbf_share};

const RATE_MBIT: u32 = 40;
/// Deep enough that the queue never runs dry while a sender waits for a processor.
const AT_200_KB: &str = "marking = { rule = 'threshold', at = '200kB' }";
const AT_30_KB: &str = "marking = { rule = 'threshold', at = '30kB' }";
/// Destination port of the first of the classes of [`classes`]; those of the others follow.
const FIRST_PORT: u16 = 5201;

/// Nothing but a full queue drops.
const TAIL_DROP: &str = "not_ect = 'queue'\noverload = 1.0";

/// A port's configuration with a class for each of some ports, by weight.
fn classes(backend: &str, weights: &[u32], rest: &str) -> String {
    let mut text = format!("rate = '40mbit'\nqueue = 'drr'\nbackend = '{backend}'\n{TAIL_DROP}\n{rest}\n");
    for (port, weight) in (FIRST_PORT..).zip(weights) {
        text +=
            &format!("[[class]]\nname = 'to{port}'\nweight = {weight}\nfilter = [{{ to_port = {port} }}]\n");
    }
    text
}

/// Bytes that each class has sent.
fn sent(port: &Port) -> Vec<u64> {
    let classes = port.stats().unwrap().classes;
    classes.iter().map(|class| class.bytes.saturating_sub(class.backlog_bytes)).collect()
}

/// Bytes that each class sends in three seconds of `running`, from when all of them have a queue; none if that is too late.
fn sent_while_all_wait(port: &Port, running: impl Fn() -> bool) -> Vec<u64> {
    while running() && port.stats().unwrap().classes.iter().any(|class| class.backlog_bytes < 100_000) {
        thread::sleep(Duration::from_millis(10));
    }
    let before = sent(port);
    thread::sleep(Duration::from_secs(3));
    let after = if running() { sent(port) } else { Vec::new() };
    after.iter().zip(before).map(|(after, before)| after - before).collect()
}

/// Classes that wait share the port by their weights, within its rate; what was there before comes back. All was sent
/// before, so the speed of this machine plays no part.
pub fn shares_follow_weights_within_the_rate(backend: &str, kind: Backend, weights: &[u32]) {
    let verdict = |(bytes, elapsed): &(Vec<u64>, Duration)| {
        assert_shares(bytes, weights);
        let rate = bytes.iter().sum::<u64>() as f64 * 8.0 / elapsed.as_secs_f64();
        println!("{kind:?} {weights:?}: {bytes:?} bytes, {rate:.0} bit/s");
        assert!(rate < 2.04e6, "{rate} bit/s instead of 2 Mbit/s");
        // Timers of an emulated machine (the BPF queueing discipline's) may be late by any time.
        assert!(kind == Backend::Bpf || rate > 1.94e6, "{rate} bit/s instead of 2 Mbit/s");
    };
    let control = |_: &_| tbf_share(2, Duration::ZERO, 1);
    vmcc_testkit::judge(|| sent_of_what_waits(backend, kind, weights), verdict, control);
}

/// Each class's part of what was sent is that of its weight.
fn assert_shares(sent: &[u64], weights: &[u32]) {
    let (total, sum) = (sent.iter().sum::<u64>() as f64, weights.iter().sum::<u32>());
    for (sent, weight) in sent.iter().zip(weights) {
        let error = *sent as f64 / total * f64::from(sum) / f64::from(*weight) - 1.0;
        assert!(error.abs() < 0.05, "{sent} of {total} bytes instead of {weight}/{sum}: {error:.3}");
    }
}

/// Bytes that each class sends at 2 Mbit/s within some time, and the time.
fn sent_of_what_waits(backend: &str, kind: Backend, weights: &[u32]) -> (Vec<u64>, Duration) {
    let bridge = Bridge::new(2);
    let [from, sink] = &bridge.hosts[..] else { panic!("two hosts") };
    let before = bridge.queues(1);
    let port = bridge.attach(1, &classes(backend, weights, AT_30_KB).replace("40mbit", "2mbit"));
    let each: Vec<u16> = (FIRST_PORT..).zip(weights).map(|(to, _)| to).collect();
    send_datagrams(from, sink, &each.repeat(900));
    let (start, first) = (Instant::now(), sent(&port));
    // A turn more or less is 3 % of what the lightest class sends in half of that.
    thread::sleep(Duration::from_secs(5));
    let (elapsed, second) = (start.elapsed(), sent(&port));
    let stats = port.detach().unwrap();
    assert_eq!(stats.backend, kind);
    assert_eq!(bridge.queues(1), before, "as before");
    assert!(stats.classes.iter().all(|class| class.backlog_packets > 0), "all wait: {stats:?}");

    (second.iter().zip(first).map(|(second, first)| second - first).collect(), elapsed)
}

/// The same with TCP, at a rate that takes a machine of some speed.
pub fn shares_hold_with_tcp(backend: &str, weights: &[u32]) {
    let verdict = |tcp: &WithTcp| {
        println!("{weights:?}: {tcp:?}");
        assert_eq!(tcp.sent.len(), weights.len(), "all classes wait in time");
        assert_shares(&tcp.sent, weights);
        assert!((0.93..1.02).contains(&tcp.in_use), "{} of the rate", tcp.in_use);
        for class in &tcp.stats.classes {
            let drops = class.drops_full + class.drops_other;
            assert!(class.marked > 0 && drops == 0, "marks before it drops: {class:?}");
        }
    };
    let connections = 2 * u32::try_from(weights.len()).expect("few classes");
    let control = |_: &_| tbf_share(RATE_MBIT, Duration::ZERO, connections);
    vmcc_testkit::judge(|| with_tcp(backend, weights), verdict, control);
}

/// Classes that all send by TCP.
#[derive(Debug)]
struct WithTcp {
    /// Bytes of each while all waited.
    sent: Vec<u64>,
    /// Share of the rate that all carried together.
    in_use: f64,
    stats: PortStats,
}

fn with_tcp(backend: &str, weights: &[u32]) -> WithTcp {
    let count = weights.len();
    let bridge = Bridge::new(u8::try_from(count + 1).expect("few classes"));
    let sink = &bridge.hosts[count];
    let port = bridge.attach(count, &classes(backend, weights, AT_200_KB));
    let pairs: Vec<_> =
        bridge.hosts.iter().zip(FIRST_PORT..).map(|(host, port)| (host, sink, port)).collect();
    let (sent, measured) = thread::scope(|scope| {
        let transfers = scope.spawn(|| transfers(&pairs[..count], "-t 9 -O 3 -P 2"));
        let sent = sent_while_all_wait(&port, || !transfers.is_finished());
        (sent, transfers.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
    });
    let in_use = measured.iter().map(|m| m.goodput_bps).sum::<f64>() / payload_bps(RATE_MBIT);
    WithTcp { sent, in_use, stats: port.detach().unwrap() }
}

/// A queue of ECN traffic stays near its threshold; one of legacy traffic is never marked, and dropped at its limit.
pub fn marks_ecn_at_the_threshold_and_drops_the_rest_at_its_limit(backend: &str) {
    let bridge = Bridge::new(3);
    let [ecn, legacy, sink] = &bridge.hosts[..] else { panic!("three hosts") };
    legacy.namespace.within(|| std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "0").unwrap());
    let text = format!(
        "rate = '40mbit'\nqueue = 'drr'\nbackend = '{backend}'\n{TAIL_DROP}\n{AT_30_KB}\n\
         [[class]]\nname = 'ecn'\nfilter = [{{ to_port = 5201 }}]\n\
         [[class]]\nname = 'legacy'\nbuffer = '20pkt'\n"
    );
    let port = bridge.attach(2, &text);
    let (measured, mut backlogs) = thread::scope(|scope| {
        let both = scope.spawn(|| transfers(&[(ecn, sink, 5201), (legacy, sink, 5202)], "-t 4"));
        let mut backlogs: Vec<[u64; 2]> = Vec::new();
        while !both.is_finished() {
            let classes = port.stats().unwrap().classes;
            backlogs.push([classes[0].backlog_bytes, classes[1].backlog_packets]);
            thread::sleep(Duration::from_millis(20));
        }
        (both.join().unwrap(), backlogs)
    });
    let stats = port.detach().unwrap();
    let most_legacy = backlogs.iter().map(|b| b[1]).max().unwrap_or(0);
    backlogs.sort_unstable();
    let (p50, p90) = (backlogs[backlogs.len() / 2][0], backlogs[backlogs.len() * 9 / 10][0]);
    println!("{measured:?}\n{stats:?}\nbacklog p50 {p50} p90 {p90} of {} samples", backlogs.len());
    let [first, second] = &stats.classes[..] else { panic!("two classes") };
    assert!(first.marked > 0 && first.drops_full == 0, "marked instead of dropped: {first:?}");
    // Reno halves its window at a mark: around the threshold, never twice as much for long.
    assert!(p50 < 60_000 && (1_000..80_000).contains(&p90), "p50 {p50} p90 {p90}");
    assert_eq!(second.marked, 0, "not ECN-capable: {second:?}");
    assert!(second.not_ect > 0 && second.drops_full > 0, "dropped instead: {second:?}");
    assert!(most_legacy <= 20, "{most_legacy} packets in a queue of 20");
    assert!(measured[1].retransmits >= second.drops_full / 2, "the sender knows of them: {measured:?}");
}

/// Rates, classes and thresholds change while packets wait, and none is lost.
pub fn changes_under_traffic_lose_no_packet(backend: &str) {
    let bridge = Bridge::new(2);
    let [from, sink] = &bridge.hosts[..] else { panic!("two hosts") };
    let wide = config(&classes(backend, &[4, 2, 1], AT_30_KB));
    let narrow = config(&format!(
        "rate = '20mbit'\nqueue = 'drr'\nbackend = '{backend}'\n{TAIL_DROP}\n\
         marking = {{ rule = 'threshold', at = '60kB' }}\n\
         [[class]]\nname = 'one'\n[[class]]\nname = 'two'\n"
    ));
    let mut port = bridge.attach(1, &classes(backend, &[4, 2, 1], AT_30_KB));
    let measured = thread::scope(|scope| {
        let running = scope.spawn(|| transfer(from, sink, 5202, "-t 4"));
        thread::sleep(Duration::from_millis(800));
        for _ in 0..4 {
            port.reconfigure(&narrow).unwrap();
            thread::sleep(Duration::from_millis(300));
            port.reconfigure(&wide).unwrap();
            thread::sleep(Duration::from_millis(300));
        }
        running.join().unwrap()
    });
    let stats = port.detach().unwrap();
    println!("{measured:?}\n{stats:?}");
    assert!(stats.classes.iter().all(|class| class.drops_full + class.drops_other == 0), "{stats:?}");
    assert_eq!(from.segments_lost_to(sink), 0, "{measured:?}");
    assert!(measured.goodput_bps > 10e6, "{measured:?}");
}

/// Datagrams that wait at a slow port; `to` are the TCP and UDP ports that choose their class, in this order.
fn fill(bridge: &Bridge, to: &[u16]) -> Inbox {
    let [from, sink] = &bridge.hosts[..] else { panic!("two hosts") };
    let inbox = Inbox::open(sink, FIRST_PORT..FIRST_PORT + 2);
    // A host without a neighbour entry queues its packets.
    send_datagrams(from, sink, &[FIRST_PORT]);
    assert_eq!(inbox.receive(1).len(), 1);
    send_datagrams(from, sink, to);
    inbox
}

/// MQ-ECN's thresholds are the weights' shares of C x RTT x lambda while all classes wait. What waits was sent before:
/// the speed of this machine plays no part.
pub fn thresholds_follow_the_round(backend: &str) {
    let weights: [usize; 3] = [4, 2, 1];
    let bridge = Bridge::new(2);
    let [from, sink] = &bridge.hosts[..] else { panic!("two hosts") };
    let rule = "marking = { rule = 'mq-ecn', rtt = '800ms', lambda = 1.0 }";
    let port = bridge
        .attach(1, &classes(backend, &weights.map(|weight| weight as u32), rule).replace("40mbit", "1mbit"));
    let sizes = |count: usize| -> Vec<u16> {
        (FIRST_PORT..).zip(weights).flat_map(|(to, weight)| vec![to; weight * count]).collect()
    };
    let batch = sizes(1).repeat(150);
    send_datagrams(from, sink, &batch);
    // Rounds pass; the packets that follow see what they took.
    thread::sleep(Duration::from_millis(1_200));
    send_datagrams(from, sink, &sizes(1));
    let stats = port.detach().unwrap();
    println!("{stats:?}");
    // 125,000 bytes/s x 0.8 s.
    let whole = 100_000.0;
    for (class, weight) in stats.classes.iter().zip(weights) {
        assert!(class.backlog_packets > 0, "all wait: {class:?}");
        let ideal = whole * weight as f64 / 7.0;
        let error = class.threshold_bytes.expect("a threshold") as f64 / ideal - 1.0;
        assert!(error.abs() < 0.2, "{:?} instead of {ideal}: {class:?}", class.threshold_bytes);
    }
}

/// The port stops being served while packets wait, and none of those is lost. (What arrives in the moment in which the
/// kernel changes a root queue the kernel itself drops: nothing arrives here.)
pub fn detaching_loses_no_waiting_packet(backend: &str) {
    let bridge = Bridge::new(2);
    let before = bridge.queues(1);
    let port = bridge.attach(1, &classes(backend, &[1, 1], AT_30_KB).replace("40mbit", "1mbit"));
    let inbox = fill(&bridge, &[FIRST_PORT, FIRST_PORT + 1].repeat(30));
    let waited: u64 = port.stats().unwrap().classes.iter().map(|class| class.backlog_packets).sum();
    assert!(waited > 20, "{waited} of 60 wait at 1 Mbit/s");
    port.detach().unwrap();
    assert_eq!(bridge.queues(1), before, "as before");
    assert_eq!(inbox.receive(60).len(), 60, "{waited} waited");
}

/// With strict priority the first class's packets overtake the second's.
pub fn the_first_class_comes_first(backend: &str) {
    let bridge = Bridge::new(2);
    let text = classes(backend, &[1, 1], "").replace("40mbit", "1mbit").replace("'drr'", "'priority'");
    let port = bridge.attach(1, &text);
    let (first, second) = (FIRST_PORT, FIRST_PORT + 1);
    let inbox = fill(&bridge, &[[second; 30], [first; 30]].concat());
    let order = inbox.receive(60);
    port.detach().unwrap();
    assert_eq!(order.len(), 60, "{order:?}");
    let last_of_first = order.iter().rposition(|port| *port == first).expect("some");
    let overtaken = order[last_of_first..].iter().filter(|port| **port == second).count();
    println!("{overtaken} of 30 overtaken: {order:?}");
    assert!(overtaken > 15, "{overtaken} of 30: {order:?}");
}

/// Within a class, a flow that sends a single datagram passes the queue of another one.
pub fn a_sparse_flow_comes_first_in_its_class(backend: &str) {
    let bridge = Bridge::new(2);
    let port = bridge.attach(
        1,
        &format!(
            "rate = '1mbit'\nbackend = '{backend}'\n{TAIL_DROP}\nmarking = {{ rule = 'threshold', at = '10kB' }}\n"
        ),
    );
    let (bulk, sparse) = (FIRST_PORT, FIRST_PORT + 1);
    let inbox = fill(&bridge, &[vec![bulk; 40], vec![sparse]].concat());
    let order = inbox.receive(41);
    let class = port.detach().unwrap().classes.remove(0);
    let before = order.iter().position(|port| *port == sparse).expect("it arrived");
    println!("after {before} of {}: {class:?}", order.len());
    assert!(order.len() == 41 && class.sparse > 0, "{class:?}");
    assert!(before < 10, "after {before} of the flow that waits");
}

/// A class further behind in the order has its guarantee while those ahead wait.
pub fn a_guarantee_comes_before_the_order(backend: &str) {
    let bridge = Bridge::new(2);
    let text = classes(backend, &[1, 1], "").replace("40mbit", "1mbit").replace("'drr'", "'priority'");
    let port = bridge
        .attach(1, &text.replace("name = 'to5202'\nweight = 1", "name = 'to5202'\nguarantee = '400kbit'"));
    let (first, second) = (FIRST_PORT, FIRST_PORT + 1);
    let inbox = fill(&bridge, &[first, second].repeat(60));
    let order = inbox.receive(120);
    port.detach().unwrap();
    assert_eq!(order.len(), 120, "{order:?}");
    // While the first class waits: 40 of 100.
    let last_of_first = order.iter().rposition(|port| *port == first).expect("some");
    let guaranteed = order[..last_of_first].iter().filter(|port| **port == second).count();
    println!("{guaranteed} before {last_of_first}: {order:?}");
    assert!((25..=55).contains(&guaranteed), "{guaranteed} before {last_of_first}: {order:?}");
}

/// Token debt from a low rate is repaid at the rate that follows.
pub fn a_raised_rate_holds_at_once(backend: &str) {
    const COUNT: usize = 6;
    let bridge = Bridge::new(2);
    let [from, sink] = &bridge.hosts[..] else { panic!("two hosts") };
    for host in [from, sink] {
        run(&format!("ip -n {} link set {} mtu 9000", bridge.namespace, host.port));
        run(&format!("ip -n {} link set e0 mtu 9000", host.namespace));
    }
    let rate = |rate: &str| format!("rate = '{rate}'\nbuffer = '200kB'\nbackend = '{backend}'\n");
    let mut port = bridge.attach(1, &rate("8kbit"));
    let inbox = fill(&bridge, &[]);
    let send = || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        // Nine seconds each at 8 kbit/s.
        (0..COUNT).for_each(|_| drop(socket.send_to(&[0; 8_900], (sink.address.as_str(), FIRST_PORT))));
    };
    from.namespace.within(send);
    let slow = inbox.receive(COUNT).len();
    assert!((1..COUNT).contains(&slow), "{slow} of {COUNT} at 8 kbit/s");
    port.reconfigure(&config(&rate("40mbit"))).unwrap();
    let fast = inbox.receive(COUNT - slow).len();
    println!("{slow}, then {fast}; {:?}", port.detach().unwrap());
    assert_eq!(slow + fast, COUNT, "the rest waits for a rate that is gone");
}

/// The kernel's statistics know what each program of the port takes.
pub fn run_times_are_counted(backend: &str) {
    let bridge = Bridge::new(2);
    let port = bridge.attach(1, &classes(backend, &[1, 1], AT_30_KB));
    let statistics = Statistics::enable().unwrap();
    let overhead = statistics.overhead_ns().unwrap();
    let inbox = fill(&bridge, &[FIRST_PORT, FIRST_PORT + 1].repeat(30));
    assert_eq!(inbox.receive(60).len(), 60);
    let times = port.run_times().unwrap();
    let own = port.detach().unwrap().backend == Backend::Bpf;
    println!("a program that does nothing: {overhead:.0} ns; {times:?}");
    assert!(overhead > 0.0);
    assert_eq!((times.enqueue.is_some(), times.dequeue.is_some()), (own, own), "{times:?}");
    // 60 datagrams passed and one before them, each by a call of its own; some kernels skip a call now and then.
    for program in [Some(times.leaving), times.enqueue, times.dequeue].into_iter().flatten() {
        assert!(program.calls > 55 && program.ns > 0, "{times:?}");
    }
}
