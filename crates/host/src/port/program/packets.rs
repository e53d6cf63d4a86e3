//! Made-up packets through the egress program (`BPF_PROG_TEST_RUN`): which are marked, how, and with which sums.
//! Expected packets are built anew with the other ECN fields, so that every byte counts.

use super::*;
use crate::port::backend::Untouched;
use crate::port::plan::{Facts, Plan};
use etherparse::{
    EtherType, Ethernet2Header, IpEcn, IpNumber, Ipv4Header, Ipv4Options, Ipv6Header, SingleVlanHeader,
    UdpHeader,
};
use libbpf_rs::ProgramInput;
use proptest::prelude::*;

const NOT_ECT: u8 = 0;
const CE: u8 = 3;
const VXLAN_PORTS: [u16; 2] = [4789, 8472];
/// `TC_ACT_UNSPEC`: on with the next filter, then the queue.
const GO_ON: u32 = u32::MAX;

/// A port's program whose classes mark above 2000 bytes, and whose queues all are longer.
fn marking(more: &str) -> Program {
    let text = format!("rate = '1gbit'\nmarking = {{ rule = 'threshold', at = '2kB' }}\n{more}");
    let config = toml::from_str(&text).unwrap();
    let program = Program::load(Source::Map).expect("needs root");
    let plan = Plan::new("p0", &config, Facts { mtu: 1500, speed: None }).unwrap();
    program.configure(&layout::config("p0", &config, &plan, &Untouched).unwrap()).unwrap();
    for class in 0..MAX_CLASSES as u32 {
        let mut queue = [0; 64];
        queue[..8].copy_from_slice(&100_000_u64.to_ne_bytes());
        program.queues.update(&class.to_ne_bytes(), &queue, MapFlags::ANY).unwrap();
    }
    program
}

/// The frame as the program leaves it.
fn pass(program: &Program, frame: &[u8]) -> Vec<u8> {
    let mut out = vec![0; frame.len() + 64];
    let object = program.object.as_ref().unwrap();
    let out_program = object.progs_mut().find(|p| p.name() == OUT_PROGRAM).unwrap();
    let input = ProgramInput { data_in: Some(frame), data_out: Some(&mut out), ..ProgramInput::default() };
    let output = out_program.test_run(input).unwrap();
    assert_eq!(output.return_value, GO_ON);
    let length = output.data.unwrap().len();
    out.truncate(length);
    out
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
fn root_port_marks_what_is_ecn_capable_and_nothing_else() {
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
fn root_port_leaves_what_it_does_not_understand() {
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
