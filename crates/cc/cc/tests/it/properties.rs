//! Equalities that the papers state, checked bit for bit over whole sequences of events.

use proptest::collection::vec;
use proptest::prelude::*;
use vmcc_cc::{Algorithm, Cause, Event, EventFlags, Group, Host, Params, Path, Slot, SlotFlags};

/// One thing that happens to one path.
#[derive(Debug, Clone)]
struct Op {
    path: usize,
    cause: Cause,
    ece: bool,
    limited: bool,
    acked_pkt: u32,
    whole_window: bool,
    srtt_us: u32,
    pause_us: u64,
}

fn cause() -> impl Strategy<Value = Cause> {
    prop_oneof![20 => Just(Cause::None), 2 => Just(Cause::Loss), 1 => Just(Cause::Rto)]
}

fn op(paths: usize, ece: bool) -> impl Strategy<Value = Op> {
    let marks =
        if ece { prop_oneof![4 => Just(false), 1 => Just(true)].boxed() } else { Just(false).boxed() };
    let flow = (0..40u32, any::<bool>(), 10..10_000_000u32, 1..1_000_000u64);
    (0..paths, cause(), marks, prop::bool::weighted(0.9), flow).prop_map(
        |(path, cause, ece, limited, (acked_pkt, whole_window, srtt_us, pause_us))| Op {
            path,
            cause,
            ece,
            limited,
            acked_pkt,
            whole_window,
            srtt_us,
            pause_us,
        },
    )
}

/// A connection with one algorithm, moved by operations.
struct Run {
    algorithm: Algorithm,
    params: Params,
    now_us: u64,
    hosts: Vec<Host>,
    srtt_8us: Vec<u32>,
    sent: Vec<u32>,
    grouped: bool,
}

impl Run {
    fn new(name: &str, set: &[(&str, &str)], paths: usize, grouped: bool) -> Self {
        let algorithm = Algorithm::by_name(name).expect("in the registry");
        let mut params = Params::defaults(algorithm);
        for (param, value) in set {
            params.set(param, *value).expect("a parameter of it");
        }
        let (hosts, srtt_8us) = (vec![Host::new(10); paths], vec![800; paths]);
        let mut run = Self { algorithm, params, now_us: 1, hosts, srtt_8us, sent: vec![0; paths], grouped };
        for path in 0..paths {
            let (event, group) = (run.event(path), run.group());
            run.algorithm.begin(&event, &mut run.hosts[path], group.as_ref(), &run.params);
        }
        run
    }

    fn group(&self) -> Option<Group> {
        let paths = self.hosts.iter().zip(&self.srtt_8us);
        self.grouped.then(|| paths.map(|(host, srtt)| host.slot(*srtt)).collect())
    }

    fn event(&self, path: usize) -> Event {
        Event {
            now_us: self.now_us,
            self_index: path as u32,
            srtt_8us: self.srtt_8us[path],
            snd_una: self.sent[path],
            snd_nxt: self.sent[path],
            peer_ts: (self.now_us / 1000) as u32,
            ..Event::default()
        }
    }

    fn run(&mut self, op: &Op) {
        self.run_beside(op, None);
    }

    /// One operation, with something else in a slot of the group.
    fn run_beside(&mut self, op: &Op, other: Option<(usize, Slot)>) {
        self.now_us += op.pause_us;
        self.srtt_8us[op.path] = op.srtt_us * 8;
        let cwnd = self.hosts[op.path].cwnd_pkt;
        self.sent[op.path] += if op.whole_window { cwnd } else { 0 };
        let event = Event {
            flags: EventFlags::NONE.with(EventFlags::ECE, op.ece).with(EventFlags::CWND_LIMITED, op.limited),
            cause: op.cause,
            acked_pkt: op.acked_pkt,
            in_flight_pkt: cwnd / 2 + 1,
            rtt_us: op.srtt_us,
            min_rtt_us: op.srtt_us / 2,
            snd_nxt: self.sent[op.path] + cwnd,
            ..self.event(op.path)
        };
        let mut group = self.group();
        if let (Some(group), Some((index, slot))) = (&mut group, other) {
            group.publish(index, slot);
        }
        self.algorithm.step(&event, &mut self.hosts[op.path], group.as_ref(), &self.params);
    }

    /// Everything a law of growth and reduction decides.
    fn windows(&self) -> Vec<(u32, u32, i64)> {
        self.hosts.iter().map(|h| (h.cwnd_pkt, h.ssthresh_pkt, h.path.credit_q40)).collect()
    }
}

/// Moves two connections by the same operations; their windows must never differ.
fn twins(mut a: Run, mut b: Run, ops: &[Op]) -> Result<(), TestCaseError> {
    for (i, op) in ops.iter().enumerate() {
        a.run(op);
        b.run(op);
        prop_assert_eq!(a.windows(), b.windows(), "{} and {} differ after {}", a.algorithm, b.algorithm, i);
    }
    Ok(())
}

