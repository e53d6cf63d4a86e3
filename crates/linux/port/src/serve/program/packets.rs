//! Made-up packets through the egress program (`BPF_PROG_TEST_RUN`): which are marked, how, and with which sums.
//! Expected packets are rebuilt with the other ECN fields, so that every byte counts.

use super::*;
use crate::resolve::resolved;
use etherparse::{
    EtherType, Ethernet2Header, IpEcn, IpNumber, Ipv4Header, Ipv4Options, Ipv6Header, SingleVlanHeader,
    TcpHeader, TcpOptionElement, UdpHeader,
};
use libbpf_rs::ProgramInput;
use proptest::prelude::*;
use vmcc_bpf::shared::port::Queue;

const NOT_ECT: u8 = 0;
const CE: u8 = 3;
const VXLAN_PORTS: [u16; 2] = [4789, 8472];
/// `TC_ACT_UNSPEC`: on with the next filter, then the queue.
const GO_ON: u32 = u32::MAX;
/// `TC_ACT_SHOT`: dropped.
const SHOT: u32 = 2;

/// A queue with priority for sparse flows.
fn ids() -> config::ClassIds {
    config::ClassIds { own: 0, sparse: 0xd770_0001, placed: 0xd770_0002 }
}

/// A port's program whose classes mark above 2000 bytes, and whose queues all are longer.
fn marking(more: &str) -> Program {
    waiting(&format!("rate = '1gbit'\nmarking = {{ rule = 'threshold', at = '2kB' }}\n{more}"))
}

/// A port's program, with 100 kB in each queue.
fn waiting(text: &str) -> Program {
    let program = configured(text);
    for class in 0..MAX_CLASSES as u32 {
        let queue = Queue { backlog_bytes: 100_000, ..Queue::default() };
        shared::write(&program.queues, class, &queue).unwrap();
    }
    program
}

/// A port's program, with empty queues.
fn configured(text: &str) -> Program {
    configured_for(Frame::Ethernet, text)
}

fn configured_for(frame: Frame, text: &str) -> Program {
    let config = toml::from_str(text).unwrap();
    let program = Program::load(Source::Map, frame).expect("needs root");
    let plan = resolved(text, 1500);
    program.configure(&config::config("p0", &config, &plan, |_| ids()).unwrap()).unwrap();
    program
}

/// With a context, the kernel's tests know how long a packet is on the wire.
const CONTEXT: [u8; 192] = [0; 192];

/// The frame as the program leaves it.
fn pass(program: &Program, frame: &[u8]) -> Vec<u8> {
    let (verdict, out) = run(program, OUT_PROGRAM, frame);
    assert_eq!(verdict, GO_ON);
    out
}

/// Verdict of a program, and the frame after it.
fn run(program: &Program, name: &str, frame: &[u8]) -> (u32, Vec<u8>) {
    let mut out = vec![0; frame.len() + 64];
    let object = program.object.as_ref().unwrap();
    let program = object.progs_mut().find(|p| p.name() == name).unwrap();
    let mut context = CONTEXT;
    let input = ProgramInput {
        context_in: Some(&mut context),
        data_in: Some(frame),
        data_out: Some(&mut out),
        ..ProgramInput::default()
    };
    let output = program.test_run(input).unwrap();
    let (verdict, length) = (output.return_value, output.data.unwrap().len());
    out.truncate(length);
    (verdict, out)
}

fn ethernet(inside: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let header =
        Ethernet2Header { source: [2, 0, 0, 0, 0, 1], destination: [2, 0, 0, 0, 0, 2], ether_type: inside };
    header.write(&mut out).unwrap();
    out.extend_from_slice(payload);
    out
}

fn type_of(version: u8) -> EtherType {
    if version == 4 { EtherType::IPV4 } else { EtherType::IPV6 }
}

fn ip4(ecn: u8, protocol: IpNumber, length: usize) -> Ipv4Header {
    let mut header = Ipv4Header::new(length as u16, 64, protocol, [10, 1, 2, 3], [10, 4, 5, 6]).unwrap();
    header.ecn = IpEcn::try_new(ecn).unwrap();
    header
}

fn ip6(ecn: u8, next: IpNumber, length: usize) -> Ipv6Header {
    Ipv6Header {
        // A DSCP beside it, that must stay.
        traffic_class: 0x2e << 2 | ecn,
        flow_label: 0xabcde.try_into().unwrap(),
        payload_length: length as u16,
        next_header: next,
        hop_limit: 64,
        source: [0xfd; 16],
        destination: [0xfe; 16],
    }
}

/// IP around a payload.
fn ip(version: u8, ecn: u8, protocol: IpNumber, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match version {
        4 => ip4(ecn, protocol, payload.len()).write(&mut out).unwrap(),
        _ => ip6(ecn, protocol, payload.len()).write(&mut out).unwrap(),
    }
    out.extend_from_slice(payload);
    out
}

