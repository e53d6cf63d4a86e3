//! Fates of connections and subflows, on this machine's kernel and on the simulator: stalls, reinjection, closed subflows and the
//! reasons, DCTCP's estimate. Each figure is checked against something that counts it in another way.

use crate::common::{alone, command, control, namespaces_of, watched};
use std::time::Duration;
use vmcc_lab::LabSpec;
use vmcc_results::RunOutput;
use vmcc_scenario::{Document, Overrides, ResolvedCase};

const HEAD: &str = "title='t'\nduration='5s'\nwarmup='0s'\n";
const TWO_PATHS: &str = "[topology]\nkind='parallel-paths'\npaths=[{name='a'},{name='b'}]\nrate='50mbit'\ndelay='50us'\nbuffer='60kB'\n";

fn case(text: &str, settings: &[&str]) -> ResolvedCase {
    let set = settings.iter().map(|setting| (*setting).to_owned()).collect();
    let overrides = Overrides { set, ..Overrides::default() };
    let plan = Document::parse("t", &format!("{HEAD}{text}")).and_then(|d| d.plan(&overrides));
    plan.unwrap_or_else(|e| panic!("{e}")).cases.remove(0)
}

fn simulated(case: &ResolvedCase) -> RunOutput {
    vmcc_sim::run_case(case, 1, &vmcc_sim::Options::default()).unwrap()
}

/// On the kernel; `look` gets the namespaces' common name and the time since the traffic started.
fn real(case: &ResolvedCase, tag: &str, look: &mut dyn FnMut(&str, Duration)) -> RunOutput {
    let run_id = format!("{tag}-{}", std::process::id());
    let spec = LabSpec { run_id: Some(run_id.clone()), ..LabSpec::try_from(case).unwrap() };
    let output = watched(&spec, &mut |at| look(&format!("vmcc-{run_id}"), at));
    assert!(namespaces_of(&run_id).is_empty());
    output
}

fn figure(output: &RunOutput, name: &str) -> f64 {
    output.metrics.get(name).unwrap_or_else(|| panic!("{name}: {:?}", output.metrics))
}

/// Does something once, when its time has come.
struct Once<'a>(Duration, Option<Act<'a>>);

/// With the common name of a run's namespaces.
type Act<'a> = &'a dyn Fn(&str);

impl Once<'_> {
    fn look(&mut self, run: &str, at: Duration) {
        if at >= self.0
            && let Some(act) = self.1.take()
        {
            act(run);
        }
    }
}

/// Time in which a series says that nothing came.
fn silence_us(output: &RunOutput, entity: &str) -> f64 {
    let ours = output.series.iter().filter(|p| p.entity == entity && p.metric == "goodput_bps");
    let points: Vec<(u64, f64)> = ours.map(|p| (p.t_us, p.value)).collect();
    let every = points[1].0 - points[0].0;
    (points.iter().filter(|(_, value)| *value == 0.0).count() as u64 * every) as f64
}

const CUT_US: f64 = 1e6;

