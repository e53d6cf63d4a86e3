//! Delay, loss and reordering of a routed network, on a kernel that has netem: packets take the time, are lost and overtake each
//! other as often as the scenario says, by TCP's own figures, by netem's counters and by the simulator's.

use crate::common::{command, namespaces_of, watched};
use crate::inside::{run_inside, run_inside_as};
use std::process::Command;
use std::time::Duration;
use vmcc_lab::LabSpec;
use vmcc_lab::guest::{Accel, GuestOptions};
use vmcc_metrics::Metrics;
use vmcc_results::RunOutput;
use vmcc_scenario::{Document, Overrides, ResolvedCase};

#[test]
fn guest_routed_network_delays_and_drops() {
    run_inside(module_path!(), "6.12", &["inside_"], Duration::from_secs(600));
}

/// Under a clock of instructions: a guest that stands still for a second, as on a busy machine, has every packet late.
#[test]
fn timeless_routed_network_reorders() {
    let time_limit = Duration::from_secs(3_600);
    let options = GuestOptions { accel: Some(Accel::Counted), time_limit, ..GuestOptions::default() };
    run_inside_as(module_path!(), "6.12", &["counted_"], options);
}

const LOSS: f64 = 0.02;
const ONE_WAY_US: f64 = 15_000.0;

fn case(text: &str) -> ResolvedCase {
    let plan = Document::parse("t", text).and_then(|d| d.plan(&Overrides::default()));
    plan.unwrap().cases.remove(0)
}

fn lossy(loss: f64) -> ResolvedCase {
    let text = format!(
        "title = 't'\nduration = '20s'\nwarmup = '2s'\n[host]\ncc = 'reno'\n\
         [topology]\nkind = 'graph'\nhosts = ['a', 'b']\nrouting = 'explicit'\n\
         links = [{{ from='a', to='s', rate='20mbit', delay='5ms' }},\
         {{ from='s', to='b', rate='10mbit', delay='10ms', buffer='30kB', loss={loss} }}]\n\
         routes = [{{ name='way', via=['a', 's', 'b'] }}]\n\
         [[traffic]]\nkind = 'bulk'\nprotocol = 'tcp'\nfrom = 'a'\nto = 'b'\n"
    );
    case(&text)
}

/// Packets that netem passed on and dropped, on the leg that lost most: each has a delay of its own, one direction of one link
/// loses most.
fn netem(run_id: &str) -> (u64, u64) {
    let wires = namespaces_of(run_id).into_iter().find(|name| name.ends_with("-wires+")).unwrap();
    let output = Command::new("tc").args(["-n", &wires, "-s", "-j", "qdisc"]).output().unwrap();
    let queues: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let netem = queues.as_array().unwrap().iter().filter(|queue| queue["kind"] == "netem");
    let counted = netem.map(|queue| (queue["packets"].as_u64().unwrap(), queue["drops"].as_u64().unwrap()));
    counted.max_by_key(|(packets, drops)| (*drops, *packets)).unwrap()
}

/// On a kernel and in the model; what `look` finds in the run's namespaces a second before its end.
fn on_both<T>(case: &ResolvedCase, look: impl Fn(&str) -> T) -> (RunOutput, RunOutput, T) {
    let model = vmcc_sim::run_case(case, 1, &vmcc_sim::Options::default()).unwrap();
    let (mut seen, run_id) = (None, format!("netem-{}", std::process::id()));
    let spec = LabSpec { run_id: Some(run_id.clone()), ..LabSpec::try_from(case).unwrap() };
    let real = watched(&spec, &mut |at| {
        if at >= Duration::from_secs(19) && seen.is_none() {
            seen = Some(look(&run_id));
        }
    });
    (real, model, seen.unwrap())
}

fn lost(output: &RunOutput) -> f64 {
    let sent = output.flows[0].delivered_bytes as f64 / 1448.0;
    output.metrics.retransmits.unwrap() as f64 / sent
}

#[test]
#[ignore = "runs in a guest"]
fn inside_link_delays_packets() {
    let (real, model, (_, dropped)) = on_both(&lossy(0.0), netem);
    let least = |m: &Metrics| m.rtt_us.unwrap().min.unwrap();
    println!("least RTT {} us, the simulator's {}", least(&real.metrics), least(&model.metrics));
    for m in [&real.metrics, &model.metrics] {
        // The queue of 30 kB adds 24 ms when it is full, and a guest's own slowness to that.
        assert!((2.0 * ONE_WAY_US..6.0 * ONE_WAY_US).contains(&least(m)), "{:?}", m.rtt_us);
    }
    assert_eq!(dropped, 0, "none is lost where none shall be");
}