/// IP and UDP around a payload, with a sum or zero for none.
fn udp(version: u8, ecn: u8, port: u16, sum: bool, payload: &[u8]) -> Vec<u8> {
    let length = UdpHeader::LEN + payload.len();
    let header = match (sum, version) {
        (false, _) => UdpHeader::without_ipv4_checksum(7777, port, payload.len()),
        (_, 4) => UdpHeader::with_ipv4_checksum(7777, port, &ip4(ecn, IpNumber::UDP, length), payload),
        _ => UdpHeader::with_ipv6_checksum(7777, port, &ip6(ecn, IpNumber::UDP, length), payload),
    };
    let mut datagram = Vec::new();
    header.unwrap().write(&mut datagram).unwrap();
    datagram.extend_from_slice(payload);
    ip(version, ecn, IpNumber::UDP, &datagram)
}

fn tags(count: usize, inside: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut body = payload.to_vec();
    let mut ether_type = inside;
    for tag in 0..count {
        let mut out = Vec::new();
        let header = SingleVlanHeader {
            pcp: 3.try_into().unwrap(),
            drop_eligible_indicator: false,
            vlan_id: (100 + tag as u16).try_into().unwrap(),
            ether_type,
        };
        header.write(&mut out).unwrap();
        out.extend_from_slice(&body);
        body = out;
        ether_type = if tag == 0 { EtherType::VLAN_TAGGED_FRAME } else { EtherType::PROVIDER_BRIDGING };
    }
    ethernet(ether_type, &body)
}

fn marked(ecn: u8) -> u8 {
    if ecn == NOT_ECT { NOT_ECT } else { CE }
}

#[test]
fn root_port_marks_ect_packets_only() {
    let program = marking("");
    let data = [0x5a; 200];
    for version in [4, 6] {
        for ecn in 0..4 {
            for tagged in 0..=2 {
                let frame = |ecn| tags(tagged, type_of(version), &udp(version, ecn, 9000, true, &data));
                assert_eq!(
                    pass(&program, &frame(ecn)),
                    frame(marked(ecn)),
                    "IPv{version} {ecn} {tagged} tags"
                );
            }
        }
    }
    let count = program.counters().unwrap()[0];
    // Each of 2 versions and 3 numbers of tags: two capable, one marked already, one not capable.
    assert_eq!((count.packets, count.marked, count.not_ect, count.unclassified), (24, 12, 6, 0), "{count:?}");
}

/// RFC 9768: the count of marked packets is in three flags of TCP, two of which RFC 3168 has for something else.
#[test]
fn root_port_marks_leave_accecn_counters() {
    let program = marking("");
    for (version, ecn, ace) in (0..64).map(|case| (4 + (case >> 5) * 2, case >> 3 & 3, case & 7)) {
        let frame = |ecn| {
            let mut header = TcpHeader::new(1000, 80, 1, 1000);
            (header.ack, header.ns, header.cwr, header.ece) =
                (true, ace & 4 != 0, ace & 2 != 0, ace & 1 != 0);
            let mut payload = Vec::new();
            header.write(&mut payload).unwrap();
            payload.resize(payload.len() + 200, 0x5a);
            ethernet(type_of(version), &ip(version, ecn, IpNumber::TCP, &payload))
        };
        assert_eq!(pass(&program, &frame(ecn)), frame(marked(ecn)), "IPv{version} {ecn}, ACE {ace}");
    }
    let count = program.counters().unwrap()[0];
    // Of four ECN fields two are capable and one is marked already.
    assert_eq!((count.packets, count.marked, count.not_ect), (64, 32, 16), "{count:?}");
}

#[test]
fn root_port_marks_behind_options_extensions_and_in_fragments() {
    let program = marking("");
    let with_options = |ecn| {
        let mut header = ip4(ecn, IpNumber::UDP, 100);
        header.options = Ipv4Options::try_from(&[1, 1, 1, 1, 1, 1, 1, 0][..]).unwrap();
        header.total_len += 8;
        let mut out = Vec::new();
        header.write(&mut out).unwrap();
        out.extend_from_slice(&[7; 100]);
        ethernet(EtherType::IPV4, &out)
    };
    assert_eq!(pass(&program, &with_options(1)), with_options(CE));
    // Hop-by-hop, then destination options, then UDP: 8 bytes each.
    let extended = |ecn| {
        let mut payload = vec![60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0];
        payload.extend_from_slice(&[3; 60]);
        ethernet(EtherType::IPV6, &ip(6, ecn, IpNumber::IPV6_HEADER_HOP_BY_HOP, &payload))
    };
    assert_eq!(pass(&program, &extended(2)), extended(CE));
    let fragment = |ecn| {
        let mut header = ip4(ecn, IpNumber::UDP, 64);
        header.fragment_offset = 185.try_into().unwrap();
        let mut out = Vec::new();
        header.write(&mut out).unwrap();
        out.extend_from_slice(&[9; 64]);
        ethernet(EtherType::IPV4, &out)
    };
    assert_eq!(pass(&program, &fragment(2)), fragment(CE));
}

