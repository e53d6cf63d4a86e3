//! C and Rust agree on all that they share: what the compiler of the programs made of the headers (BTF) against the
//! types here.

use super::{
    Constants, Layout, activity, algorithm, cgroup, hold, live, marking, observe, port, qdisc, states,
};
use crate::objects;
use libbpf_rs::AsRawLibbpf;
use libbpf_rs::btf::types::{Enum, MemberAttr, Struct};
use libbpf_rs::btf::{Btf, BtfType, HasSize};
use libbpf_rs::libbpf_sys;
use std::collections::{BTreeMap, BTreeSet};
use vmcc_cc::{
    Cause, Decision, DecisionFlags, Event, EventFlags, Group, History, Host, Path, Sharing, Slot, SlotFlags,
    State,
};

/// Everything that is shared, by name; never loaded.
static LAYOUTS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/layouts.o"));
/// Of the constants that C has as macros, in kernel/shared/layouts.bpf.c.
const MACRO: &str = "MACRO_";

/// The layout of a type of `vmcc-cc`, whose members have other names than in C where C's are words of Rust.
macro_rules! layout_of {
    ($type:ident as $c:literal { $($member:ident as $name:literal: $of:ty,)* }) => {
        Layout {
            name: $c,
            size: size_of::<$type>(),
            members: &[$(($name, std::mem::offset_of!($type, $member), size_of::<$of>()),)*],
        }
    };
}

const INTERFACE: &[Layout] = &[
    layout_of!(Event as "cc_event" {
        now_us as "now_us": u64,
        flags as "flags": EventFlags,
        state as "state": State,
        cause as "cause": Cause,
        self_index as "self": u32,
        cwnd_pkt as "cwnd_pkt": u32,
        ssthresh_pkt as "ssthresh_pkt": u32,
        srtt_8us as "srtt_8us": u32,
        min_rtt_us as "min_rtt_us": u32,
        rtt_us as "rtt_us": u32,
        acked_pkt as "acked_pkt": u32,
        in_flight_pkt as "in_flight_pkt": u32,
        snd_una as "snd_una": u32,
        snd_nxt as "snd_nxt": u32,
        peer_ts as "peer_ts": u32,
    }),
    layout_of!(Slot as "cc_slot" {
        flags as "flags": SlotFlags,
        cwnd_pkt as "cwnd_pkt": u32,
        ssthresh_pkt as "ssthresh_pkt": u32,
        srtt_8us as "srtt_8us": u32,
        pub_words as "pub": [u64; 2],
    }),
    layout_of!(Group as "cc_group" {
        end as "end": u32,
        reserved as "reserved": u32,
        path as "path": [Slot; vmcc_cc::MAX_PATHS],
    }),
    layout_of!(Sharing as "cc_sharing" {
        path as "path": [History; vmcc_cc::SHARING_PATHS],
        evidence as "evidence": [i8; 28],
        alone as "alone": [i8; 28],
        shift as "shift": u32,
    }),
    layout_of!(History as "cc_history" {
        bin as "bin": u32,
        delays as "delays": u32,
        acks as "acks": u16,
        marked as "marked": u16,
        ignored as "ignored": u16,
        settle as "settle": u8,
        trial as "trial": u8,
        hold as "hold": u16,
        back as "back": u16,
        until as "until": u16,
        value as "value": [u16; 21],
        expected as "expected": u16,
        tried as "tried": u8,
        doubts as "doubts": u8,
    }),
    layout_of!(Path as "cc_path" {
        credit_q40 as "credit_q40": i64,
        pub_words as "pub": [u64; 2],
        priv_words as "priv": [u64; 7],
    }),
    layout_of!(Decision as "cc_decision" {
        set as "set": DecisionFlags,
        cwnd_pkt as "cwnd_pkt": u32,
        ssthresh_pkt as "ssthresh_pkt": u32,
        peer as "peer": u32,
        gap_us as "gap_us": u32,
    }),
    layout_of!(Host as "cc_host" {
        path as "path": Path,
        decision as "decision": Decision,
        cwnd_pkt as "cwnd_pkt": u32,
        ssthresh_pkt as "ssthresh_pkt": u32,
        state as "state": State,
        reducing as "reducing": u32,
        cut_end as "cut_end": u32,
    }),
];