/// Path `a` is away for a second: a connection on it stalls that long and until TCP asks again, one that has another path only
/// until MPTCP sends again there what was under way.
#[test]
fn root_stalls_and_reinjections_are_counted() {
    let _alone = alone();
    let traffic = "[host]\ncc='reno'\n[[traffic]]\nname='both'\nkind='bulk'\n\
                   [[traffic]]\nname='cut'\nkind='bulk'\nprotocol='tcp'\npath='a'\n\
                   [[traffic]]\nname='free'\nkind='bulk'\nprotocol='tcp'\npath='b'\n";
    let events =
        "[[event]]\nkind='link-down'\nat='2s'\nlink='a'\n[[event]]\nkind='link-up'\nat='3s'\nlink='a'\n";
    let model = simulated(&case(&format!("{TWO_PATHS}{traffic}{events}"), &[]));
    let set = |run: &str, to: &str| drop(command(&format!("ip -n {run}-mid0 link set lt {to}")));
    let (down, up) = (|run: &str| set(run, "down"), |run: &str| set(run, "up"));
    let cut = case(&format!("{TWO_PATHS}{traffic}"), &[]);
    let run = || {
        let (mut down, mut up) =
            (Once(Duration::from_secs(2), Some(&down)), Once(Duration::from_secs(3), Some(&up)));
        let mut again = String::new();
        let output = real(&cut, "stall", &mut |run, at| {
            down.look(run, at);
            up.look(run, at);
            if at > Duration::from_millis(4500) {
                again = command(&format!("ip netns exec {run}-client nstat -asz MPTcpExtMPTCPRetrans"));
            }
        });
        (output, again)
    };
    // On a busy machine little or nothing may be under way when the path goes.
    let idle = |output: &RunOutput| figure(output, "traffic.both.reinjected_bytes") == 0.0;
    let measure =
        || (0..6).map(|_| run()).find(|(output, _)| !idle(output)).expect("something was under way");
    let engine_verdict = |engine: &str, output: &RunOutput| {
        let stalled = |traffic: &str| figure(output, &format!("traffic.{traffic}.stalled_us.max"));
        let silent = ["both", "cut", "free"].map(|traffic| silence_us(output, traffic));
        println!("{engine}: silent {silent:?}");
        println!(
            "{engine}: stalled both {} cut {} free {}",
            stalled("both"),
            stalled("cut"),
            stalled("free")
        );
        // Asked again after 0.2, 0.6 and 1.4 s.
        assert!((0.9 * CUT_US..2.5 * CUT_US).contains(&stalled("cut")), "{engine}: {}", stalled("cut"));
        assert!(
            (stalled("cut") / silence_us(output, "cut") - 1.0).abs() < 0.3,
            "{engine}: {}",
            silence_us(output, "cut")
        );
        assert!(stalled("both") < 0.7 * CUT_US && stalled("free") < 0.3 * CUT_US, "{engine}");
        let reinjected = |traffic: &str| figure(output, &format!("traffic.{traffic}.reinjected_bytes"));
        println!("{engine}: reinjected {}", reinjected("both"));
        assert!((1.0..2e6).contains(&reinjected("both")), "{engine}: {}", reinjected("both"));
        assert_eq!((reinjected("cut"), reinjected("free")), (0.0, 0.0), "{engine}");
    };
    engine_verdict("simulator", &model);
    let verdict = |(real, again): &(RunOutput, String)| {
        engine_verdict("kernel", real);
        // The kernel's own count of the times, each of at most what MPTCP keeps in one piece.
        let counted = again.lines().find_map(|line| line.strip_prefix("MPTcpExtMPTCPRetrans"));
        let times: f64 = counted.unwrap().split_whitespace().next().unwrap().parse().unwrap();
        let bytes = figure(real, "traffic.both.reinjected_bytes");
        assert!(times > 0.0 && (1.0..=65_536.0).contains(&(bytes / times)), "{bytes} in {times} times");
    };
    vmcc_testkit::judge(measure, verdict, |_| control());
}

/// Two paths through one switch's port.
const SHARED: &str = "[topology]\nkind='graph'\nhosts=['a','b']\nrouting='explicit'\n\
    links=[{from='a',to='s',rate='100mbit',delay='20us'},{from='s',to='b',rate='40mbit',delay='20us',buffer='100kB',\
    marking={rule='threshold',at='15kB'}},{from='a',to='t',rate='100mbit',delay='20us'},\
    {from='t',to='s',rate='100mbit',delay='20us'}]\n\
    routes=[{name='near',via=['a','s','b']},{name='round',via=['a','t','s','b']}]\n\
    [host]\ncc='vmcc'\n[[traffic]]\nkind='bulk'\nfrom='a'\nto='b'\n";

#[test]
fn root_subflow_closed_for_a_shared_bottleneck_has_that_reason() {
    let _alone = alone();
    let case = case(
        SHARED,
        &[
            "host.params.vmcc.detector=counts",
            "host.params.vmcc.theta=1000",
            "host.params.vmcc.phi=1",
            "host.params.vmcc.early=10000",
        ],
    );
    // The run has a guard of its own there.
    let mut nothing = |_: &str, _| {};
    for (engine, output) in [("simulator", simulated(&case)), ("kernel", real(&case, "shared", &mut nothing))]
    {
        let names = ["opened", "closed", "closed_guard", "closed_timeout"];
        let counted = names.map(|name| figure(&output, &format!("subflows_{name}")));
        assert_eq!(counted, [2.0, 1.0, 1.0, 0.0], "{engine}");
    }
}