#[test]
fn root_port_leaves_unknown_packets_unchanged() {
    let program = marking("");
    let three_tags = tags(3, EtherType::IPV4, &udp(4, 2, 9000, true, &[1; 64]));
    let arp = ethernet(EtherType::ARP, &[0xff; 46]);
    let mut wrong_version = ethernet(EtherType::IPV4, &udp(4, 2, 9000, true, &[1; 64]));
    wrong_version[14] = 0x65;
    for frame in [three_tags, arp, wrong_version] {
        assert_eq!(pass(&program, &frame), frame);
    }
    assert_eq!(program.counters().unwrap()[0].unclassified, 3);
}

/// A frame in VXLAN; `sum`: whether the outer UDP has one.
fn vxlan(outer: (u8, u8), inner: (u8, u8), sum: bool, port: u16, tagged: usize) -> Vec<u8> {
    let data = udp(inner.0, inner.1, 9000, true, &[0xa5; 123]);
    let mut payload = vec![0x08, 0, 0, 0, 0, 0, 42, 0];
    payload.extend_from_slice(&tags(tagged, type_of(inner.0), &data));
    ethernet(type_of(outer.0), &udp(outer.0, outer.1, port, sum, &payload))
}

#[test]
fn root_port_marks_tunnels_outside_and_inside_by_rfc_6040() {
    let program = marking("");
    let mut cases = 0;
    for (outer, inner, tagged) in combinations(&[4, 6], &[4, 6]) {
        for (outer_ecn, inner_ecn, sum) in combinations(&[0, 1, 2, 3], &[0, 1, 2, 3]) {
            let sum = sum == 1;
            let port = VXLAN_PORTS[cases % 2];
            let frame = |o, i| vxlan((outer, o), (inner, i), sum, port, tagged);
            // An inner packet that is not capable would be dropped at the other end if the outer one said CE.
            let capable = inner_ecn != NOT_ECT;
            let outer_after = if capable { marked(outer_ecn) } else { outer_ecn };
            let inner_after = if capable { CE } else { inner_ecn };
            assert_eq!(
                pass(&program, &frame(outer_ecn, inner_ecn)),
                frame(outer_after, inner_after),
                "IPv{outer} {outer_ecn} around IPv{inner} {inner_ecn}, UDP sum {sum}, {tagged} tags inside"
            );
            cases += 1;
        }
    }
    assert_eq!(cases, 256);
}

/// Every combination of the two lists and a number below 2.
fn combinations(a: &[u8], b: &[u8]) -> Vec<(u8, u8, usize)> {
    let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (*x, *y)));
    pairs.flat_map(|(x, y)| [(x, y, 0), (x, y, 1)]).collect()
}

#[test]
fn root_port_classifies_by_dscp_by_filter_and_inside_tunnels() {
    let program = marking(
        "queue = 'drr'\n[[class]]\nname = 'voice'\ndscp = [46]\n\
         [[class]]\nname = 'web'\nfilter = [{ to_port = 9000, protocol = 17 }]\n[[class]]\nname = 'rest'",
    );
    let packets = || program.counters().unwrap().iter().take(3).map(|c| c.packets).collect::<Vec<_>>();
    // IPv6 packets carry DSCP 46 here, IPv4 ones none.
    pass(&program, &ethernet(EtherType::IPV6, &udp(6, 1, 80, true, &[0; 40])));
    assert_eq!(packets(), [1, 0, 0]);
    pass(&program, &ethernet(EtherType::IPV4, &udp(4, 1, 9000, true, &[0; 40])));
    assert_eq!(packets(), [1, 1, 0]);
    pass(&program, &ethernet(EtherType::IPV4, &udp(4, 1, 80, true, &[0; 40])));
    assert_eq!(packets(), [1, 1, 1]);
    pass(&program, &vxlan((4, 2), (4, 2), false, 4789, 0));
    assert_eq!(packets(), [1, 2, 1]);
    pass(&program, &ethernet(EtherType::ARP, &[0; 46]));
    assert_eq!(packets(), [1, 2, 2]);
}

/// Classifiers that `trust` leaves out choose no class; their packets are marked all the same.
#[test]
fn root_port_untrusted_dscp_chooses_no_class() {
    let classes = "[[class]]\nname = 'voice'\ndscp = [46]\n\
                   [[class]]\nname = 'web'\nfilter = [{ to_port = 9000 }]\n[[class]]\nname = 'rest'";
    // IPv6 packets carry DSCP 46 here, IPv4 ones none.
    let voice = |ecn| ethernet(EtherType::IPV6, &udp(6, ecn, 80, true, &[0; 40]));
    let tunnel = |ecn| vxlan((4, ecn), (4, ecn), false, 4789, 0);
    for (trust, readings) in [
        ("", [1, 1, 0]),
        ("trust = ['dscp']\n", [1, 0, 1]),
        ("trust = ['tunnel']\n", [0, 1, 1]),
        ("trust = []\n", [0, 0, 2]),
    ] {
        let program = marking(&format!("{trust}queue = 'drr'\n{classes}"));
        assert_eq!(pass(&program, &voice(1)), voice(CE), "{trust}");
        assert_eq!(pass(&program, &tunnel(2)), tunnel(CE), "{trust}");
        let packets: Vec<u64> = program.counters().unwrap().iter().take(3).map(|c| c.packets).collect();
        assert_eq!(packets, readings, "{trust}");
    }
}