const INTERFACE_CONSTANTS: &[Constants] = &[
    Constants {
        name: "cc_state",
        values: &[
            ("CC_STATE_OPEN", State::Open as u32),
            ("CC_STATE_DISORDER", State::Disorder as u32),
            ("CC_STATE_CWR", State::Cwr as u32),
            ("CC_STATE_RECOVERY", State::Recovery as u32),
            ("CC_STATE_LOSS", State::Loss as u32),
        ],
    },
    Constants {
        name: "cc_cause",
        values: &[
            ("CC_CAUSE_NONE", Cause::None as u32),
            ("CC_CAUSE_ECE", Cause::Ece as u32),
            ("CC_CAUSE_LOSS", Cause::Loss as u32),
            ("CC_CAUSE_RTO", Cause::Rto as u32),
        ],
    },
    Constants {
        name: "cc_macros",
        values: &[
            ("CC_EV_ECE", EventFlags::ECE.0),
            ("CC_EV_CWND_LIMITED", EventFlags::CWND_LIMITED.0),
            ("CC_EV_PEER_US", EventFlags::PEER_US.0),
            ("CC_SLOT_ESTABLISHED", SlotFlags::ESTABLISHED.0),
            ("CC_SLOT_RECOVERY", SlotFlags::RECOVERY.0),
            ("CC_SLOT_LOSS", SlotFlags::LOSS.0),
            ("CC_SLOT_SLOW_START", SlotFlags::SLOW_START.0),
            ("CC_SET_CWND", DecisionFlags::CWND.0),
            ("CC_SET_SSTHRESH", DecisionFlags::SSTHRESH.0),
            ("CC_CLOSE_PATH", DecisionFlags::CLOSE_PATH.0),
            ("CC_ONLY_PATH", DecisionFlags::ONLY_PATH.0),
            ("CC_ALL_PATHS", DecisionFlags::ALL_PATHS.0),
            ("CC_SET_GAP", DecisionFlags::GAP.0),
            ("CC_ACK_EACH", DecisionFlags::ACK_EACH.0),
            ("CC_SSTHRESH_INFINITE", vmcc_cc::SSTHRESH_INFINITE),
        ],
    },
];

fn layouts() -> Vec<Layout> {
    [
        INTERFACE,
        activity::LAYOUTS,
        algorithm::LAYOUTS,
        cgroup::LAYOUTS,
        hold::LAYOUTS,
        live::LAYOUTS,
        observe::LAYOUTS,
        port::LAYOUTS,
        qdisc::LAYOUTS,
        marking::LAYOUTS,
        states::LAYOUTS,
    ]
    .concat()
}

fn constants() -> Vec<Constants> {
    [
        INTERFACE_CONSTANTS,
        algorithm::CONSTANTS,
        port::CONSTANTS,
        qdisc::CONSTANTS,
        marking::CONSTANTS,
        states::CONSTANTS,
    ]
    .concat()
}

fn btf<'a>(name: &'a str, object: &'a [u8]) -> Btf<'a> {
    Btf::from_raw(name, object).unwrap_or_else(|e| panic!("{name}: {e}")).expect("built with -g")
}

fn name_of(name: Option<&std::ffi::OsStr>) -> String {
    name.unwrap_or_default().to_string_lossy().into_owned()
}

/// Of a type, arrays included.
fn size(btf: &Btf<'_>, of: BtfType<'_>) -> usize {
    let id = of.type_id().into();
    // SAFETY: the type is one of this BTF, which is alive.
    let size = unsafe { libbpf_sys::btf__resolve_size(btf.as_libbpf_object().as_ptr(), id) };
    usize::try_from(size).unwrap_or_else(|_| panic!("{of:?} has no size"))
}

/// One line for each member, and one for the whole.
fn described<'a>(total: usize, members: impl Iterator<Item = (String, usize, usize)> + 'a) -> Vec<String> {
    let lines = members.map(|(name, offset, size)| format!("{offset}: {name}, {size} bytes"));
    lines.chain([format!("{total} bytes in all")]).collect()
}

