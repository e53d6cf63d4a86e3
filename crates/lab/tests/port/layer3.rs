//! Real devices of layer 3 as ports: what they send arrives as it was but for its ECN field.

use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, recv, setsockopt, socket as open, sockopt,
};
use nix::sys::time::TimeVal;
use std::net::{IpAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;
use vmcc_port::Port;
use vmcc_testkit::netns::run;
use vmcc_testkit::port::{Pair, config};

const PACKETS: usize = 100;
const DATA: [u8; 900] = [0x45; 900];
/// Room for all of them, with what the kernel keeps of each.
const ALL_BYTES: usize = 8 << 20;
const UDP_HEADER_BYTES: usize = 8;
const ECT: i32 = 2;
const CE: usize = 3;
/// Linux's default.
const HOPS: u8 = 64;
const IPV4: [&str; 2] = ["10.80.0.1", "10.80.0.2"];
const IPV6: [&str; 2] = ["fd80::1", "fd80::2"];

/// A kind of tunnel, and the addresses inside.
struct Kind {
    name: &'static str,
    /// Of `ip link add`; `{own}` and `{other}` are the outer addresses.
    link: &'static str,
    inner: [&'static str; 2],
}

const KINDS: [Kind; 5] = [
    Kind { name: "IPIP", link: "ipip local {own} remote {other}", inner: IPV4 },
    Kind { name: "SIT", link: "sit local {own} remote {other}", inner: IPV6 },
    Kind { name: "GRE", link: "gre local {own} remote {other}", inner: IPV4 },
    // Its packets have their outer header already when they come to the port.
    Kind { name: "GRE to many", link: "gre local {own}", inner: IPV4 },
    Kind { name: "WireGuard", link: "wireguard", inner: IPV4 },
];

impl Kind {
    /// Device `t0` in both namespaces, over `p0`.
    fn set_up(&self, pair: &Pair) {
        let ends = [(&pair.a, "10.78.0.1", "10.78.0.2"), (&pair.b, "10.78.0.2", "10.78.0.1")];
        for ((ns, own, other), [inner, peer]) in ends.into_iter().zip([self.inner, reversed(self.inner)]) {
            let link = self.link.replace("{own}", own).replace("{other}", other);
            run(&format!("ip -n {ns} link add t0 type {link}"));
            let (bits, nodad) = if inner.contains(':') { (64, "nodad") } else { (24, "") };
            run(&format!("ip -n {ns} addr add {inner}/{bits} dev t0 {nodad}"));
            run(&format!("ip -n {ns} link set t0 up"));
            if self.name == "GRE to many" {
                run(&format!("ip -n {ns} neigh add {peer} lladdr {other} dev t0"));
            }
            // Else nobody looks at the sums of what a veth delivers.
            ns.within(|| vmcc_netlink::disable_checksum_offload("p0").unwrap());
        }
        if self.link == "wireguard" {
            exchange_keys(pair);
        }
    }
}

fn reversed([first, second]: [&'static str; 2]) -> [&'static str; 2] {
    [second, first]
}

fn exchange_keys(pair: &Pair) {
    let folder = tempfile::tempdir().unwrap();
    let private = |of: &str| folder.path().join(of).display().to_string();
    let shell = |script: &str| {
        let output = std::process::Command::new("sh").args(["-c", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let public =
        ["a", "b"].map(|of| shell(&format!("umask 77; wg genkey | tee {} | wg pubkey", private(of))));
    for (ns, own, key, other) in
        [(&pair.a, "a", &public[1], "10.78.0.2"), (&pair.b, "b", &public[0], "10.78.0.1")]
    {
        let peer = format!("peer {key} allowed-ips 0.0.0.0/0 endpoint {other}:51820");
        ns.run(&format!("wg set t0 listen-port 51820 private-key {} {peer}", private(own)));
    }
}

/// All packets that the calling thread's namespace sends and receives, from their IP header on; waits at most ten
/// seconds.
fn capture() -> OwnedFd {
    let all = open(AddressFamily::Packet, SockType::Datagram, SockFlag::empty(), SockProtocol::EthAll)
        .expect("root");
    setsockopt(&all, sockopt::ReceiveTimeout, &TimeVal::new(10, 0)).expect("SO_RCVTIMEO");
    setsockopt(&all, sockopt::RcvBufForce, &ALL_BYTES).expect("SO_RCVBUFFORCE");
    all
}

/// True if `packet` has the bytes of `address` in `range`.
fn is_at(packet: &[u8], range: Range<usize>, address: &str) -> bool {
    let octets = match address.parse().unwrap() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    packet.get(range) == Some(&octets)
}

/// The ECN field of a packet to the inner address, of which all else is checked; of others none.
fn checked(packet: &[u8], [source, destination]: [&str; 2], from_port: u16) -> Option<usize> {
    let (udp_at, ecn) = match packet[0] >> 4 {
        4 if is_at(packet, 16..20, destination) && packet[9] == 17 => {
            let words = packet[..20].chunks(2).map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])));
            assert_eq!(words.sum::<u64>() % 0xffff, 0, "the header's sum: {:?}", &packet[..20]);
            assert!(is_at(packet, 12..16, source));
            assert_eq!((packet[0], packet[1] >> 2, packet[6..9].to_vec()), (0x45, 0, vec![0x40, 0, HOPS]));
            assert_eq!(packet[2..4], u16::try_from(packet.len()).unwrap().to_be_bytes());
            (20, packet[1] & 3)
        }
        6 if is_at(packet, 24..40, destination) && packet[6] == 17 => {
            assert!(is_at(packet, 8..24, source));
            // The flow label is the kernel's choice.
            assert_eq!((packet[0], packet[1] >> 6, packet[7]), (0x60, 0, HOPS));
            assert_eq!(packet[4..6], u16::try_from(packet.len() - 40).unwrap().to_be_bytes());
            (40, packet[1] >> 4 & 3)
        }
        _ => return None,
    };
    let (udp, data) = packet[udp_at..].split_at(UDP_HEADER_BYTES);
    let length = u16::try_from(UDP_HEADER_BYTES + DATA.len()).unwrap();
    assert_eq!(udp[..6], [from_port, 9, length].map(u16::to_be_bytes).concat());
    assert!(data == DATA, "the data");
    Some(ecn.into())
}

/// Sends ECN-capable datagrams faster than the port lets them through; how many arrived with which ECN field.
fn sent_through(pair: &Pair, kind: &Kind) -> [u64; 4] {
    let [from, to] = kind.inner;
    let sink = pair.b.within(|| UdpSocket::bind((to, 9)).expect("a free port"));
    sink.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    setsockopt(&sink, sockopt::RcvBufForce, &ALL_BYTES).expect("SO_RCVBUFFORCE");
    let seen_there = pair.b.within(capture);
    let socket = pair.a.within(|| UdpSocket::bind((from, 0)).expect("an address of this host"));
    socket.connect((to, 9)).expect("a route");
    if to.contains(':') {
        setsockopt(&socket, sockopt::Ipv6TClass, &ECT).expect("IPV6_TCLASS");
    } else {
        setsockopt(&socket, sockopt::Ipv4Tos, &ECT).expect("IP_TOS");
    }
    setsockopt(&socket, sockopt::SndBufForce, &ALL_BYTES).expect("SO_SNDBUFFORCE");
    let from_port = socket.local_addr().unwrap().port();
    (0..PACKETS).for_each(|_| assert_eq!(socket.send(&DATA).expect("room"), DATA.len()));
    let (mut seen, mut buffer) = ([0; 4], [0; 2048]);
    while seen.iter().sum::<u64>() < PACKETS as u64 {
        let flags = nix::sys::socket::MsgFlags::empty();
        let length =
            recv(seen_there.as_raw_fd(), &mut buffer, flags).unwrap_or_else(|e| panic!("{seen:?}: {e}"));
        if let Some(ecn) = checked(&buffer[..length], kind.inner, from_port) {
            seen[ecn] += 1;
        }
    }
    // And nobody between found a wrong sum.
    (0..PACKETS).for_each(|_| assert_eq!(sink.recv(&mut buffer).expect("all arrive"), DATA.len()));
    seen
}

/// Every kind, one after the other.
pub(crate) fn changes_the_ecn_field_alone() {
    let text = "rate = '1mbit'\nmarking = { rule = 'threshold', at = '2kB' }";
    for kind in KINDS {
        let pair = Pair::new();
        kind.set_up(&pair);
        let port = Port::attach_in(&pair.netns(), "t0", &config(text))
            .unwrap_or_else(|e| panic!("{}: {e}", kind.name));
        let seen = sent_through(&pair, &kind);
        let stats = port.detach().unwrap();
        println!("{}: {seen:?} {stats:?}", kind.name);
        assert_eq!((seen[0], seen[1], seen[CE]), (0, 0, stats.classes[0].marked), "{}", kind.name);
        assert!(seen[CE] > 80 && seen[2] > 0, "{}: {seen:?}", kind.name);
    }
}