/// The kernel takes no packet for a test whose IP header is cut, unless a tag hides it.
fn tag(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat()
}

#[test]
fn root_port_survives_packets_cut_anywhere() {
    let program = marking("");
    let frames = [vxlan((4, 1), (6, 1), false, 4789, 1), vxlan((6, 1), (4, 1), true, 4789, 0)];
    for frame in frames.map(|frame| tag(&frame)) {
        for length in 15..frame.len() {
            let cut = &frame[..length];
            let after = pass(&program, cut);
            assert_eq!(after.len(), cut.len());
            let changed = after.iter().zip(cut).filter(|(a, b)| a != b).count();
            // Two headers: a byte and a sum of two bytes each.
            assert!(changed <= 6, "{changed} bytes changed of {length}");
        }
    }
}

#[test]
fn root_port_survives_any_bytes() {
    let program = marking("");
    let bytes = prop::collection::vec(any::<u8>(), 15..300);
    let ether_type = prop::sample::select(vec![[8, 0], [0x86, 0xdd], [0x81, 0], [0x88, 0xa8]]);
    let config = ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(mut frame in bytes, ether_type in ether_type, version in prop::sample::select(vec![4_u8, 6]))| {
        frame[12..14].copy_from_slice(&ether_type);
        frame[14] = version << 4 | frame[14] & 15;
        let frame = tag(&frame);
        let after = pass(&program, &frame);
        let changed = after.iter().zip(&frame).filter(|(a, b)| a != b).count();
        prop_assert!(after.len() == frame.len() && changed <= 6);
    });
}

/// A port that marks by a virtual queue.
fn phantom(rate: &str, at: &str) -> Program {
    configured(&format!(
        "rate = '{rate}'\nphantom = 1.0\nnot_ect = 'queue'\nmarking = {{ rule = 'threshold', at = '{at}' }}"
    ))
}

/// Sends the same frame this many times.
fn repeat(program: &Program, frame: &[u8], times: u32) {
    let object = program.object.as_ref().unwrap();
    let out_program = object.progs_mut().find(|p| p.name() == OUT_PROGRAM).unwrap();
    let mut context = CONTEXT;
    let input = ProgramInput {
        context_in: Some(&mut context),
        data_in: Some(frame),
        repeat: times,
        ..ProgramInput::default()
    };
    out_program.test_run(input).unwrap();
}

#[test]
fn root_port_marks_by_a_virtual_queue_of_any_length() {
    // Two seconds at this rate.
    let program = phantom("100kbit", "25kB");
    let frame = ethernet(EtherType::IPV4, &udp(4, 1, 9000, true, &[0; 1000]));
    (0..60).for_each(|_| drop(pass(&program, &frame)));
    let count = program.counters().unwrap()[0];
    assert!((10..=40).contains(&count.marked), "{count:?}");
}

/// A CPU's time stamp, taken before it waited for the lock, may be earlier than the time that another CPU wrote meanwhile.
#[test]
fn root_port_virtual_queue_is_shared_by_all_cpus() {
    const EACH: u32 = 100_000;
    let program = phantom("8kbit", "20kB");
    let frame = ethernet(EtherType::IPV4, &udp(4, NOT_ECT, 9000, true, &[0; 1000]));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| repeat(&program, &frame, EACH));
        }
    });
    let count = program.counters().unwrap()[0];
    let below = count.packets - count.not_ect;
    println!("{below} of {} below the threshold", count.packets);
    // Twenty fill it, and two look at it at a time.
    assert!(count.packets == u64::from(2 * EACH) && (15..=40).contains(&below), "{count:?}");
}

#[test]
fn root_port_configuration_in_use_is_not_overwritten() {
    let program = marking("");
    let in_use = || {
        let id = shared::read(&program.configs, FIRST).unwrap().unwrap();
        MapHandle::from_map_id(id).unwrap()
    };
    let content = |map: &MapHandle| shared::read::<Config>(map, FIRST).unwrap().unwrap();
    // What a packet on another processor has found.
    let found = in_use();
    let before = content(&found);
    for fill in [1, 2, 3] {
        let config = Config::read_from_bytes(&[fill; size_of::<Config>()]).unwrap();
        program.configure(&config).unwrap();
        assert_eq!(content(&in_use()), config);
    }
    assert!(content(&found) == before, "written while it was in use");
}

fn shim(ether_type: u16, between: &[u8], packet: &[u8]) -> Vec<u8> {
    let mut out = ethernet(EtherType(ether_type), between);
    out.extend_from_slice(packet);
    out
}

