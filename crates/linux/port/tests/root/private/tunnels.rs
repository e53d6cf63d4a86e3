//! Ports whose packets are encapsulated, for real: VXLAN between two namespaces, and VLAN tags that the kernel keeps
//! beside the packet.

use socket2::Socket;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;
use vmcc_port::ClassStats;
use vmcc_port::Port;
use vmcc_testkit::control::{payload_bps, tbf_share};
use vmcc_testkit::netns::{Namespace, Server, run};
use vmcc_testkit::port::{Pair, config};

/// VXLAN 42 over p0, with 10.79.0.1 and .2 inside; `options` of `ip link`.
fn tunnel(pair: &Pair, options: &str) {
    for (ns, own, other) in [(&pair.a, 1, 2), (&pair.b, 2, 1)] {
        let ends = format!("local 10.78.0.{own} remote 10.78.0.{other}");
        run(&format!("ip -n {ns} link add vx0 type vxlan id 42 dstport 4789 {ends} dev p0 {options}"));
        run(&format!("ip -n {ns} addr add 10.79.0.{own}/24 dev vx0"));
        run(&format!("ip -n {ns} addr add fd79::{own}/64 dev vx0 nodad"));
        run(&format!("ip -n {ns} link set vx0 up"));
    }
}

/// Bytes received per second inside the tunnel, and segments sent again.
fn transfer(pair: &Pair, to: &str, port: u16) -> (f64, u64) {
    let _server = Server::start(&pair.b, port);
    let text = pair.a.run(&format!("iperf3 -J -c {to} -p {port} -t 2 -P 2"));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let end = &report["end"];
    (
        end["sum_received"]["bits_per_second"].as_f64().unwrap(),
        end["sum_sent"]["retransmits"].as_u64().unwrap(),
    )
}

/// Component that computes checksums.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sums {
    /// Nobody: veth delivers without.
    Device,
    /// The stack below the port: what arrives is checked.
    Below,
    /// The stack inside the tunnel already; the tunnel's own below the port.
    Inside,
}

impl Sums {
    fn set(self, pair: &Pair) {
        let off = |ns: &Namespace, device: &str| {
            ns.within(|| vmcc_netlink::disable_checksum_offload(device).unwrap());
        };
        for ns in [&pair.a, &pair.b] {
            if self != Self::Device {
                off(ns, "p0");
            }
            if self == Self::Inside {
                off(ns, "vx0");
            }
        }
    }
}

/// ECN-capable datagrams, more than the port lets through; how many were lost on the way. What a receiver that got no CPU
/// could not take has arrived.
fn datagrams(pair: &Pair, to: &str, port: u16) -> u64 {
    let (_server, before) = (Server::start(&pair.b, port), not_taken(pair));
    let text = pair.a.run(&format!("iperf3 -J -u -b 40M -P 4 -l 1200 -S 2 -c {to} -p {port} -t 1"));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let lost = report["end"]["sum"]["lost_packets"].as_u64().unwrap();
    lost.saturating_sub(not_taken(pair) - before)
}