/// Algorithms that are Reno when alone.
const LIKE_RENO: [&str; 7] = ["lia", "olia", "balia", "ewtcp", "vmsched", "awake", "amp"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn vmcc_without_marks_follows_its_increase_law(ops in vec(op(4, false), 1..300)) {
        for law in ["lia", "olia", "balia"] {
            twins(Run::new("vmcc", &[("increase", law)], 4, true), Run::new(law, &[], 4, true), &ops)?;
        }
    }

    #[test]
    fn vmcc_on_a_single_path_equals_dctcp(ops in vec(op(1, true), 1..300), law in prop::sample::select(&["lia", "olia", "balia"][..])) {
        for grouped in [false, true] {
            for name in ["vmcc", "vmcc_awake"] {
                twins(Run::new(name, &[("increase", law)], 1, grouped), Run::new("dctcp", &[], 1, false), &ops)?;
            }
        }
    }

    #[test]
    fn coupled_algorithms_on_a_single_path_equal_reno(ops in vec(op(1, false), 1..300)) {
        for name in LIKE_RENO {
            for grouped in [false, true] {
                twins(Run::new(name, &[], 1, grouped), Run::new("reno", &[], 1, false), &ops)?;
            }
        }
    }

    #[test]
    fn vmsched_without_inflation_equals_lia(ops in vec(op(3, false), 1..300)) {
        // The samples of these operations are twice the minimum; ten times would be inflated.
        twins(Run::new("vmsched", &[], 3, true), Run::new("lia", &[], 3, true), &ops)?;
    }

    /// However long nothing comes: the peer's clock shows that it sent nothing.
    #[test]
    fn awake_never_descheduled_equals_lia(ops in vec(op(3, false), 1..300)) {
        twins(Run::new("awake", &[], 3, true), Run::new("lia", &[], 3, true), &ops)?;
    }

    #[test]
    fn vmcc_awake_never_descheduled_equals_vmcc(ops in vec(op(4, true), 1..300)) {
        for law in ["lia", "olia", "balia"] {
            let set = [("increase", law)];
            twins(Run::new("vmcc_awake", &set, 4, true), Run::new("vmcc", &set, 4, true), &ops)?;
        }
    }

    /// vMCC with alpha fixed at 1 is LIA that halves on ECE, up to the floor of two packets.
    #[test]
    fn vmcc_halves_the_window_at_alpha_one(w in 4u32..1_000_000) {
        let mut run = Run::new("vmcc", &[], 2, true);
        run.hosts[0].cwnd_pkt = w;
        run.run(&Op {
            path: 0, cause: Cause::None, ece: true, limited: true, acked_pkt: 0, whole_window: false,
            srtt_us: 100, pause_us: 1,
        });
        prop_assert_eq!(run.hosts[0].cwnd_pkt, w - w / 2);
    }

    /// Siblings that are not established, or whose round-trip time is unknown, do not exist.
    #[test]
    fn absent_siblings_do_not_count(ops in vec(op(2, true), 1..200), index in 2usize..8, w in 1u32..1_000_000) {
        for algorithm in Algorithm::all() {
            let mut plain = Run::new(algorithm.name(), &[], 2, true);
            let mut haunted = Run::new(algorithm.name(), &[], 2, true);
            for op in &ops {
                plain.run(op);
                haunted.run_beside(op, Some((index, ghost(w, op.ece))));
                prop_assert_eq!(plain.windows(), haunted.windows(), "{}", algorithm);
            }
        }
    }
}

/// A slot that is published but does not count: not established, or without a round-trip time.
fn ghost(w: u32, established: bool) -> Slot {
    let slot = Host::new(w).slot(if established { 0 } else { 800 });
    Slot { flags: slot.flags.with(SlotFlags::ESTABLISHED, established), ..slot }
}

/// A host that calls `on_grow` where it should not: the algorithms that say so do not grow.
#[test]
fn marked_or_reduced_paths_do_not_grow() {
    let event = Event {
        now_us: 1,
        flags: EventFlags::CWND_LIMITED,
        cause: Cause::Ece,
        cwnd_pkt: 40,
        ssthresh_pkt: 20,
        srtt_8us: 800,
        acked_pkt: 40,
        snd_una: 1,
        snd_nxt: 41,
        ..Event::default()
    };
    for name in ["vmcc", "vmcc_awake", "xmp"] {
        let algorithm = Algorithm::by_name(name).expect("in the registry");
        let params = Params::defaults(algorithm);
        let mut path = Path::default();
        algorithm.init(&Event { snd_una: 0, snd_nxt: 0, ..event }, &mut path, None, &params);
        let marked = Event { flags: event.flags | EventFlags::ECE, ..event };
        algorithm.on_ack(&marked, &mut path, None, &params);
        assert_eq!(algorithm.on_grow(&marked, &mut path, None, &params).cwnd(), None, "{name}");
        assert_eq!(path.credit_q40, 0, "{name}");
        if name == "xmp" {
            algorithm.on_congestion(&Event { snd_nxt: 60, ..marked }, &mut path, None, &params);
            let later = Event { snd_una: 50, ..event };
            algorithm.on_ack(&later, &mut path, None, &params);
            algorithm.on_grow(&later, &mut path, None, &params);
            assert_eq!(path.credit_q40, 0, "reduced until everything sent before is acknowledged");
        }
    }
}

/// A host that asks for a second cut within the window: XMP, which keeps its own gate, does not cut again.
#[test]
fn xmp_reduces_once_per_round_on_repeated_signals() {
    let mut run = Run::new("xmp", &[], 1, false);
    run.hosts[0].cwnd_pkt = 40;
    run.hosts[0].ssthresh_pkt = 40;
    let event = Event { cause: Cause::Ece, cwnd_pkt: 40, ssthresh_pkt: 40, snd_nxt: 40, ..run.event(0) };
    let path = &mut run.hosts[0].path;
    let first = run.algorithm.on_congestion(&event, path, None, &run.params);
    assert_eq!(first.ssthresh(), Some(30));
    let again = Event { cwnd_pkt: 30, ssthresh_pkt: 30, ..event };
    assert_eq!(run.algorithm.on_congestion(&again, path, None, &run.params).ssthresh(), Some(30));
}