#[test]
fn root_port_marks_behind_old_tags_pppoe_and_labels() {
    let program = marking("");
    let labels = [0, 1, 0x10, 64, 0, 2, 0x11, 64];
    for version in [4, 6] {
        for ecn in 0..4 {
            let packet = |ecn| udp(version, ecn, 9000, true, &[0x5a; 200]);
            let inside = type_of(version).0.to_be_bytes();
            let tag = [0, 7, inside[0], inside[1]];
            let ppp = if version == 4 { 0x21 } else { 0x57 };
            let pppoe = [0x11, 0, 0, 9, 0, (packet(0).len() + 2) as u8, 0, ppp];
            for (ether_type, between) in [(0x9100, &tag[..]), (0x8864, &pppoe), (0x8847, &labels)] {
                let frame = |ecn| shim(ether_type, between, &packet(ecn));
                assert_eq!(pass(&program, &frame(ecn)), frame(marked(ecn)), "{ether_type:x} {version} {ecn}");
            }
        }
    }
    assert_eq!(program.counters().unwrap()[0].unclassified, 0);
}

/// A pseudowire's frame begins with an address, PPPoE's discovery and PPP's own protocols with something else.
#[test]
fn root_port_leaves_non_ip_payload_behind_labels_unchanged() {
    let program = marking("");
    let last = [0, 2, 0x11, 64];
    for version in [4, 6] {
        let whole = udp(version, 1, 9000, true, &[0x5a; 200]);
        let mut other_sum = whole.clone();
        other_sum[if version == 4 { 10 } else { 5 }] ^= 1;
        let cut = &whole[..whole.len() - 1];
        let endless = [[0, 1, 0x10, 64]; 7].concat();
        for (between, packet) in [(&last[..], &other_sum[..]), (&last, cut), (&endless, &whole)] {
            let frame = shim(0x8847, between, packet);
            assert_eq!(pass(&program, &frame), frame, "{version}");
        }
        let lcp = shim(0x8864, &[0x11, 0, 0, 9, 0, 30, 0xc0, 0x21], &whole);
        assert_eq!(pass(&program, &lcp), lcp);
    }
}

/// The kernel's tests take only Ethernet, so its header stands for what a tunnel has in front.
#[test]
fn root_port_without_a_link_layer_parses_from_the_network_header() {
    let text =
        "rate = '8kbit'\nphantom = 1.0\nnot_ect = 'queue'\nmarking = { rule = 'threshold', at = '1kB' }";
    let program = configured_for(Frame::Bare, text);
    for (version, ecn) in [(4, 1), (4, 2), (6, 1), (6, 2), (4, 0)] {
        let frame = |ecn| ethernet(type_of(version), &udp(version, ecn, 9000, true, &[0x45; 900]));
        pass(&program, &frame(ecn));
        pass(&program, &frame(ecn));
        assert_eq!(pass(&program, &frame(ecn)), frame(marked(ecn)), "{version} {ecn}");
    }
}

#[test]
fn root_port_finds_ports_of_every_protocol_that_has_them() {
    let program = marking(
        "queue = 'drr'\n[[class]]\nname = 'a'\nfilter = [{ to_port = 9000 }]\n[[class]]\nname = 'rest'",
    );
    for (protocol, at) in [(6, 1), (17, 2), (33, 3), (132, 4), (136, 5)] {
        for version in [4, 6] {
            let mut payload = vec![0x1e, 0x61, 0x23, 0x28];
            payload.extend([0; 60]);
            pass(&program, &ethernet(type_of(version), &ip(version, 1, IpNumber(protocol), &payload)));
        }
        assert_eq!(program.counters().unwrap()[0].packets, 2 * at, "protocol {protocol}");
    }
    // ESP has none there.
    pass(
        &program,
        &ethernet(EtherType::IPV4, &ip(4, 1, IpNumber(50), &[0x1e, 0x61, 0x23, 0x28, 0, 0, 0, 0])),
    );
    assert_eq!(program.counters().unwrap()[1].packets, 1);
}

/// The parts of a datagram, the first with a UDP header.
fn fragments(version: u8, number: u16, port: u16) -> [Vec<u8>; 2] {
    let first = [&[0x1e, 0x61][..], &port.to_be_bytes(), &[0; 60]].concat();
    let part = |more: bool, offset: u16, payload: &[u8]| match version {
        4 => {
            let mut header = ip4(1, IpNumber::UDP, payload.len());
            header.identification = number;
            header.more_fragments = more;
            header.fragment_offset = offset.try_into().unwrap();
            let mut out = Vec::new();
            header.write(&mut out).unwrap();
            ethernet(EtherType::IPV4, &[&out[..], payload].concat())
        }
        _ => {
            let at = (offset << 3 | u16::from(more)).to_be_bytes();
            let number = u32::from(number).to_be_bytes();
            let extension = [&[17, 0][..], &at, &number, payload].concat();
            ethernet(EtherType::IPV6, &ip(6, 1, IpNumber::IPV6_FRAGMENTATION_HEADER, &extension))
        }
    };
    [part(true, 0, &first), part(false, 8, &[0; 64])]
}

