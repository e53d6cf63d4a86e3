//! Ports of other kinds: without a link layer, with the kernel's default queue, with several queues.

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use vmcc_netlink::Links;
use vmcc_port::{Port, PortError};
use vmcc_testkit::netns::{Namespace, join, run};
use vmcc_testkit::port::config;

const AT_2_KB: &str = "marking = { rule = 'threshold', at = '2kB' }";
const DATA: usize = 900;
const ECT: i32 = 2;
/// Of linux/if_tun.h.
const TUNSETIFF: u64 = 0x4004_54ca;

/// A tun device `p0`, and the end that its packets come out of.
fn tun(namespace: &Namespace, flags: i16) -> File {
    let file = namespace.within(|| {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .expect("a tun device");
        // `struct ifreq`: the name, then the flags.
        let mut request = [0_u8; 40];
        request[..2].copy_from_slice(b"p0");
        request[16..18].copy_from_slice(&flags.to_ne_bytes());
        // SAFETY: the kernel reads and writes the 40 bytes of `request`, which live until the call returns.
        let set = unsafe { nix::libc::ioctl(file.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        file
    });
    run(&format!("ip -n {namespace} link set p0 up"));
    file
}

/// A socket whose datagrams are ECN-capable.
fn ecn_socket(from: &str, to: &str) -> UdpSocket {
    let socket = UdpSocket::bind((from, 0)).expect("an address of this host");
    socket.connect((to, 9)).expect("a route");
    setsockopt(&socket, sockopt::Ipv4Tos, &ECT).expect("IP_TOS");
    setsockopt(&socket, sockopt::SndBufForce, &(64 << 20)).expect("SO_SNDBUFFORCE");
    socket
}

/// Checks an IPv4 datagram byte for byte, but for its ECN field, which is the answer.
fn checked(packet: &[u8], source: [u8; 4]) -> u8 {
    let slice = etherparse::Ipv4HeaderSlice::from_slice(packet).expect("IPv4");
    let header = slice.to_header();
    assert_eq!(header.header_checksum, header.calc_header_checksum(), "{header:?}");
    assert_eq!((header.source, header.destination), (source, [10, 80, 0, 2]));
    assert_eq!(usize::from(header.total_len), packet.len());
    assert_eq!((packet.len(), header.dscp.value()), (28 + DATA, 0));
    assert!(packet[28..].iter().all(|byte| *byte == 0x45), "the data");
    header.ecn.value()
}

/// At the place of an Ethernet type this source has IPv4's, and behind it what an IPv4 header begins with.
#[test]
fn root_port_without_a_link_layer_changes_the_ecn_field_alone() {
    const SOURCE: [u8; 4] = [8, 0, 0x45, 1];
    let namespace = Namespace::new("tun");
    // IFF_TUN and IFF_NO_PI.
    let mut end = tun(&namespace, 0x1001);
    for address in ["8.0.69.1/32", "10.80.0.1/24"] {
        run(&format!("ip -n {namespace} addr add {address} dev p0"));
    }
    let text = format!("rate = '1mbit'\n{AT_2_KB}");
    let port = Port::attach_in(&namespace.file(), "p0", &config(&text)).unwrap_or_else(|e| panic!("{e}"));
    let socket = namespace.within(|| ecn_socket("8.0.69.1", "10.80.0.2"));
    (0..100).for_each(|_| assert_eq!(socket.send(&[0x45; DATA]).expect("room"), DATA));
    let (mut seen, mut buffer) = ([0_u64; 4], [0; 2048]);
    while seen.iter().sum::<u64>() < 100 {
        match end.read(&mut buffer) {
            // IPv6 of the host's own.
            Ok(_) if buffer[0] >> 4 == 6 => {}
            Ok(length) => seen[usize::from(checked(&buffer[..length], SOURCE))] += 1,
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(e) => panic!("{e}"),
        }
    }
    let stats = port.detach().unwrap();
    println!("{seen:?} {stats:?}");
    assert_eq!((seen[0], seen[1], seen[3]), (0, 0, stats.classes[0].marked));
    assert!(seen[3] > 80 && seen[2] > 0, "{seen:?}");
}

#[test]
fn root_port_with_own_multiqueue_rules_is_refused() {
    let namespace = Namespace::new("queues");
    // IFF_TAP, IFF_NO_PI and IFF_MULTI_QUEUE.
    let _end = tun(&namespace, 0x1102);
    let error = Port::attach_in(&namespace.file(), "p0", &config(AT_2_KB)).err().expect("it cannot be known");
    assert!(matches!(error, PortError::ManyQueues { .. }), "{error}");
    let rated = Port::attach_in(&namespace.file(), "p0", &config(&format!("rate = '1mbit'\n{AT_2_KB}")));
    rated.unwrap_or_else(|e| panic!("{e}")).detach().unwrap();
}

/// Each of them holds packets back.
#[test]
fn root_port_with_several_queues_marks_by_the_joined_queue() {
    let (a, b) = (Namespace::new("a"), Namespace::new("b"));
    run(&format!("ip -n {a} link add p0 numtxqueues 4 type veth peer name p0 numrxqueues 4 netns {b}"));
    run(&format!("ip -n {a} addr add 10.80.0.1/24 dev p0"));
    run(&format!("ip -n {a} neigh add 10.80.0.2 lladdr 02:00:00:00:00:02 dev p0"));
    for namespace in [&a, &b] {
        run(&format!("ip -n {namespace} link set p0 up"));
    }
    let tc = |command: &str| run(&format!("tc -n {a} {command}"));
    tc("qdisc replace dev p0 root handle 1: mq");
    for queue in 1..=4 {
        let held = "tbf rate 8kbit burst 1600 limit 1mb";
        tc(&format!("qdisc replace dev p0 parent 1:{queue} handle {queue}0: {held}"));
    }
    let port = Port::attach_in(&a.file(), "p0", &config(AT_2_KB)).unwrap_or_else(|e| panic!("{e}"));
    let sockets: Vec<UdpSocket> = a.within(|| (0..6).map(|_| ecn_socket("10.80.0.1", "10.80.0.2")).collect());
    for socket in sockets.iter().cycle().take(300) {
        socket.send(&[0; DATA]).expect("room");
    }
    let each: serde_json::Value = serde_json::from_str(&tc("-j -s qdisc show dev p0")).unwrap();
    let stats = port.detach().unwrap();
    let joined = |queue: &&serde_json::Value| queue["kind"] == "tbf";
    let joined = each.as_array().unwrap().iter().filter(joined);
    let joined: Vec<u64> =
        joined.map(|q| q["packets"].as_u64().unwrap() + q["qlen"].as_u64().unwrap()).collect();
    println!("{joined:?} {stats:?}");
    assert_eq!(joined.len(), 4, "{each}");
    assert!(joined.iter().filter(|packets| **packets > 10).count() > 1, "one queue for all: {joined:?}");
    // One or two leave at once, and three are not above 2 kB yet.
    let least: u64 = joined.iter().map(|packets| packets.saturating_sub(7)).sum();
    let most: u64 = joined.iter().map(|packets| packets.saturating_sub(3)).sum();
    assert!((least..=most).contains(&stats.classes[0].marked), "{least} to {most}: {stats:?}");
}

/// A veth that receives in a thread holds packets back while that has no time (Linux 6.16): the sender is on its
/// processor, and before it.
#[test]
fn root_port_marks_by_the_default_queue_of_linux() {
    let (a, b) = (Namespace::new("a"), Namespace::new("b"));
    // The thread is known by the device's name.
    let device = format!("q{}", std::process::id());
    join(&a, &b, &device, "10.80.0");
    // Nobody has time to answer who that is.
    run(&format!("ip -n {a} neigh replace 10.80.0.2 lladdr 02:00:00:00:00:02 dev {device}"));
    let index = b.within(|| nix::net::if_::if_nametoindex(device.as_str()).unwrap());
    b.within(|| Links::open().unwrap().receive_in_thread(index, &device).unwrap());
    // Else a veth hands over what is not long at once.
    a.within(|| vmcc_netlink::disable_segmentation_offload(&device).unwrap());
    for thread in receivers(&device) {
        run(&format!("chrt --idle --pid 0 {thread}"));
        run(&format!("taskset -p 1 {thread}"));
    }
    run(&format!("tc -n {a} qdisc replace dev {device} root pfifo_fast"));
    let port = Port::attach_in(&a.file(), &device, &config(AT_2_KB)).unwrap_or_else(|e| panic!("{e}"));
    a.within(|| {
        run(&format!("taskset -p 1 {}", nix::unistd::gettid()));
        let socket = ecn_socket("10.80.0.1", "10.80.0.2");
        (0..2_000).for_each(|_| drop(socket.send(&[0; DATA])));
    });
    let stats = port.detach().unwrap();
    println!("{stats:?}");
    let class = &stats.classes[0];
    assert!(class.max_backlog_bytes > 100_000 && class.marked > 200, "{class:?}");
}

/// Linux gives what it forwards a priority by the TOS field, which the sender chose; a socket of this host has its own.
#[test]
fn root_port_forwarded_packets_choose_no_priority_unless_trusted() {
    const INTERACTIVE: i32 = 6; // of TOS 0x10
    let (a, router, b) = (Namespace::new("a"), Namespace::new("r"), Namespace::new("b"));
    join(&a, &router, "p1", "10.81.0");
    join(&router, &b, "p0", "10.80.0");
    run(&format!("ip -n {a} route add default via 10.81.0.2"));
    run(&format!("ip -n {b} route add default via 10.80.0.1"));
    router.within(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    // Else the next datagram is refused.
    let _sink = b.within(|| UdpSocket::bind(("10.80.0.2", 9)).expect("a free port"));
    let sender = |namespace: &Namespace| {
        namespace.within(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            setsockopt(&socket, sockopt::Ipv4Tos, &0x10).expect("IP_TOS");
            let given = getsockopt(&socket, sockopt::Priority).expect("SO_PRIORITY");
            assert_eq!(given, INTERACTIVE);
            socket.connect(("10.80.0.2", 9)).expect("a route");
            socket
        })
    };
    let (forwarded, local) = (sender(&a), sender(&router));
    let first = |trust: &str| {
        let text = format!(
            "rate = '100mbit'\nqueue = 'priority'\n{trust}[[class]]\nname = 'voice'\npriority = \
             [{INTERACTIVE}]\n[[class]]\nname = 'rest'"
        );
        let port = Port::attach_in(&router.file(), "p0", &config(&text)).unwrap_or_else(|e| panic!("{e}"));
        let counted = [&forwarded, &local].map(|socket| {
            let before = port.stats().unwrap().classes[0].packets;
            (0..20).for_each(|_| drop(socket.send(&[0; DATA])));
            port.stats().unwrap().classes[0].packets - before
        });
        port.detach().unwrap();
        println!("{trust:?}: {counted:?}");
        counted
    };
    // Neighbours are found.
    first("");
    assert_eq!(first(""), [0, 20]);
    assert_eq!(first("trust = ['priority']\n"), [20, 20]);
}

/// An operator's earlier filter may let packets pass before the port's program sees them.
#[test]
fn root_port_unclassified_packets_join_the_last_class() {
    let (a, b) = (Namespace::new("a"), Namespace::new("b"));
    join(&a, &b, "p0", "10.80.0");
    run(&format!("ip -n {a} neigh replace 10.80.0.2 lladdr 02:00:00:00:00:02 dev p0"));
    run(&format!("tc -n {a} qdisc add dev p0 clsact"));
    // Without an action what matches passes, as with `action ok`, which not every kernel has.
    let passes =
        ["filter", "add", "dev", "p0", "egress", "pref", "1", "bpf", "bytecode", "1,6 0 0 4294967295"];
    let added = Command::new("tc").args(["-n", &a.to_string()]).args(passes).status().expect("tc");
    assert!(added.success(), "{passes:?}");
    let text = |rate: &str, classes: &[&str]| {
        let classes: String = classes.iter().map(|name| format!("[[class]]\nname = '{name}'\n")).collect();
        config(&format!("rate = '{rate}'\nbackend = 'htb'\nqueue = 'drr'\n{classes}"))
    };
    let mut port =
        Port::attach_in(&a.file(), "p0", &text("8kbit", &["one", "two"])).unwrap_or_else(|e| panic!("{e}"));
    let socket = a.within(|| ecn_socket("10.80.0.1", "10.80.0.2"));
    let waiting = |port: &Port| {
        (0..10).for_each(|_| drop(socket.send(&[0; DATA])));
        port.stats().unwrap().classes.iter().map(|class| class.backlog_packets > 4).collect::<Vec<_>>()
    };
    assert_eq!(waiting(&port), [false, true]);
    port.reconfigure(&text("8kbit", &["one", "two", "three"])).unwrap();
    assert_eq!(waiting(&port), [false, true, true]);
    for (rate, classes) in
        [("1gbit", &["one", "two", "three"][..]), ("1gbit", &["one", "two"]), ("8kbit", &["one"])]
    {
        port.reconfigure(&text(rate, classes)).unwrap();
    }
    assert_eq!(waiting(&port), [true]);
    port.detach().unwrap();
}

/// The kernel's threads that receive for a device.
fn receivers(device: &str) -> Vec<String> {
    let threads = run("ps -eo pid,comm");
    let name = format!("napi/{device}");
    let ours = |line: &&str| line.split_whitespace().nth(1).is_some_and(|comm| comm.starts_with(&name));
    threads.lines().filter(ours).filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
}
