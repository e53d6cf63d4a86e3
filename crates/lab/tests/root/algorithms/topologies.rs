//! Every kind of network that this kernel can build, as the simulator has it: the same text on both engines, bytes on
//! the links that the description says and on no other, and nothing left behind.

use crate::common::{self, namespaces_of};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use vmcc_lab::{Control, LabSpec, Layout, Programs};
use vmcc_metrics::Metrics;
use vmcc_network::LinkId;
use vmcc_scenario::{Document, Overrides, ResolvedCase};

const HEAD: &str = "title = 't'\nduration = '4s'\nwarmup = '1s'\n[host]\ncc = 'reno'\n";

fn case(text: &str) -> ResolvedCase {
    let plan = Document::parse("t", &format!("{HEAD}{text}")).and_then(|d| d.plan(&Overrides::default()));
    plan.unwrap().cases.remove(0)
}

/// Packets that each leg `o<number>` of a run has sent, by number.
fn sent(run_id: &str) -> BTreeMap<u32, u64> {
    let mut sent = BTreeMap::new();
    for namespace in namespaces_of(run_id).iter().filter(|name| name.contains("-at+")) {
        let output = Command::new("ip").args(["-n", namespace, "-s", "-j", "link"]).output().unwrap();
        let ports: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for port in ports.as_array().unwrap() {
            let number = port["ifname"].as_str().unwrap().strip_prefix('o').and_then(|n| n.parse().ok());
            if let Some(number) = number {
                sent.insert(number, port["stats64"]["tx"]["packets"].as_u64().unwrap());
            }
        }
    }
    sent
}

/// Runs a case and returns its metrics, and what each link has sent near the end.
fn on_the_kernel(case: &ResolvedCase, tag: &str) -> (LabSpec, Metrics, BTreeMap<u32, u64>) {
    let run_id = format!("{tag}-{}", std::process::id());
    let spec = LabSpec { run_id: Some(run_id.clone()), ..LabSpec::try_from(case).unwrap() };
    let (cancel, mut packets) = (AtomicBool::new(false), BTreeMap::new());
    let mut progress = |progress: &vmcc_lab::Progress| {
        if progress.elapsed.as_secs() >= 3 {
            packets = sent(&run_id);
        }
    };
    let mut control =
        Control { cancel: &cancel, progress: &mut progress, programs: Programs::default(), machine: None };
    let output = vmcc_lab::run(&spec, &mut control).unwrap();
    // Other tests run beside it.
    let warned = output.warnings.iter().filter(|warning| *warning != vmcc_lab::TOO_BUSY);
    assert_eq!(warned.collect::<Vec<_>>(), [""; 0]);
    assert!(namespaces_of(&run_id).is_empty(), "{:?}", namespaces_of(&run_id));
    assert!(!std::path::Path::new("/run/vmcc").join(format!("{run_id}.json")).exists());
    (spec, output.metrics, packets)
}

/// The links of the flows' routes, with data and with acknowledgments alone.
fn intended(spec: &LabSpec) -> (BTreeSet<LinkId>, BTreeSet<LinkId>) {
    let Layout::Routed(routed) = &spec.layout else { panic!("{:?}", spec.layout) };
    let routes = || spec.flows.iter().flat_map(|flow| &routed.routes[&(flow.from, flow.to)]);
    let data: BTreeSet<LinkId> = routes().flat_map(|route| route.forward.clone()).collect();
    let acks: BTreeSet<LinkId> = routes().flat_map(|route| route.reverse.clone()).collect();
    (data.clone(), acks.difference(&data).copied().collect())
}