#[test]
fn root_port_fragments_stay_with_their_datagram() {
    let program = marking(
        "queue = 'drr'\n[[class]]\nname = 'a'\nfilter = [{ to_port = 9000 }]\n[[class]]\nname = 'rest'",
    );
    let packets = || program.counters().unwrap().iter().take(2).map(|c| c.packets).collect::<Vec<_>>();
    for version in [4, 6] {
        let before = packets();
        let (ours, others) = (fragments(version, 7, 9000), fragments(version, 8, 80));
        for fragment in [&ours[0], &others[0], &ours[1], &others[1], &ours[1]] {
            pass(&program, fragment);
        }
        // One whose first part was never here.
        pass(&program, &fragments(version, 9, 9000)[1]);
        assert_eq!(packets(), [before[0] + 3, before[1] + 3], "IPv{version}");
    }
}

#[test]
fn root_port_parses_every_extension_header() {
    let program = marking(
        "queue = 'drr'\n[[class]]\nname = 'a'\nfilter = [{ to_port = 9000 }]\n[[class]]\nname = 'b'\n\
         filter = [{ from = 'fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd' }]\n[[class]]\nname = 'rest'",
    );
    let packets = || program.counters().unwrap().iter().take(3).map(|c| c.packets).collect::<Vec<_>>();
    let behind = |headers: usize| {
        let mut payload = [60, 0, 1, 4, 0, 0, 0, 0].repeat(headers - 1);
        payload.extend([17, 0, 1, 4, 0, 0, 0, 0, 0x1e, 0x61, 0x23, 0x28]);
        payload.extend([0; 60]);
        ethernet(EtherType::IPV6, &ip(6, 1, IpNumber(60), &payload))
    };
    for headers in [1, 7, 11] {
        pass(&program, &behind(headers));
    }
    assert_eq!(packets(), [3, 0, 0]);
    // Deeper, the last class, whatever else would match; marked as any other.
    let deep = behind(12);
    assert_ne!(pass(&program, &deep), deep);
    assert_eq!(packets(), [3, 0, 1]);
}

#[test]
fn root_port_classes_split_by_ecn() {
    let program = marking(
        "queue = 'drr'\n[[class]]\nname = 'voice'\ndscp = [46]\necn = 'ect'\n[[class]]\nname = 'old'\ndscp = [46]\n\
         ecn = 'not-ect'\n[[class]]\nname = 'ect'\necn = 'ect'\n[[class]]\nname = 'rest'",
    );
    // IPv6 packets carry DSCP 46 here, IPv4 ones none.
    for (version, ecn, class) in [(6, 0, 1), (6, 1, 0), (6, 2, 0), (6, 3, 0), (4, 0, 3), (4, 1, 2), (4, 3, 2)]
    {
        let before = program.counters().unwrap()[class].packets;
        pass(&program, &ethernet(type_of(version), &udp(version, ecn, 80, true, &[0; 40])));
        assert_eq!(program.counters().unwrap()[class].packets, before + 1, "IPv{version} {ecn}");
    }
}

/// TCP with these flags and this many bytes of payload.
fn segment(ecn: u8, syn: bool, bytes: usize) -> Vec<u8> {
    let mut header = TcpHeader::new(1000, 80, 1, 1000);
    (header.syn, header.ack) = (syn, !syn);
    let mut payload = Vec::new();
    header.write(&mut payload).unwrap();
    payload.resize(payload.len() + bytes, 0x5a);
    ethernet(EtherType::IPV4, &ip(4, ecn, IpNumber::TCP, &payload))
}

/// Number of 1,000 equal packets that the program drops.
fn dropped(program: &Program, frame: &[u8]) -> usize {
    (0..1_000).filter(|_| run(program, OUT_PROGRAM, frame).0 == SHOT).count()
}

/// In how many round trips how many packets are dropped of as many equal ones as fit the time.
fn dropped_in(program: &Program, frame: &[u8], time: std::time::Duration) -> (usize, usize) {
    let begun = std::time::Instant::now();
    let mut count = 0;
    while begun.elapsed() < time {
        count += usize::from(run(program, OUT_PROGRAM, frame).0 == SHOT);
    }
    (begun.elapsed().div_duration_f64(TRIP) as usize, count)
}

/// Transmission time of 100 kB at 10 Mbit/s.
const TRIP: std::time::Duration = std::time::Duration::from_millis(80);

/// A port of 10 Mbit/s at which 100 kB wait.
fn slow(more: &str) -> Program {
    waiting(&format!("rate = '10mbit'\nmarking = {{ rule = 'threshold', at = '2kB' }}\n{more}"))
}

fn arp() -> Vec<u8> {
    ethernet(EtherType::ARP, &[0xff; 46])
}