#[test]
#[ignore = "runs in a guest"]
fn inside_link_drops_at_its_rate() {
    let (real, model, (packets, dropped)) = on_both(&lossy(LOSS), netem);
    let shares = [lost(&real), lost(&model), dropped as f64 / (packets + dropped) as f64];
    println!("{packets} packets, {dropped} dropped; sent again, the simulator's, netem's: {shares:?}");
    assert!(dropped > 30, "too few to tell: {dropped}");
    for share in shares {
        assert!((0.5 * LOSS..2.0 * LOSS).contains(&share), "{shares:?}");
    }
}

/// Reordering as counted by the sender's kernel: the largest distance in segments that it has seen, recoveries that it undid, segments
/// that the receiver reported as duplicates (DSACK); and packets that netem dropped.
fn reordering(run_id: &str) -> [u64; 4] {
    let sender = namespaces_of(run_id).into_iter().find(|name| name.ends_with("-a")).unwrap();
    let sockets = command(&format!("ip netns exec {sender} ss -tinH"));
    let degrees =
        sockets.split_whitespace().filter_map(|word| word.strip_prefix("reordering:")?.parse().ok());
    let undone = ["FullUndo", "PartialUndo", "DSACKUndo", "LossUndo"].map(|name| format!("TcpExtTCP{name}"));
    let counted = |names: &[String]| -> u64 {
        let output = command(&format!("ip netns exec {sender} nstat -asz {}", names.join(" ")));
        let lines = output.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
    };
    let twice = counted(&["TcpExtTCPDSACKRecv".to_owned()]);
    [degrees.max().unwrap_or(0), counted(&undone), twice, netem(run_id).1]
}

/// Four senders that never fill the link: whatever is sent again was only late. Delays are long, because an emulated kernel adds
/// some milliseconds of its own.
#[test]
#[ignore = "runs in a guest"]
fn counted_jitter_that_reorders_misleads_as_often_as_in_the_model() {
    let case = case(
        "title = 't'\nduration = '20s'\nwarmup = '2s'\n[host]\ncc = 'reno'\n\
         [topology]\nkind = 'graph'\nhosts = ['a', 'b']\nrouting = 'explicit'\n\
         links = [{ from='a', to='s', rate='5mbit', delay='5ms' },\
         { from='s', to='b', rate='2.5mbit', delay='10ms', buffer='300kB', jitter='120ms', reorder=true }]\n\
         routes = [{ name='way', via=['a', 's', 'b'] }]\n\
         [[traffic]]\nkind = 'bulk'\nprotocol = 'tcp'\nfrom = 'a'\nto = 'b'\nconnections = 4\nwrite_rate = '500kbit'\n",
    );
    let (real, model, [degree, undone, twice, dropped]) = on_both(&case, reordering);
    let [kernel, ours] = [&real, &model].map(|output| output.metrics.retransmits.unwrap() as f64);
    let figure = |name: &str| model.metrics.get(name).unwrap();
    let held = figure("held_bytes.max") / 1448.0;
    println!(
        "sent again {kernel}, the model's {ours}; {twice} reported twice; undone {undone}, the model's {}; late by {degree} \
         segments, held in the model {held}; goodput {:?}, {:?}; RTT {:?}, {:?}",
        figure("undone"),
        real.metrics.goodput_bps,
        model.metrics.goodput_bps,
        real.metrics.rtt_us,
        model.metrics.rtt_us
    );
    assert_eq!((dropped, model.metrics.drops), (0, Some(0)), "nothing was lost");
    for output in [&real, &model] {
        assert!((0.95..1.05).contains(&(output.metrics.goodput_bps.unwrap() / 2e6)), "{:?}", output.metrics);
    }
    let alike = |kernel: f64, ours: f64, factor: f64| kernel > ours / factor && kernel < ours * factor;
    assert!(alike(degree as f64, held, 2.0), "{degree} and {held} segments");
    assert!(alike(kernel, ours, 4.0) && alike(undone as f64, figure("undone"), 4.0), "{kernel} and {ours}");
    // Several may be reported at once, and some after the last look.
    assert!(twice as f64 > 0.25 * kernel, "what was sent again had arrived: {twice} of {kernel}");
}