/// Datagrams that came to full sockets of the receiver.
fn not_taken(pair: &Pair) -> u64 {
    let counters = pair.b.run("nstat -asz UdpRcvbufErrors Udp6RcvbufErrors");
    let values = counters.lines().filter(|line| !line.starts_with('#'));
    values.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn root_port_marks_vxlan_packets_and_inner_tcp_responds() {
    // Without a UDP sum (Linux's default over IPv4), and with one.
    let cases = [
        ("noudpcsum", Sums::Device),
        ("udpcsum", Sums::Device),
        ("udpcsum", Sums::Below),
        ("udpcsum", Sums::Inside),
    ];
    for ((options, sums), first) in cases.into_iter().zip((5801..).step_by(4)) {
        let pair = Pair::new();
        tunnel(&pair, options);
        sums.set(&pair);
        let text = "rate = '100mbit'\nmarking = { rule = 'threshold', at = '30kB' }";
        let mut port = Port::attach_in(&pair.netns(), "p0", &config(text)).unwrap_or_else(|e| panic!("{e}"));
        for (to, number) in [("10.79.0.2", first), ("fd79::2", first + 1)] {
            let measure = || {
                let before = port.stats().unwrap().classes[0].marked;
                let (rate, again) = transfer(&pair, to, number);
                (rate, again, before, port.stats().unwrap().classes[0].clone())
            };
            let verdict = |(rate, again, before, after): &(f64, u64, u64, ClassStats)| {
                println!("{options} {sums:?} to {to}: {:.1} Mbit/s, {again} again, {after:?}", rate / 1e6);
                let marked = after.marked - before;
                // Marks, not losses: a packet with a wrong sum or an illegal mark would not arrive. (TCP sends some again on
                // a busy machine, whatever arrives.)
                assert!(marked > 100 && 10 * again < marked && after.drops_full == 0, "{again} {after:?}");
                // TCP that takes marks for losses, or loses what is marked, has next to nothing.
                assert!(
                    after.max_backlog_bytes < 400_000 && *rate > 0.3 * payload_bps(100),
                    "{rate} {after:?}"
                );
            };
            vmcc_testkit::judge(measure, verdict, |_| tbf_share(100, Duration::ZERO, 2));
        }
        port.reconfigure(&config(&text.replace("30kB", "1kB"))).unwrap();
        for (to, number) in [("10.79.0.2", first + 2), ("fd79::2", first + 3)] {
            let before = port.stats().unwrap().classes[0].clone();
            let lost = datagrams(&pair, to, number);
            let after = port.stats().unwrap().classes[0].clone();
            println!("{options} {sums:?} to {to}: {lost} datagrams lost, {after:?}");
            assert!(after.marked > before.marked + 100, "{after:?}");
            // What the socket does not hold back fills the queue.
            let dropped = |of: &ClassStats| of.drops_full + of.drops_overload;
            assert!(lost <= dropped(&after) - dropped(&before), "{lost} {after:?}");
        }
        port.detach().unwrap();
    }
}

/// A raw socket on an interface of the calling thread's namespace; it waits at most ten seconds.
fn raw(interface: &str) -> Socket {
    use nix::libc;
    use std::os::fd::FromRawFd;
    let all = i32::from((libc::ETH_P_ALL as u16).to_be());
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, all) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: just opened, nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: nix::net::if_::if_nametoindex(interface).unwrap() as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the address lives as long as the call, and `length` is its size.
    let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    let socket = Socket::from(fd);
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

/// A VLAN-tagged IPv4 packet, ECN-capable, to all.
fn tagged_frame() -> Vec<u8> {
    use etherparse::{EtherType, Ethernet2Header, IpEcn, IpNumber, Ipv4Header, SingleVlanHeader};
    let mut out = Vec::new();
    let ether_type = EtherType::VLAN_TAGGED_FRAME;
    Ethernet2Header { source: [2, 0, 0, 0, 0, 9], destination: [0xff; 6], ether_type }
        .write(&mut out)
        .unwrap();
    let tag = SingleVlanHeader {
        vlan_id: 7.try_into().unwrap(),
        ether_type: EtherType::IPV4,
        ..Default::default()
    };
    tag.write(&mut out).unwrap();
    let mut header = Ipv4Header::new(1000, 64, IpNumber(253), [10, 78, 0, 1], [10, 78, 0, 9]).unwrap();
    header.ecn = IpEcn::try_new(2).unwrap();
    header.write(&mut out).unwrap();
    out.resize(out.len() + 1000, 0x77);
    out
}

/// A bridge takes tags out of the bytes of what it receives: a port of the bridge sends packets with the tag beside.
#[test]
fn root_port_marks_packets_with_an_offloaded_vlan_tag() {
    let pair = Pair::new();
    let ip = |command: &str| run(&format!("ip -n {} {command}", pair.a));
    ip("link add br0 type bridge");
    ip("link add in0 type veth peer name in1");
    for command in ["in1 master br0", "p0 master br0", "br0 up", "in0 up", "in1 up"] {
        ip(&format!("link set {command}"));
    }
    let text = "rate = '1mbit'\nmarking = { rule = 'threshold', at = '2kB' }";
    let port = Port::attach_in(&pair.netns(), "p0", &config(text)).unwrap_or_else(|e| panic!("{e}"));
    let receiver = pair.b.within(|| raw("p0"));
    let sender = pair.a.within(|| raw("in0"));
    let frame = tagged_frame();
    for _ in 0..40 {
        sender.send(&frame).unwrap();
    }
    let mut seen = [0; 4];
    let mut buffer = [0; 2048];
    while seen.iter().sum::<u32>() < 40 {
        let length = (&receiver).read(&mut buffer).unwrap();
        // The tag has travelled beside the packet: IPv4 is right behind the addresses.
        let Ok(slice) = etherparse::Ipv4HeaderSlice::from_slice(&buffer[14..length]) else { continue };
        if slice.protocol().0 != 253 {
            continue;
        }
        let header = slice.to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        seen[usize::from(header.ecn.value())] += 1;
    }
    let stats = port.detach().unwrap();
    println!("{seen:?} {stats:?}");
    assert_eq!(u64::from(seen[3]), stats.classes[0].marked);
    assert!(seen[3] > 20 && seen[2] > 0 && seen[0] + seen[1] == 0, "{seen:?}");
    let _ = Command::new("ip").args(["-n", &pair.a.0, "link", "del", "br0"]).status();
}