#[test]
fn root_port_drops_one_not_ect_packet_per_round_trip_and_spacing() {
    let datagram = |ecn| ethernet(EtherType::IPV4, &udp(4, ecn, 9000, true, &[0x5a; 200]));
    let program = slow("");
    for (what, frame) in [
        ("SYN", segment(0, true, 0)),
        ("pure ACK", segment(0, false, 0)),
        ("ECT", segment(1, false, 1000)),
        ("ARP", arp()),
    ] {
        assert_eq!(dropped(&program, &frame), 0, "{what}");
    }
    let padded = [segment(0, false, 0), vec![0; 6]].concat();
    assert_eq!(dropped(&program, &padded), 0, "a pure ACK in a frame of the least length");
    let [(of_segments, segments), (of_datagrams, datagrams)] =
        [segment(0, false, 1000), datagram(0)].map(|frame| dropped_in(&program, &frame, 5 * TRIP));
    // The first loss is a round trip after the first packet.
    assert!((1..=of_segments).contains(&segments), "{segments} in {of_segments} round trips");
    assert!((1..=of_datagrams).contains(&datagrams), "{datagrams} in {of_datagrams} round trips");
    let count = program.counters().unwrap()[0];
    assert_eq!((count.drops_not_ect, count.drops_overload), ((segments + datagrams) as u64, 0), "{count:?}");
    assert_eq!(dropped(&slow("not_ect = 'queue'"), &segment(0, false, 1000)), 0);
}

/// Segments without ECN that are dropped at a queue of `length` bytes, beside datagrams with ECN that meet none, once the
/// rates of both are known. A window in which the machine stood still has no rate, so everything begins again then.
fn dropped_beside(datagrams: usize, segments: usize, length: u64) -> usize {
    const WINDOW: std::time::Duration = std::time::Duration::from_nanos(1 << 30);
    let program = slow("");
    let datagram = ethernet(EtherType::IPV4, &udp(4, 1, 9000, true, &[0x5a; 1000]));
    let wait = |bytes| {
        shared::write(&program.queues, FIRST, &Queue { backlog_bytes: bytes, ..Queue::default() }).unwrap();
    };
    let first = std::time::Instant::now();
    let (mut begun, mut count) = (first, 0);
    while begun.elapsed() < 4 * WINDOW {
        let turn = std::time::Instant::now();
        wait(0);
        for _ in 0..datagrams {
            pass(&program, &datagram);
        }
        wait(length);
        for _ in 0..segments {
            let shot = run(&program, OUT_PROGRAM, &segment(0, false, 1000)).0 == SHOT;
            count += usize::from(shot && begun.elapsed() > 2 * WINDOW);
        }
        if turn.elapsed() > WINDOW / 4 {
            (begun, count) = (std::time::Instant::now(), 0);
        }
        assert!(first.elapsed() < 60 * WINDOW, "the machine stands still too often to measure rates");
    }
    count
}

#[test]
fn root_port_packets_that_meet_no_queue_count_for_their_flow() {
    // Above 5 ms of 10 Mbit/s and below four times that. A mean is that of the window before: the machine may be slower
    // now by less than the ratio.
    assert_eq!(dropped_beside(6, 1, 20_000), 0, "of a flow that sends a sixth of the ECN flow");
    assert!(dropped_beside(1, 4, 20_000) > 0, "of a flow that sends four times as much");
}

#[test]
fn root_port_sparse_flows_lose_nothing_behind_a_standing_queue() {
    assert_eq!(dropped_beside(16, 1, 100_000), 0, "of a flow that sends a sixteenth of the ECN flow");
    assert!(dropped_beside(2, 1, 100_000) > 0, "of a flow that sends half of it");
}

#[test]
fn root_port_overload_drops_every_kind_with_the_same_probability() {
    // 100 kB are a third of the way from 75 kB to 150 kB.
    let program = slow("buffer = '150kB'\noverload = 0.5");
    for (what, frame) in [
        ("SYN", segment(0, true, 0)),
        ("pure ACK", segment(0, false, 0)),
        ("not ECT", segment(0, false, 1000)),
        ("ECT(1)", segment(1, false, 1000)),
        ("ECT(0)", segment(2, false, 1000)),
        ("CE", segment(3, false, 1000)),
    ] {
        let found = dropped(&program, &frame);
        assert!((260..410).contains(&found), "{found} of 1000 {what}");
    }
    assert_eq!(dropped(&program, &arp()), 0, "not IP");
    assert_eq!(dropped(&slow("buffer = '150kB'\noverload = 1.0"), &segment(1, false, 1000)), 0);
}

/// TCP with a timestamp and what it echoes.
fn tcp(from: ([u8; 4], u16), to: ([u8; 4], u16), stamps: (u32, u32), bytes: usize) -> Vec<u8> {
    let mut header = TcpHeader::new(from.1, to.1, 1, 1000);
    header.ack = true;
    header.set_options(&[TcpOptionElement::Timestamp(stamps.0, stamps.1)]).unwrap();
    let length = header.header_len() + bytes;
    let mut out = Vec::new();
    let mut ip = ip4(1, IpNumber::TCP, length);
    (ip.source, ip.destination) = (from.0, to.0);
    ip.header_checksum = ip.calc_header_checksum();
    ip.write(&mut out).unwrap();
    header.write(&mut out).unwrap();
    out.resize(out.len() + bytes, 0);
    ethernet(EtherType::IPV4, &out)
}