/// The same on both engines: links that carry packets, and goodput within a fifth. `check` judges the kernel's metrics, with the
/// simulator's beside them.
fn both(text: &str, tag: &str, check: impl Fn(&Metrics, &Metrics)) {
    let case = case(text);
    let model = vmcc_sim::run_case(&case, 1, &vmcc_sim::Options::default()).unwrap().metrics;
    let goodput = |metrics: &Metrics| metrics.goodput_bps.unwrap();
    let verdict = |(spec, real, packets): &(LabSpec, Metrics, BTreeMap<u32, u64>)| {
        let (data, acks) = intended(spec);
        let made: BTreeSet<LinkId> = packets.keys().copied().map(LinkId).collect();
        assert_eq!(made, data.union(&acks).copied().collect(), "links that were made");
        let idle: Vec<_> = data.iter().filter(|link| packets[&link.0] < 200).collect();
        let share = goodput(real) / goodput(&model);
        println!("{tag}: kernel {:.1} Mbit/s, {share:.2} of the simulator's", goodput(real) / 1e6);
        assert!(
            idle.is_empty() && (0.8..1.2).contains(&share),
            "{tag}: {share:.2} of the simulator's goodput; idle {idle:?}; {packets:?}"
        );
        check(real, &model);
    };
    vmcc_testkit::judge(|| on_the_kernel(&case, tag), verdict, |_| common::control());
}

#[test]
fn root_dumbbell_is_shared() {
    let text = "[topology]\nkind='dumbbell'\npairs=2\nrate='40mbit'\naccess_rate='100mbit'\ndelay='20us'\n\
                [[traffic]]\nkind='bulk'\nprotocol='tcp'\n";
    both(text, "bell", |real, _| {
        let path = &real.paths[0];
        assert_eq!((path.path.as_str(), real.established), ("bottleneck", Some(2)));
        assert!(path.goodput_bps.unwrap() > 25e6 && path.utilization.unwrap() > 0.7, "{path:?}");
        assert!(path.queue_bytes.unwrap().max.unwrap() > 30_000.0, "reno fills the bottleneck: {path:?}");
    });
}

/// The goodput of each entry of traffic.
fn of_entries(metrics: &Metrics) -> Vec<f64> {
    ["there", "back"].map(|entry| metrics.get(&format!("traffic.{entry}.goodput_bps")).unwrap()).to_vec()
}

#[test]
fn root_bottleneck_has_a_rate_per_direction() {
    let text = "[topology]\nkind='dumbbell'\npairs=2\nrate='40mbit'\naccess_rate='100mbit'\ndelay='20us'\n\
                reverse={rate='10mbit'}\n\
                [[traffic]]\nname='there'\nkind='bulk'\nprotocol='tcp'\nfrom='left0'\nto='right0'\n\
                [[traffic]]\nname='back'\nkind='bulk'\nprotocol='tcp'\nfrom='right1'\nto='left1'\n";
    both(text, "both", |real, model| {
        for (real, model) in of_entries(real).into_iter().zip(of_entries(model)) {
            assert!((0.7..1.3).contains(&(real / model)), "{real} {model}");
        }
    });
}

#[test]
fn root_path_has_a_rate_per_direction() {
    for (from, to, range) in [("client", "server", 30e6..50e6), ("server", "client", 4e6..6e6)] {
        let text = format!(
            "[topology]\nkind='parallel-paths'\npaths=1\nrate='50mbit'\ndelay='20us'\nreverse={{rate='5mbit'}}\n\
             [[traffic]]\nkind='bulk'\nprotocol='tcp'\nfrom='{from}'\nto='{to}'\n"
        );
        common::judged(&LabSpec::try_from(&case(&text)).unwrap(), |output| {
            let goodput_bps = output.metrics.goodput_bps.unwrap();
            assert!(range.contains(&goodput_bps), "from {from} to {to}: {goodput_bps}");
        });
    }
}

const GRAPH: &str = "[topology]\nkind='graph'\nhosts=['a','b','c']\n\
    links=[{from='a',to='s',rate='100mbit',delay='20us'},{from='s',to='u',rate='20mbit',delay='20us'},\
    {from='s',to='v',rate='20mbit',delay='20us'},{from='u',to='t',rate='50mbit',delay='20us'},\
    {from='v',to='t',rate='50mbit',delay='20us'},{from='t',to='b',rate='100mbit',delay='20us'},\
    {from='c',to='t',rate='100mbit',delay='20us'}]\n";