/// The reason of a subflow's close is counted under its name, whichever side closes it.
#[test]
fn root_close_reasons_of_subflows_are_reported() {
    let _alone = alone();
    let text = format!("{TWO_PATHS}[host]\ncc='reno'\n[[traffic]]\nkind='bulk'\n");
    let second = "dst 10.77.1.0/24";
    let kill = |run: &str, host: &str| drop(command(&format!("ip netns exec {run}-{host} ss -K {second}")));
    let aborted = |run: &str| kill(run, "client");
    let reset = |run: &str| kill(run, "server");
    let withdrawn = |run: &str| {
        let list = command(&format!("ip -n {run}-server mptcp endpoint show"));
        println!("{list}");
        let id = list.split_whitespace().skip_while(|word| *word != "id").nth(1).unwrap().to_owned();
        drop(command(&format!("ip -n {run}-server mptcp endpoint delete id {id}")));
    };
    let timeout = |run: &str| {
        drop(command(&format!("ip netns exec {run}-client sysctl -qw net.ipv4.tcp_retries2=2")));
        drop(command(&format!("ip -n {run}-mid1 link set lt down")));
    };
    let nothing = |_: &str| {};
    let causes: [(&str, Act<'_>); 5] = [
        ("guard", &aborted),
        ("reset", &reset),
        ("path_manager", &withdrawn),
        ("timeout", &timeout),
        ("", &nothing),
    ];
    for (why, act) in causes {
        let measure = || {
            let mut act = Once(Duration::from_secs(1), Some(act));
            real(&case(&text, &[]), "why", &mut |run, at| act.look(run, at))
        };
        let verdict = |output: &RunOutput| {
            let names = ["guard", "reset", "path_manager", "timeout", "peer"];
            let counted = names.map(|name| (name, figure(output, &format!("subflows_closed_{name}"))));
            println!("{why}: {counted:?}");
            assert_eq!(counted, names.map(|name| (name, f64::from(name == why))));
            assert_eq!(figure(output, "subflows_opened"), 2.0, "{why}");
        };
        vmcc_testkit::judge(measure, verdict, |_| control());
    }
}

/// The estimate is a moving average of the fraction that was marked, so both have one mean.
#[test]
fn root_alpha_equals_the_fraction_of_marked_packets() {
    let _alone = alone();
    for (cc, protocol) in [("dctcp", "mptcp"), ("vmcc", "mptcp"), ("dctcp", "tcp")] {
        let text = format!("{TWO_PATHS}[[traffic]]\nkind='bulk'\nprotocol='{protocol}'\n");
        // The paths are twins, which its detection would take for one.
        let case = case(
            &text,
            &[
                &format!("host.cc='{cc}'"),
                "host.params.vmcc.trigger=0",
                "topology.marking={ rule = 'threshold', at = '15kB' }",
            ],
        );
        for (engine, output) in
            [("simulator", simulated(&case)), ("kernel", real(&case, "alpha", &mut |_, _| {}))]
        {
            let alphas = output.series.iter().filter(|p| p.entity == "flow0.a" && p.metric == "alpha");
            // It begins with 1.
            let alphas: Vec<f64> = alphas.filter(|p| p.t_us > 500_000).map(|p| p.value).collect();
            let alpha = alphas.iter().sum::<f64>() / alphas.len() as f64;
            let packets = figure(&output, "paths.a.goodput_bps") * 5.0 / 8.0 / 1440.0;
            // Where a receiver does not say what arrived marked, its echoes do.
            let marks = output
                .metrics
                .get("paths.a.ce_marks")
                .unwrap_or_else(|| figure(&output, "paths.a.marked_pkt"));
            println!("{engine}, {cc}, {protocol}: alpha {alpha:.4}, marked {:.4}", marks / packets);
            assert!(alphas.len() > 20, "{engine}, {cc}: {alphas:?}");
            assert!((0.6..1.6).contains(&(alpha / (marks / packets))), "{engine}, {cc}");
        }
    }
}