fn in_rust(layout: &Layout) -> Vec<String> {
    described(layout.size, layout.members.iter().map(|(name, at, size)| ((*name).to_owned(), *at, *size)))
}

fn in_c(btf: &Btf<'_>, of: &Struct<'_>) -> Vec<String> {
    let member = |index| {
        let member = of.get(index)?;
        let MemberAttr::Normal { offset } = member.attr else { panic!("{of:?}: bits") };
        let kind = btf.type_by_id::<BtfType<'_>>(member.ty).expect("a member has a type");
        Some((name_of(member.name), offset as usize / 8, size(btf, kind)))
    };
    described(of.size(), (0..of.len()).filter_map(member))
}

/// Arguments of functions that C calls by a frame of their own.
const C_ALONE: [&str; 1] = ["cc_verdict"];

#[test]
fn shared_layouts_match_in_c_and_rust() {
    let btf = btf("layouts", LAYOUTS);
    let c: BTreeMap<_, _> =
        btf.type_by_kind::<Struct<'_>>().map(|of| (name_of(of.name()), in_c(&btf, &of))).collect();
    let rust: BTreeMap<_, _> = layouts().iter().map(|l| (l.name.to_owned(), in_rust(l))).collect();
    let is_shared = |name: &&String| !C_ALONE.contains(&name.as_str());
    let shared = c.iter().filter(|(name, _)| is_shared(name));
    let differ: Vec<_> = shared.filter(|(name, of)| rust.get(*name) != Some(*of)).collect();
    let theirs = differ.iter().map(|(name, _)| rust.get(*name)).collect::<Vec<_>>();
    assert!(differ.is_empty(), "C has {differ:#?}, Rust has {theirs:#?}");
    let missing: Vec<_> = rust.keys().filter(|name| !c.contains_key(*name)).collect();
    assert!(missing.is_empty(), "not in kernel/shared/layouts.bpf.c: {missing:?}");
}

#[test]
fn constants_match_in_c_and_rust() {
    let btf = btf("layouts", LAYOUTS);
    let values = |of: Enum<'_>| -> BTreeSet<(String, i64)> {
        let all = (0..of.len()).filter_map(|at| of.get(at));
        all.map(|v| (name_of(v.name).trim_start_matches(MACRO).to_owned(), v.value)).collect()
    };
    let c: BTreeMap<_, _> =
        btf.type_by_kind::<Enum<'_>>().map(|of| (name_of(of.name()), values(of))).collect();
    let values =
        |of: &Constants| of.values.iter().map(|(name, v)| ((*name).to_owned(), i64::from(*v))).collect();
    let rust: BTreeMap<_, BTreeSet<_>> =
        constants().iter().map(|of| (of.name.to_owned(), values(of))).collect();
    assert_eq!(rust, c, "Rust on the left, C on the right");
}

/// The objects that are loaded are built from the same headers, some with other macros set.
#[test]
fn loaded_objects_have_the_shared_layouts() {
    let mut objects = vec![
        ("port", objects::PORT),
        ("cgroup", objects::CGROUP),
        ("hold", objects::HOLD),
        ("live", objects::LIVE),
        ("observe", objects::OBSERVE),
        ("states", objects::STATES),
    ];
    objects.extend(objects::QDISC.map(|qdisc| ("qdisc", qdisc)));
    objects.extend(objects::OBJECTS.iter().map(|of| (of.name, of.program)));
    objects.extend(objects::OBJECTS.iter().map(|of| (of.name, of.replay)));
    let rust: BTreeMap<_, _> = layouts().iter().map(|l| (l.name.to_owned(), in_rust(l))).collect();
    for (object, bytes) in objects {
        let btf = btf(object, bytes);
        let shared: Vec<_> =
            btf.type_by_kind::<Struct<'_>>().filter(|of| rust.contains_key(&name_of(of.name()))).collect();
        assert!(!shared.is_empty(), "{object} has nothing that is shared");
        for of in shared {
            assert_eq!(in_c(&btf, &of), rust[&name_of(of.name())], "{object}: {:?}", of.name());
        }
    }
}