#[test]
fn root_explicit_routes_of_a_graph_are_taken() {
    let routes = "routing='explicit'\nroutes=[{name='high',via=['a','s','u','t','b']},\
                  {name='low',via=['a','s','v','t','b']},{name='other',via=['c','t','b']}]\n";
    let traffic = "[[traffic]]\nkind='bulk'\nfrom='a'\nto='b'\n\
                   [[traffic]]\nkind='bulk'\nname='single'\nfrom='c'\nto='b'\nprotocol='tcp'\npath='other'\n";
    both(&format!("{GRAPH}{routes}{traffic}"), "routes", |real, _| {
        for path in &real.paths[..2] {
            assert!((12e6..21e6).contains(&path.goodput_bps.unwrap()), "{path:?}");
        }
    });
}

#[test]
fn root_paths_that_share_a_queue_have_its_figures() {
    let text = "[topology]\nkind='graph'\nhosts=['a','b','c']\nrouting='explicit'\n\
                links=[{from='a',to='s',rate='100mbit',delay='20us'},{from='c',to='s',rate='100mbit',delay='20us'},\
                {from='s',to='b',rate='20mbit',delay='20us'}]\n\
                routes=[{name='first',via=['a','s','b']},{name='second',via=['c','s','b']}]\n\
                [[traffic]]\nkind='bulk'\nfrom=['a','c']\nto='b'\nprotocol='tcp'\n";
    both(text, "queue", |real, _| {
        assert_eq!(real.paths.len(), 2);
        for path in &real.paths {
            // Half of 20 would be a tenth of the 100 Mbit/s before it, where no queue builds.
            assert!(path.utilization.unwrap() > 0.7, "{path:?}");
            assert!(path.queue_bytes.unwrap().max.unwrap() > 30_000.0, "{path:?}");
        }
    });
}

#[test]
fn root_graph_spreads_flows_by_hash() {
    let traffic = "[[traffic]]\nkind='bulk'\nfrom='a'\nto='b'\nprotocol='tcp'\n";
    both(&format!("{GRAPH}{traffic}"), "ecmp", |real, _| assert!(real.paths.is_empty()));
}

#[test]
fn root_two_pods_have_a_path_per_nic_and_a_limit_per_server() {
    let text = "[topology]\nkind='two-pod'\nservers_per_pod=2\nrate='30mbit'\ndelay='20us'\n\
                server_limit='40mbit'\n[[traffic]]\nkind='bulk'\nfrom='p0s0'\nto='p1s1'\n";
    both(text, "pods", |real, _| {
        assert!((28e6..40e6).contains(&real.goodput_bps.unwrap()), "{real:?}");
        assert!(real.paths.iter().all(|path| path.goodput_bps.unwrap() > 5e6), "{:?}", real.paths);
    });
}

#[test]
fn root_small_fat_tree_is_built() {
    let text = "[topology]\nkind='fat-tree'\nk=4\nrate='20mbit'\ndelay='20us'\n\
                [[traffic]]\nkind='bulk'\nfrom=['h0','h5']\nto=['h15','h10']\nsubflows=2\n";
    both(text, "tree", |_, _| ());
}

#[test]
fn root_leaves_and_spines_are_built() {
    let text = "[topology]\nkind='leaf-spine'\nleaves=2\nspines=2\nhosts_per_leaf=2\nrate='20mbit'\n\
                spine_rate='40mbit'\ndelay='20us'\n\
                [[traffic]]\nkind='bulk'\nfrom=['h0','h1']\nto=['h2','h3']\nprotocol='tcp'\n";
    both(text, "spines", |_, _| ());
}

/// By netem, or by user-space links where the kernel has none.
#[test]
fn root_delay_is_applied() {
    let case = case(
        "[topology]\nkind='dumbbell'\npairs=1\nrate='40mbit'\ndelay='5ms'\n[[traffic]]\nkind='bulk'\nprotocol='tcp'\n",
    );
    let spec = LabSpec::try_from(&case).unwrap();
    let metrics = common::run(&spec).unwrap().metrics;
    // Three links there and three back.
    let rtt = metrics.rtt_us.unwrap();
    assert!(rtt.min.unwrap() >= 30_000.0 && metrics.goodput_bps.unwrap() > 4e6, "{rtt:?}");
}
