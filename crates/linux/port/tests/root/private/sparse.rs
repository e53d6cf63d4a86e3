//! Priority for sparse flows of a class: how long a request waits, the order of a flow's packets, floods of sparse flows,
//! switching it on and off.

use etherparse::PacketBuilder;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_port::{ClassStats, Port};
use vmcc_system::diag::Diag;
use vmcc_testkit::netns::Server;
use vmcc_testkit::port::{Pair, client, config};

/// A port that marks; connections at TCP's least window hold a queue above the threshold.
const PORT: &str = "rate = '20mbit'\nbackend = 'htb'\nmarking = { rule = 'threshold', at = '10kB' }\n";
const WITHOUT: &str = "sparse = false\n";
const BULK: u16 = 5951;
const REQUESTS: u16 = 5952;
const DATAGRAMS: u16 = 5953;
/// Connections that hold 32 packets, 19 ms of the rate.
const CONNECTIONS: usize = 16;
const QUEUED_BYTES: u64 = 24_000;
/// Time after which a datagram counts as lost.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(500);

fn attach(pair: &Pair, settings: &str) -> Port {
    let port = Port::attach_in(&pair.netns(), "p0", &config(&format!("{PORT}{settings}")));
    port.unwrap_or_else(|e| panic!("{e}"))
}

fn class(port: &Port) -> ClassStats {
    port.stats().unwrap().classes.remove(0)
}

/// Runs `action` beside connections that hold a queue.
fn beside_a_queue<T>(pair: &Pair, port: &Port, action: impl FnOnce() -> T) -> T {
    let _server = Server::start(&pair.b, BULK);
    thread::scope(|scope| {
        let bulk = scope.spawn(|| client(pair, BULK, &format!("-t 12 -C cubic -P {CONNECTIONS}")));
        while class(port).backlog_bytes < QUEUED_BYTES {
            assert!(!bulk.is_finished(), "the transfer ended before it held a queue");
            thread::sleep(Duration::from_millis(10));
        }
        let done = action();
        assert!(!bulk.is_finished(), "the queue is there to the end");
        done
    })
}

/// A connection to a host that answers every request, opened before there is a queue.
fn connection(pair: &Pair) -> TcpStream {
    let listener = pair.b.within(|| TcpListener::bind(("10.78.0.2", REQUESTS))).expect("a free port");
    thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a connection");
        let mut request = [0; 100];
        while client.read_exact(&mut request).and_then(|()| client.write_all(&request)).is_ok() {}
    });
    let stream = pair.a.within(|| TcpStream::connect(("10.78.0.2", REQUESTS))).expect("a connection");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    stream
}