/// A packet, and after a while its answer, which the sender acknowledges.
fn exchange(program: &Program, host: u8, stamp: u32, bytes: usize, takes: std::time::Duration) {
    let (near, far) = (([10, 0, 0, host], 1000), ([10, 9, 9, 9], 80));
    run(program, OUT_PROGRAM, &tcp(near, far, (stamp, stamp.wrapping_sub(1)), bytes));
    std::thread::sleep(takes);
    run(program, IN_PROGRAM, &tcp(far, near, (stamp, stamp), 0));
    run(program, OUT_PROGRAM, &tcp(near, far, (stamp.wrapping_add(1), stamp), 0));
}

#[test]
fn root_port_forged_timestamps_of_a_minority_change_no_threshold() {
    let program = configured("rate = '100mbit'\nmarking = { rule = 'mq-ecn' }");
    let rtt = std::time::Duration::from_millis(5);
    for round in 1..120_u32 {
        exchange(&program, 1, 10 * round, 1400, rtt);
        for jump in 0..3 {
            // Ahead by nearly half of the circle, so that what was newest is old.
            let stamp = (3 * round + jump).wrapping_mul(0x7fff_fff0);
            exchange(&program, 2, stamp, 0, std::time::Duration::ZERO);
        }
    }
    let state = program.state().unwrap();
    let found = state.measured_rtt_ns(0).unwrap();
    let samples: u64 = state.rtt_samples.iter().sum();
    println!("{found} ns of {} samples", samples);
    assert!(found > 4_000_000 && samples > 200, "{found}");
}

/// Sets what waits in the first class's queue, and what has left it.
fn waits(program: &Program, backlog_bytes: u64, sent_bytes: u64) {
    shared::write(&program.queues, FIRST, &Queue { backlog_bytes, sent_bytes, ..Queue::default() }).unwrap();
}

/// Number of packets that were served first.
fn served_first(program: &Program) -> u64 {
    program.counters().unwrap()[0].sparse
}

/// A datagram of one of many flows.
fn datagram_of(flow: u16, bytes: usize) -> Vec<u8> {
    ethernet(EtherType::IPV4, &udp(4, 0, flow, true, &vec![0x5a; bytes]))
}

/// Bytes that have left a queue, more than any packet's place in these tests.
const LEFT: u64 = 1 << 30;
/// More than a train of packets.
const PASSED: u64 = 200_000;

#[test]
fn root_port_sparse_flow_is_served_first_until_it_waits_itself() {
    let program = slow("");
    waits(&program, 0, LEFT);
    pass(&program, &datagram_of(1, 200));
    assert_eq!(served_first(&program), 0, "nothing to be served before");
    waits(&program, 100_000, LEFT);
    pass(&program, &datagram_of(1, 200));
    assert_eq!(served_first(&program), 0, "its packet before may wait still");
    pass(&program, &datagram_of(2, 200));
    assert_eq!(served_first(&program), 1);
    waits(&program, 100_000, LEFT + PASSED);
    pass(&program, &datagram_of(1, 200));
    assert_eq!(served_first(&program), 2, "its packet before has left");
    let off = slow("sparse = false");
    waits(&off, 100_000, LEFT);
    pass(&off, &datagram_of(1, 200));
    assert_eq!(served_first(&off), 0);
}

#[test]
fn root_port_flow_of_a_fair_share_waits() {
    let program = slow("");
    let begun = std::time::Instant::now();
    // 104 kB in a second, where half of a sixteenth of the rate is 39 kB; each has left when the next one comes.
    for sent in 0..100 {
        waits(&program, 100_000, LEFT + sent * PASSED);
        pass(&program, &datagram_of(1, 1000));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let (first, most) = (served_first(&program), 39_000 * (begun.elapsed().as_secs() + 1) / 1042);
    assert!((10..=most).contains(&first), "{first} packets of at most {most}");
}

#[test]
fn root_port_sparse_flows_stay_within_an_eighth_of_the_rate() {
    const BYTES: usize = 200;
    let program = slow("");
    waits(&program, 100_000, LEFT);
    let begun = std::time::Instant::now();
    for flow in 1..20_000 {
        run(&program, OUT_PROGRAM, &datagram_of(flow, BYTES));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let bytes = served_first(&program) as f64 * (BYTES + 42) as f64;
    // A burst is two frames, and the clock has steps of up to 10 ms.
    let most = 10e6 / 8.0 / 8.0 * (seconds + 0.01) + 2.0 * 1514.0;
    assert!(bytes > 2000.0 && bytes <= most, "{bytes} bytes in {seconds} s, at most {most}");
}

#[test]
fn root_port_overload_spares_sparse_flows() {
    let program = slow("buffer = '150kB'\noverload = 0.5");
    waits(&program, 149_000, LEFT);
    let flows = 1..10;
    let lost = flows.clone().filter(|flow| run(&program, OUT_PROGRAM, &datagram_of(*flow, 100)).0 == SHOT);
    let lost = lost.count();
    assert_eq!((lost, served_first(&program)), (0, flows.len() as u64), "nearly every packet is lost here");
}
