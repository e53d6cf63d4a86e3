//! Every built-in scenario on the simulator: it runs, its claims hold, and what it reports may be claimed.

use crate::common::{case_figures, figures, get, near, plan, plan_at, run, run_threads};
use vmcc_scenario::{Document, Scale};
use vmcc_sim::{Options, SimError, Simulator, run_case};
use vmcc_units::Nanos;

#[test]
fn every_built_in_scenario_runs_and_its_claims_hold() {
    for builtin in vmcc_scenario::builtin::all() {
        let plan = plan_at(Scale::Small, builtin.name, &[]);
        // Other suites of scenarios reproduce papers; here are those that show the language and the marking ports.
        let own = ["demo", "examples/", "marking/", "sharing/"];
        if !own.iter().any(|prefix| builtin.name.starts_with(prefix)) {
            continue;
        }
        let cases = case_figures(&plan);
        for case in &cases {
            assert!(
                case.runs[0].get("goodput_bps").is_some_and(|g| *g > 0.0),
                "{}: {:?}",
                builtin.name,
                case.set
            );
        }
        for claim in &plan.claims {
            let verdict =
                claim.evaluate(&cases).unwrap_or_else(|e| panic!("{}/{}: {e}", builtin.name, claim.spec.id));
            assert!(verdict.pass, "{}/{}: {verdict:?}", builtin.name, claim.spec.id);
        }
    }
}