/// Median time that a request of 100 bytes waits for its answer. After `waits_first` bytes with an answer.
fn request_time(stream: &mut TcpStream, waits_first: usize) -> Duration {
    let mut answer = vec![0; waits_first];
    stream.write_all(&answer).and_then(|()| stream.read_exact(&mut answer)).expect("an answer");
    let mut times: Vec<Duration> = (0..100)
        .map(|_| {
            let begun = Instant::now();
            let mut answer = [0; 100];
            stream.write_all(&answer).and_then(|()| stream.read_exact(&mut answer)).expect("an answer");
            let time = begun.elapsed();
            thread::sleep(Duration::from_millis(20).saturating_sub(time));
            time
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// Request times beside a queue, with priority and without in the same seconds.
fn request_times(waits_first: usize) -> [Duration; 2] {
    let measure = move |settings: &str| {
        let pair = Pair::new();
        let port = attach(&pair, settings);
        let mut stream = connection(&pair);
        let time = beside_a_queue(&pair, &port, || request_time(&mut stream, waits_first));
        println!("{settings:?}: {time:?} {:?}", port.detach().unwrap());
        time
    };
    thread::scope(|scope| {
        ["", WITHOUT]
            .map(|settings| scope.spawn(move || measure(settings)))
            .map(|running| running.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
    })
}

#[test]
fn root_port_request_passes_a_standing_queue() {
    let [with, without] = request_times(0);
    assert!(with * 4 < without, "median {with:?}, without priority {without:?}");
}

/// A request follows its answer at once, and so the packets before have just left the queue.
#[test]
fn root_port_flow_that_waited_passes_the_queue_once_its_packets_have_left() {
    let [with, without] = request_times(20_000);
    assert!(with * 4 < without, "median {with:?}, without priority {without:?}");
}

/// Datagrams of one flow with numbers, in bursts that wait and singly: how many passed one of a higher number.
fn overtaken(pair: &Pair, sending: impl FnOnce(&mut dyn FnMut(usize), &dyn Fn())) -> (usize, usize) {
    // One CPU receives: on several the order would be lost behind the port.
    let one_cpu = "echo 1 > /sys/class/net/p0/queues/rx-0/rps_cpus";
    let set = Command::new("ip").args(["netns", "exec", &pair.b.0, "sh", "-c", one_cpu]).status();
    assert!(set.expect("ip").success(), "{one_cpu}");
    let [inbox, outbox] =
        [(&pair.b, "10.78.0.2", DATAGRAMS), (&pair.a, "10.78.0.1", 0)].map(|(namespace, address, port)| {
            namespace.within(|| UdpSocket::bind((address, port)).expect("a socket"))
        });
    inbox.set_read_timeout(Some(Duration::from_secs(1))).expect("SO_RCVTIMEO");
    let (stop, newest) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let received = scope.spawn(|| {
            let (mut numbers, mut datagram) = (Vec::new(), [0; 9000]);
            while !stop.load(Relaxed) || numbers.is_empty() {
                if inbox.recv(&mut datagram).is_ok() {
                    let number = u32::from_be_bytes(datagram[..4].try_into().expect("four bytes"));
                    newest.fetch_max(number, Relaxed);
                    numbers.push(number);
                }
            }
            numbers
        });
        let number = AtomicU32::new(0);
        let mut send = |bytes: usize| {
            let number = number.fetch_add(1, Relaxed) + 1;
            let mut datagram = vec![0; bytes];
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            let _ = outbox.send_to(&datagram, ("10.78.0.2", DATAGRAMS));
        };
        let all_have_arrived = || {
            let sent = Instant::now();
            while newest.load(Relaxed) < number.load(Relaxed) && sent.elapsed() < ARRIVAL_TIMEOUT {
                thread::sleep(Duration::from_millis(1));
            }
        };
        sending(&mut send, &all_have_arrived);
        thread::sleep(Duration::from_secs(1));
        stop.store(true, Relaxed);
        let numbers = received.join().expect("numbers");
        let mut highest = 0;
        let late = numbers.iter().filter(|number| {
            highest = highest.max(**number);
            **number < highest
        });
        (late.count(), numbers.len())
    })
}

/// 26 kB in a second, where half of a sixteenth of the rate is 78 kB; 5 kB of a burst are within the band's rate.
fn bursts_and_single_ones(send: &mut dyn FnMut(usize), all_have_arrived: &dyn Fn()) {
    for _ in 0..8 {
        (0..12).for_each(|_| send(1000));
        // Some while the burst waits; when all have left, the next ones are served first.
        for (count, pause) in [(20, Duration::from_millis(1)), (80, Duration::from_millis(10))] {
            for _ in 0..count {
                send(100);
                thread::sleep(pause);
            }
            all_have_arrived();
        }
    }
}

/// Fragments that do not name their flow have 150 kB in a second, the others of it 34 kB.
fn fragments_and_whole_ones(send: &mut dyn FnMut(usize), _: &dyn Fn()) {
    for _ in 0..100 {
        send(8900);
        thread::sleep(Duration::from_millis(1));
        send(50);
        thread::sleep(Duration::from_millis(49));
    }
}

#[test]
fn root_port_fragments_keep_the_order_of_their_flow() {
    let pair = Pair::new();
    let port = attach(&pair, "");
    let (late, all) = beside_a_queue(&pair, &port, || overtaken(&pair, fragments_and_whole_ones));
    println!("{late} of {all}, {:?}", class(&port));
    assert!(all > 150, "{all} of 200 datagrams arrived");
    assert_eq!(late, 0, "of {all} datagrams passed by others of their flow");
}

#[test]
fn root_port_flow_that_becomes_sparse_keeps_its_order() {
    let pair = Pair::new();
    let port = attach(&pair, "");
    let (late, all) = beside_a_queue(&pair, &port, || overtaken(&pair, bursts_and_single_ones));
    let class = class(&port);
    println!("{late} of {all}, {class:?}");
    assert!(class.sparse > 200, "it was not sparse: {class:?}");
    assert!(class.sparse < all as u64 - 40, "its bursts did not wait: {class:?}");
    assert_eq!(late, 0, "of {all} datagrams passed by others of their flow");
}

/// Datagrams of 100 bytes at twice the rate of the port, each of a flow of its own.
fn flood(pair: &Pair, stop: &AtomicBool) {
    const BYTES: usize = 100;
    let gap = Duration::from_nanos((BYTES as u64 + 14) * 8 * 1_000 / 40);
    pair.a.within(|| {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(nix::libc::IPPROTO_RAW)));
        let socket = socket.expect("a raw socket");
        setsockopt(&socket, sockopt::SndBufForce, &(64 << 20)).expect("SO_SNDBUFFORCE");
        let to = SocketAddrV4::new(Ipv4Addr::new(10, 78, 0, 2), 0).into();
        let (mut flow, mut due) = (0_u32, Instant::now());
        while !stop.load(Relaxed) {
            let [from, to_port] = [flow % 60_000 + 1_024, flow / 60_000 + 20_000].map(|port| port as u16);
            let packet = PacketBuilder::ipv4([10, 78, 0, 1], [10, 78, 0, 2], 9).udp(from, to_port);
            let mut datagram = Vec::with_capacity(BYTES);
            packet.write(&mut datagram, &[0; BYTES - 28]).expect("a datagram");
            let _ = socket.send_to(&datagram, &to);
            flow += 1;
            due += gap;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    });
}

/// Bytes that the sender's connections to the bulk server have brought there.
fn acknowledged(pair: &Pair) -> u64 {
    let all = pair.a.within(|| Diag::open().unwrap().subflows().unwrap());
    all.iter().filter(|s| s.established && s.remote.port() == BULK).map(|s| s.bytes_acked).sum()
}

/// Bytes of the bulk in four seconds beside a flood of new flows, and the requests that were answered meanwhile.
fn beside_a_flood(settings: &str) -> (u64, usize) {
    let pair = Pair::new();
    let port = attach(&pair, settings);
    let mut stream = connection(&pair);
    stream.set_read_timeout(Some(Duration::from_secs(4))).expect("SO_RCVTIMEO");
    let stop = AtomicBool::new(false);
    let found = beside_a_queue(&pair, &port, || {
        thread::scope(|scope| {
            scope.spawn(|| flood(&pair, &stop));
            let (before, begun) = (acknowledged(&pair), Instant::now());
            let mut answered = 0;
            while begun.elapsed() < Duration::from_secs(4) {
                let mut answer = [0; 100];
                let asked = stream.write_all(&answer).and_then(|()| stream.read_exact(&mut answer));
                answered += usize::from(asked.is_ok());
                thread::sleep(Duration::from_millis(20));
            }
            stop.store(true, Relaxed);
            (acknowledged(&pair) - before, answered)
        })
    });
    println!("{settings:?}: {found:?} {:?}", port.detach().unwrap());
    found
}

#[test]
fn root_port_flood_of_sparse_flows_takes_no_more_than_without_priority() {
    let [with, without] = thread::scope(|scope| {
        ["", WITHOUT]
            .map(|settings| scope.spawn(move || beside_a_flood(settings)))
            .map(|running| running.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
    });
    assert!(with.0 * 2 > without.0, "bulk: {} bytes, without priority {}", with.0, without.0);
    assert!(with.1 * 2 + 2 > without.1, "requests: {}, without priority {}", with.1, without.1);
}

#[test]
fn root_port_priority_is_switched_under_traffic_without_a_loss() {
    const SENT: usize = 4_000;
    let pair = Pair::new();
    // The rule for flows without ECN drops nothing below it.
    let settings = |settings: &str| format!("{PORT}{settings}").replace("10kB", "500kB");
    let mut port =
        Port::attach_in(&pair.netns(), "p0", &config(&settings(""))).unwrap_or_else(|e| panic!("{e}"));
    let inner = |pair: &Pair| pair.queues().matches("qdisc htb").count();
    assert_eq!(inner(&pair), 2);
    let inbox = pair.b.within(|| UdpSocket::bind(("10.78.0.2", DATAGRAMS)).expect("a socket"));
    setsockopt(&inbox, sockopt::RcvBufForce, &(64 << 20)).expect("SO_RCVBUFFORCE");
    inbox.set_read_timeout(Some(Duration::from_secs(2))).expect("SO_RCVTIMEO");
    let arrived = thread::scope(|scope| {
        scope.spawn(|| {
            let socket = pair.a.within(|| UdpSocket::bind("10.78.0.1:0").expect("a socket"));
            for _ in 0..SENT {
                let _ = socket.send_to(&[0; 500], ("10.78.0.2", DATAGRAMS));
                thread::sleep(Duration::from_micros(500));
            }
        });
        let arrived = scope.spawn(|| {
            let mut datagram = [0; 600];
            (0..SENT).take_while(|_| inbox.recv(&mut datagram).is_ok()).count()
        });
        for (other, queues) in [(WITHOUT, 1), ("", 2), (WITHOUT, 1)] {
            port.reconfigure(&config(&settings(other))).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(inner(&pair), queues, "{other:?}");
            assert_eq!(port.stats().unwrap().differences, Vec::<String>::new(), "{other:?}");
        }
        arrived.join().expect("a count")
    });
    println!("{arrived} {:?}", class(&port));
    assert_eq!(arrived, SENT);
    assert!(class(&port).packets as usize >= SENT, "counters go on");
}

#[test]
fn root_port_sparse_packets_find_their_class_among_several() {
    let pair = Pair::new();
    let classes = "queue = 'drr'\n[[class]]\nname = 'a'\nfilter = [{ to_port = 5953 }]\n[[class]]\nname = 'b'\n\
                   filter = [{ protocol = 6 }]\n[[class]]\nname = 'rest'\n";
    let port = Port::attach_in(&pair.netns(), "p0", &config(&format!("{PORT}{classes}")));
    let port = port.unwrap_or_else(|e| panic!("{e}"));
    let socket = pair.a.within(|| UdpSocket::bind("10.78.0.1:0").expect("a socket"));
    let others = pair.a.within(|| UdpSocket::bind("10.78.0.1:0").expect("a socket"));
    let _inbox = pair.b.within(|| UdpSocket::bind(("10.78.0.2", DATAGRAMS)).expect("a socket"));
    // A queue of one flow in class `a`, and another flow there that is sparse.
    setsockopt(&socket, sockopt::SndBufForce, &(64 << 20)).expect("SO_SNDBUFFORCE");
    for _ in 0..400 {
        let _ = socket.send_to(&[0; 1400], ("10.78.0.2", DATAGRAMS));
    }
    assert!(others.send_to(&[0; 100], ("10.78.0.2", DATAGRAMS)).is_ok());
    let shown = pair.a.run("tc -s -j qdisc show dev p0");
    let queues: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let sent = |handle: &str| {
        let queue = queues.as_array().unwrap().iter().find(|q| q["handle"] == handle).expect("a queue");
        queue["packets"].as_u64().unwrap() + queue["qlen"].as_u64().unwrap()
    };
    let stats = port.stats().unwrap();
    println!("{stats:?} {shown}");
    assert_eq!(stats.classes.iter().map(|c| c.sparse).collect::<Vec<_>>(), [1, 0, 0]);
    // PORT_SPARSE_FIRST of kernel/shared/port_shared.h, times the inverse of its factor.
    assert_eq!(sent("4770:"), 1, "its band is that of class `a`");
}