#[test]
fn every_reported_metric_can_be_claimed() {
    for name in [
        "demo",
        "examples/request-response",
        "examples/two-pod",
        "examples/poisson",
        "marking/weights-21",
        "marking/tenants",
    ] {
        let mut text = vmcc_scenario::builtin::find(name).unwrap().text.to_owned();
        for (index, metric) in figures(&run(name, &[])).into_keys().enumerate() {
            text += &format!("\n[[claim]]\nid = \"x{index}\"\ncheck = \"mean({metric}) >= 0\"\n");
        }
        Document::parse(name, &text).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn every_reported_metric_is_in_the_catalogue() {
    let validator = jsonschema::validator_for(&vmcc_metrics::schema::of_run()).unwrap();
    for name in ["demo", "examples/request-response", "examples/poisson", "marking/weights-21"] {
        let metrics = serde_json::to_value(&run(name, &[]).metrics).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&metrics).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        let mut foreign = metrics;
        foreign["nobody_lists_this"] = 1.0.into();
        assert!(!validator.is_valid(&foreign), "{name}");
    }
}

#[test]
fn unmeasured_metrics_are_absent() {
    let udp = run("examples/on-off-udp", &["traffic.0.competing=true"]);
    assert_eq!(udp.metrics.goodput_bps, None);
    assert_eq!((udp.metrics.retransmits, udp.metrics.rtt_us, udp.metrics.jain), (None, None, None));
    assert!(udp.metrics.competing_goodput_bps.is_some());
    let bulk = run("examples/dumbbell", &["duration=100ms", "warmup=0s"]);
    assert_eq!((bulk.metrics.completed, bulk.metrics.fct_us, bulk.metrics.cpu_s_per_gb), (None, None, None));
}

#[test]
fn same_seed_gives_identical_bytes_on_any_number_of_threads() {
    let tree = plan("examples/fat-tree", &["k=4", "duration=20ms", "warmup=5ms", "transport=mptcp x 8"]);
    let bytes = |seed, threads| serde_json::to_string(&run_threads(&tree, 0, seed, threads)).unwrap();
    let first = bytes(1, 1);
    assert_eq!(first, bytes(1, 1));
    assert_eq!(first, bytes(1, 2));
    assert_eq!(first, bytes(1, 4));
    assert_ne!(first, bytes(2, 1));
}

/// Whatever its network, a run gives the same bytes again, and those of a run that is shared; where it cannot be shared, it runs
/// on one thread.
#[test]
fn every_built_in_scenario_is_reproducible_on_one_to_four_threads() {
    let mut shared = 0;
    for builtin in vmcc_scenario::builtin::all() {
        let mut plan = plan_at(Scale::Small, builtin.name, &[]);
        let scenario = &mut plan.cases[0].scenario;
        // Threads wait for each other several times per delay that is cut.
        let network = scenario.topology.network();
        let delays = network.ports.iter().map(|port| port.settings.delay).filter(|delay| !delay.is_zero());
        let turns = delays.min().map_or(0, |delay| 40 * delay.get());
        scenario.duration = Nanos::new(turns).clamp(Nanos::from_micros(40), Nanos::from_millis(200));
        scenario.warmup = Nanos::new(scenario.duration.get() / 4);
        scenario.interval = Some(Nanos::new(scenario.duration.get() / 10));
        let parts = Simulator::threaded(4).threads_for(&plan.cases[0]).unwrap();
        shared += usize::from(parts > 1);
        let bytes = |threads| serde_json::to_string(&run_threads(&plan, 0, 1, threads)).unwrap();
        let one = bytes(1);
        for threads in 1..=4 {
            assert!(bytes(threads) == one, "{}: {threads} threads, {parts} parts", builtin.name);
        }
    }
    // The others are too small at this scale for threads to work ahead.
    assert!(shared > 6, "{shared}");
}

/// Events, remaps, descheduling and ways of acknowledgments do not depend on threads either.
#[test]
fn events_give_identical_bytes_on_any_number_of_threads() {
    let dumbbell = "title='t'\nduration='800ms'\nhost={ack_path='best'}\n\
        topology={kind='dumbbell',pairs=3,rate='40mbit',delay='20ms',access_delay='8ms',reverse={rate='9mbit',loss=0.01}}\n\
        [[traffic]]\nkind='bulk'\n[[traffic]]\nkind='request-response'\nrequest='1kB'\nresponse='50kB'\n\
        [[traffic]]\nkind='on-off-udp'\nrate='5mbit'\non='50ms'\noff='50ms'\nrandom=true\n\
        [[event]]\nat='200ms'\nkind='set-delay'\nlink='bottleneck'\ndelay='9ms'\n\
        [[event]]\nat='300ms'\nkind='deschedule'\nhost='left1'\non='10ms'\noff='30ms'\nrandom=true\n\
        [[event]]\nat='400ms'\nkind='link-down'\nlink='right2'\n[[event]]\nat='500ms'\nkind='link-up'\nlink='right2'\n";
    let moving = "title='t'\nduration='800ms'\n\
        topology={kind='virtual-host',vms=2,nics=2,clients=2,vm_rate='40mbit',path_rate='60mbit',path_delay='8ms'}\n\
        [[traffic]]\nkind='bulk'\n[[event]]\nat='400ms'\nkind='remap'\nvm='vm0'\nvnic=1\nnic=0\n";
    for text in [dumbbell, moving] {
        let plan = plan(text, &[]);
        let bytes = |threads| serde_json::to_string(&run_threads(&plan, 0, 1, threads)).unwrap();
        assert!(Simulator::threaded(4).threads_for(&plan.cases[0]).unwrap() > 1, "{text}");
        assert!((2..=4).all(|threads| bytes(threads) == bytes(1)), "{text}");
    }
}

/// A delay that becomes short, whenever it does, is not cut: threads would meet every few nanoseconds from the start on.
#[test]
fn threads_do_not_work_ahead_by_delays_with_few_events() {
    let text = "title='t'\nduration='1s'\n\
        topology={kind='parallel-paths',paths=1,rate='100mbit',delay='5ms'}\n[[traffic]]\nkind='bulk'\n";
    let event = "[[event]]\nat='999ms'\nkind='set-delay'\nlink='a'\ndelay='10ns'\n";
    let parts = |text: &str| Simulator::threaded(2).threads_for(&plan(text, &[]).cases[0]).unwrap();
    assert_eq!(parts(text), 2);
    assert_eq!(parts(&format!("{text}{event}")), 1);
    assert_eq!(parts(&text.replace("5ms", "10us")), 1);
}

#[test]
fn rate_limited_programs_are_identical_on_any_number_of_threads() {
    let text = "
title = 't'
duration = '200ms'
[host]
receive_buffer = '40kB'
send_buffer = '30kB'
packet_memory = '2304B'
[topology]
kind = 'fat-tree'
k = 4
rate = '100mbit'
delay = '100us'
[[traffic]]
kind = 'bulk'
pairing = 'permutation'
write_rate = '30mbit'
write_chunk = '10kB'
[[traffic]]
name = 'slow'
kind = 'sized'
size = '1MB'
pairing = 'permutation'
read_rate = '7mbit'
";
    let tree = plan(text, &[]);
    let bytes = |threads| serde_json::to_string(&run_threads(&tree, 0, 1, threads)).unwrap();
    let first = bytes(1);
    assert_eq!(first, bytes(2));
    assert_eq!(first, bytes(4));
    // 16 writers at 30 Mbit/s, and 16 readers at 7 who have begun with a buffer of about 25 kB.
    let figures = figures(&run_threads(&tree, 0, 1, 1));
    near("writers", figures["traffic.bulk.goodput_bps"], 16.0 * 30e6, 0.02);
    near("readers", figures["traffic.slow.goodput_bps"], 16.0 * (7e6 + 25e3 * 8.0 / 0.2), 0.05);
}

#[test]
fn run_can_be_interrupted_and_reports_progress() {
    let plan = plan("demo", &["variant=lia"]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let seen = std::sync::Mutex::new(Vec::new());
    let progress = |done: f64| {
        seen.lock().unwrap().push(done);
        stop.store(done >= 0.5, std::sync::atomic::Ordering::Relaxed);
    };
    let options = Options { threads: 1, cancel: Some(&stop), progress: Some(&progress) };
    assert!(matches!(run_case(&plan.cases[0], 1, &options), Err(SimError::Canceled)));
    let seen = seen.into_inner().unwrap();
    assert!(
        seen.len() >= 40 && seen.windows(2).all(|w| w[0] < w[1]) && *seen.last().unwrap() < 0.52,
        "{seen:?}"
    );
}

#[test]
fn unmodelled_settings_are_refused() {
    let refused = |set: &[&str]| {
        let plan = plan("demo", set);
        run_case(&plan.cases[0], 1, &Options::default()).unwrap_err().to_string()
    };
    assert!(refused(&["host.hystart=true"]).contains("HyStart"));
}

const MIXED: &str = "
title = 't'
duration = '2s'
warmup = '500ms'
topology = { kind = 'dumbbell', pairs = 4, rate = '20mbit', delay = '5ms', access_rate = '100mbit', buffer = '30pkt' }
[[traffic]]
name = 'web'
kind = 'poisson'
sizes = '20kB'
per_second = 10.0
[[traffic]]
name = 'others'
kind = 'poisson'
sizes = '20kB'
per_second = 10.0
competing = true
[[traffic]]
name = 'ask'
kind = 'request-response'
request = '1kB'
response = '10kB'
think = '20ms'
[[traffic]]
name = 'large'
kind = 'sized'
size = '50MB'
start = '1s'
";

/// The records that count, of which the report draws distributions, are those that the summary's figures stand on.
#[test]
fn flow_records_and_summary_cover_the_same_flows() {
    let output = run(MIXED, &[]);
    let measured = || output.flows.iter().filter(|flow| flow.measured);
    let mut fcts: Vec<f64> = measured().filter_map(|flow| flow.fct_us).collect();
    assert_eq!(vmcc_results::Dist::from_samples(&mut fcts), output.metrics.fct_us);
    let all = output.flows.iter().filter(|flow| flow.fct_us.is_some()).count();
    assert!(all >= fcts.len() + 40, "warm-up and competing transfers are recorded too: {all}");
    let counts = |flow: &&vmcc_results::FlowRecord| flow.size_bytes.is_none() || flow.completed;
    let mut rates: Vec<f64> = measured().filter(counts).filter_map(|flow| flow.goodput_bps).collect();
    assert_eq!(vmcc_results::Dist::from_samples(&mut rates), output.metrics.flow_goodput_bps);
    assert!(output.metrics.unfinished.is_some_and(|n| n >= 4), "{:?}", output.metrics.unfinished);
}

#[test]
fn every_answered_request_has_a_record() {
    let output = run(MIXED, &[]);
    let asked = || output.flows.iter().filter(|flow| &*flow.traffic == "ask" && flow.fct_us.is_some());
    let completed = figures(&output)["traffic.ask.completed"];
    assert!(completed > 100.0);
    assert_eq!(asked().count() as f64, completed);
    let span = |f: &vmcc_results::FlowRecord| (f.end_us.unwrap() - f.start_us) as f64 - f.fct_us.unwrap();
    assert!(asked().all(|flow| span(flow).abs() <= 1.0 && flow.size_bytes == Some(10_000)));
}

/// A limit, and the load of every host of a graph that names no senders.
#[test]
fn graph_load_is_summed_over_all_hosts() {
    let text = "
title = 't'
duration = '100ms'
[topology]
kind = 'graph'
hosts = ['h0', 'h1', 'h2', 'h3']
links = [
    { from = 'h0', to = 's', rate = '100mbit', delay = '5us' },
    { from = 'h1', to = 's', rate = '100mbit', delay = '5us' },
    { from = 'h2', to = 's', rate = '100mbit', delay = '5us' },
    { from = 'h3', to = 's', rate = '100mbit', delay = '5us' },
]
[[traffic]]
kind = 'poisson'
sizes = '10kB'
load = 0.5
pairing = 'random'
";
    let senders: std::collections::BTreeSet<std::sync::Arc<str>> =
        run(text, &[]).flows.into_iter().map(|flow| flow.src).collect();
    assert_eq!(senders.len(), 4, "{senders:?}");
}

#[test]
fn event_without_effect_keeps_the_results() {
    let text = "
title = 't'
duration = '2s'
topology = { kind = 'dumbbell', pairs = 2, rate = '100mbit', delay = '1ms', access_rate = '1gbit', buffer = '6000B' }
[host]
protocol = 'tcp'
[[traffic]]
kind = 'bulk'
[[traffic]]
kind = 'request-response'
request = '2kB'
response = '7kB'
";
    let event = "
[[event]]
at = '1s'
kind = 'set-rate'
link = 'bottleneck'
rate = '100mbit'
";
    let mut plain = figures(&run(text, &[]));
    let mut with_event = figures(&run(&format!("{text}{event}"), &[]));
    // Absent where a rate changes.
    plain.retain(|name, _| !name.ends_with("utilization"));
    with_event.retain(|name, _| !name.ends_with("utilization"));
    assert_eq!(plain, with_event);
}

/// Requests that wait for nothing come as fast as events are handled, not as fast as time passes.
#[test]
fn requests_without_think_time_are_refused_by_name() {
    let text = "
title = 't'
duration = '10s'
topology = { kind = 'parallel-paths', paths = 1, rate = '100tbit', delay = '0s' }
[[traffic]]
name = 'busy'
kind = 'request-response'
request = '1B'
response = '1B'
";
    let error = run_case(&plan(text, &[]).cases[0], 1, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("`busy`") && error.contains("think"), "{error}");
}

/// A round trip takes 40 ms, and 131 initial timeouts pass until a connection gives up.
#[test]
fn initial_timeouts_below_the_round_trip_are_warned_about() {
    let text = "title='t'\nduration='4s'\n[topology]\nkind='parallel-paths'\npaths=2\nrate='20mbit'\ndelay='20ms'\nbuffer='60kB'\n\
                [[traffic]]\nname='it'\nkind='bulk'\n[[traffic]]\nname='other'\nkind='sized'\nsize='9kB'\nprotocol='tcp'\n";
    let of = |timeout: &str| {
        let output = run(text, &[&format!("host.initial_rto={timeout}")]);
        (output.metrics.established, output.warnings)
    };
    for (timeout, established, effect) in
        [("300us", 0, "nothing gets through"), ("310us", 2, "sent again"), ("40ms", 2, "sent again")]
    {
        let (connections, warnings) = of(timeout);
        assert_eq!((connections, warnings.len()), (Some(established), 2), "{timeout}: {warnings:?}");
        for (warning, label) in warnings.iter().zip(["`it`", "`other`"]) {
            let named =
                warning.starts_with(&format!("host.initial_rto of {timeout} is below the 40.052ms that"));
            assert!(named && warning.contains(label) && warning.contains(effect), "{warning}");
            assert!(warning.contains("set it above 40.052ms"), "{warning}");
        }
    }
    assert_eq!(of("41ms"), (Some(2), Vec::new()));
}

/// 50 ms have a series although the usual interval is twice as long.
#[test]
fn short_runs_have_time_series() {
    let text = "title='t'\nduration='50ms'\n[topology]\nkind='parallel-paths'\npaths=1\nrate='100mbit'\ndelay='100us'\n\
                [[traffic]]\nkind='bulk'\n";
    let of = |set: &[&str], metric: &str| run(text, set).series.iter().filter(|p| p.metric == metric).count();
    for metric in ["goodput_bps", "queue_bytes", "srtt_us"] {
        assert!(of(&[], metric) >= 15, "{metric}: {}", of(&[], metric));
    }
    assert_eq!(of(&["interval=25ms"], "queue_bytes"), 2, "what is given holds");
}

/// The SYN meets a link that is down.
#[test]
fn lost_syn_is_retransmitted_after_the_initial_timeout() {
    let text = "title='t'\nduration='2s'\n[host]\nprotocol='tcp'\nmin_rto='1ms'\n[topology]\nkind='parallel-paths'\npaths=1\n\
                rate='1gbit'\ndelay='10us'\n[[traffic]]\nkind='sized'\nsize='1kB'\n\
                [[event]]\nkind='link-down'\nlink='a'\nat='0s'\n[[event]]\nkind='link-up'\nlink='a'\nat='5ms'\n";
    let took = |set: &[&str]| get(&run(text, set), "fct_us.max");
    near("RFC 6298", took(&[]), 1e6, 0.001);
    near("chosen", took(&["host.initial_rto=10ms"]), 10e3, 0.05);
}
