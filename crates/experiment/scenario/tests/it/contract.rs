//! The example of the design, and what the command line may do with a scenario.

use indexmap::IndexMap;
use serde_json::json;
use vmcc_scenario::model::{Marking, SizeDist, Topology, TrafficKind};
use vmcc_scenario::{CaseFigures, Claim, Document, Overrides, ResolvedCase, Scale};

const EXAMPLE: &str = r#"
title = "Long flows: throughput, fairness, RTT, retransmissions"
source = "vmcc-fig9"
duration = "10s"
runs = 5
[topology]
kind = "virtual-host"
vms = 1
nics = 2
vm_rate = "600mbit"
path_rate = "10gbit"
path_delay = "50us"
buffer = "100pkt"
marking = { rule = "mq-ecn", lambda = 1.0 }
[[traffic]]
kind = "bulk"
from = "vm*"
to = "client"
connections = 100
[sweep]
cc = ["lia", "olia", "vmcc"]
[scale.small]
topology.vm_rate = "150mbit"
traffic.connections = 25
[[claim]]
id = "goodput-vs-lia"
paper = "585 vs 523.1 Mb/s"
check = "mean(goodput_bps, cc='vmcc') >= 1.03 * mean(goodput_bps, cc='lia')"
"#;

fn set(options: &[&str]) -> Overrides {
    Overrides { set: options.iter().map(|s| (*s).to_owned()).collect(), ..Overrides::default() }
}

fn connections(kind: &TrafficKind) -> u32 {
    match kind {
        TrafficKind::Bulk(bulk) => bulk.connections,
        other => panic!("expected bulk, found {other:?}"),
    }
}

#[test]
fn design_example_resolves() {
    let document = Document::parse("fig9", EXAMPLE).unwrap();
    let plan = document.plan(&Overrides::default()).unwrap();
    assert_eq!((plan.cases.len(), plan.runs, plan.seed), (3, 5, 1));
    assert_eq!(plan.cases[2].set, IndexMap::from([("cc".to_owned(), json!("vmcc"))]));
    assert_eq!(plan.cases[2].scenario.host.cc, "vmcc");
    assert_eq!(connections(&plan.cases[0].scenario.traffic[0].kind), 100);
}

#[test]
fn params_under_the_kernel_name_are_applied() {
    let text = EXAMPLE.replace("[topology]", "[host.params]\nmp_vmcc.theta = 5\nvmcc.g = 0.25\n[topology]");
    let document = Document::parse("params.toml", &text).unwrap();
    let plan = document.plan(&Overrides::default()).unwrap();
    let params = plan.cases[2].congestion_control(0).params;
    assert_eq!((params.get("theta"), params.get("g")), (Some(5.0), Some(0.25)));
}

#[test]
fn entries_without_a_congestion_control_have_that_of_hosts() {
    let text = EXAMPLE.replace("[topology]", "[host.params]\nolia.unknown = 1\n[topology]");
    let error =
        Document::parse("t", &text).and_then(|d| d.plan(&Overrides::default())).unwrap_err().to_string();
    assert!(error.contains("olia has no parameter `unknown`"), "{error}");
    let text = EXAMPLE.replace(
        "[sweep]\ncc = [\"lia\", \"olia\", \"vmcc\"]",
        "[[traffic]]\nname = 'other'\nkind = 'bulk'\ncc = 'mp_vmcc'",
    );
    let text = text.split("[[claim]]").next().unwrap();
    let plan = Document::parse("t", text).and_then(|d| d.plan(&Overrides::default())).unwrap();
    let chosen = [0, 1].map(|entry| plan.cases[0].congestion_control(entry));
    let names = chosen.map(|chosen| (&*chosen.name, chosen.params.algorithm().name()));
    assert_eq!(names, [("reno", "reno"), ("mp_vmcc", "vmcc")], "named as the scenario does");
}

#[test]
fn case_from_json_with_an_unknown_algorithm_is_refused() {
    let plan = Document::parse("fig9", EXAMPLE).and_then(|d| d.plan(&Overrides::default())).unwrap();
    let mut json = serde_json::to_value(&plan.cases[2]).unwrap();
    assert_eq!(serde_json::from_value::<ResolvedCase>(json.clone()).unwrap(), plan.cases[2]);
    json["scenario"]["host"]["cc"] = "vmc".into();
    let error = serde_json::from_value::<ResolvedCase>(json).unwrap_err().to_string();
    assert_eq!(error, "host.cc: no congestion-control algorithm `vmc`; did you mean vmcc?");
}

#[test]
fn vm_is_matched_by_its_whole_name() {
    let planned = |vm: &str| {
        let event =
            format!("[[event]]\nat = \"1s\"\nkind = \"remap\"\nvm = \"{vm}\"\nvnic = 0\nnic = 1\n[sweep]");
        Document::parse("fig9", &EXAMPLE.replace("[sweep]", &event))
            .and_then(|document| document.plan(&Overrides::default()))
            .map_err(|error| error.to_string())
    };
    assert!(planned("vm0").is_ok());
    for other in ["vm00", "vm+0", "vm1", "client", "0"] {
        let error = planned(other).unwrap_err();
        assert!(error.contains("event[0].vm") && error.contains("from vm0 to vm0"), "{other}: {error}");
    }
}

/// Text of the file does not change how a message about it is parsed.
#[test]
fn strings_of_the_file_are_quoted_verbatim() {
    let refused = |text: &str| {
        let document = Document::parse("fig9", &EXAMPLE.replace("kind = \"bulk\"", text));
        document.and_then(|document| document.plan(&Overrides::default())).unwrap_err().to_string()
    };
    let kind = refused("kind = \"bulk`y, expected one of `a\"");
    assert!(kind.contains(": `bulk`y, expected one of `a` is not one of bulk, sized,"), "{kind}");
    let key = refused("kind = \"bulk\"\n\"with`tick\" = 1");
    assert!(key.contains("unknown key `with`tick`; expected one of write_rate,"), "{key}");
}

#[test]
fn small_scale_changes_only_its_listed_settings() {
    let document = Document::parse("fig9", EXAMPLE).unwrap();
    let full = document.plan(&Overrides::default()).unwrap();
    let small = document.plan(&Overrides { scale: Scale::Small, ..Overrides::default() }).unwrap();
    let mut expected = full.cases[0].scenario.clone();
    let Topology::VirtualHost(topology) = &mut expected.topology else { panic!("a virtual host") };
    topology.vm_rate = "150mbit".parse().unwrap();
    let TrafficKind::Bulk(bulk) = &mut expected.traffic[0].kind else { panic!("bulk") };
    bulk.connections = 25;
    assert_eq!(small.cases[0].scenario, expected);
}

/// A scale may leave out what no claim looks at, unless somebody chooses among the cases.
#[test]
fn scale_is_limited_to_cases_of_its_claims() {
    let text = EXAMPLE.replace("[scale.small]\n", "[scale.small]\nonly_claimed = true\n");
    let document = Document::parse("fig9", &text).unwrap();
    let cc = |options: &[&str], scale| {
        let plan = document.plan(&Overrides { scale, ..set(options) }).unwrap();
        let indices: Vec<_> = plan.cases.iter().map(|case| case.index).collect();
        assert_eq!(indices, (0..plan.cases.len()).collect::<Vec<_>>());
        plan.cases.iter().map(|case| case.set["cc"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(cc(&[], Scale::Full), ["lia", "olia", "vmcc"]);
    assert_eq!(cc(&[], Scale::Small), ["lia", "vmcc"]);
    assert_eq!(cc(&["seed=7"], Scale::Small), ["lia", "vmcc"]);
    assert_eq!(cc(&["connections=2,3"], Scale::Small), ["lia", "lia", "vmcc", "vmcc"]);
    assert_eq!(cc(&["cc=olia"], Scale::Small), ["olia"]);
    assert_eq!(cc(&["host.cc=lia,olia,vmcc"], Scale::Small), ["lia", "olia", "vmcc"]);
    let without = &text[..text.find("[[claim]]").unwrap()];
    let error = Document::parse("fig9", without).unwrap_err().to_string();
    assert!(error.contains("only_claimed") && error.contains("no claim looks at any case"), "{error}");
}

#[test]
fn claim_about_removed_cases_is_not_applicable() {
    let text = |claims: &str| {
        format!(
            "title = 'x'\nduration = '1s'\n[topology]\nkind = 'parallel-paths'\npaths = 2\nrate = '10mbit'\ndelay = '1ms'\nbuffer = '30kB'\n[[traffic]]\nkind = 'bulk'\n\
             [sweep]\ncc = ['lia', 'vmcc']\nconnections = [1, 2]\n{claims}"
        )
    };
    let claim = |id: &str, check: &str| format!("[[claim]]\nid = '{id}'\ncheck = \"{check}\"\n");
    let claims = claim("pair", "mean(goodput_bps, cc='vmcc') > mean(goodput_bps, cc='lia')")
        + &claim("trend", "spearman(goodput_bps, connections, cc='vmcc') > 0")
        + &claim("never", "mean(goodput_bps, cc='lia', cc='vmcc') > 0");
    let document = Document::parse("x", &text(&claims)).unwrap();
    let ids = |claims: &[Claim]| claims.iter().map(|c| c.spec.id.clone()).collect::<Vec<_>>();
    for (options, kept, removed) in [
        (&[][..], &["pair", "trend", "never"][..], &[][..]),
        (&["cc=vmcc"], &["trend", "never"], &["pair"]),
        (&["connections=2"], &["pair", "never"], &["trend"]),
        (&["cc=lia", "topology.delay=1ms"], &["never"], &["pair", "trend"]),
    ] {
        let plan = document.plan(&set(options)).unwrap();
        assert_eq!(
            (ids(&plan.claims), ids(&plan.not_applicable)),
            (kept.iter().map(|&s| s.to_owned()).collect(), removed.iter().map(|&s| s.to_owned()).collect()),
            "{options:?}"
        );
    }
}

#[test]
fn options_override_narrow_and_sweep() {
    let document = Document::parse("fig9", EXAMPLE).unwrap();
    let plan = document.plan(&set(&["cc=vmcc,lia", "connections=5,10,20", "runs=2"])).unwrap();
    assert_eq!((plan.cases.len(), plan.runs), (6, 2));
    assert_eq!(
        plan.cases[1].set,
        IndexMap::from([("cc".into(), json!("vmcc")), ("connections".into(), json!(10))])
    );
    assert_eq!(connections(&plan.cases[1].scenario.traffic[0].kind), 10);
    let plan =
        document.plan(&set(&["marking={ rule = \"tcn\", rtt = \"1ms\" }", "params.vmcc.theta=3"])).unwrap();
    let Topology::VirtualHost(topology) = &plan.cases[0].scenario.topology else { panic!("a virtual host") };
    assert!(matches!(topology.marking, Marking::Tcn(_)));
    assert!(plan.cases[0].scenario.host.params["vmcc"].contains_key("theta"));
    let seeded = Overrides { seed: Some(7), runs: Some(3), ..Overrides::default() };
    let plan = document.plan(&seeded).unwrap();
    assert_eq!((plan.seed, plan.runs, plan.cases[0].scenario.seed), (7, 3, 7));
}

#[test]
fn list_entries_are_addressed_by_index_or_name() {
    let demo = Document::open("demo").unwrap();
    let plan = demo
        .plan(&set(&["traffic.competitor.start=2s", "topology.paths.1.delay=9ms", "variant=lia"]))
        .unwrap();
    assert_eq!(plan.cases.len(), 1);
    let scenario = &plan.cases[0].scenario;
    assert_eq!(scenario.traffic[1].common.start, "2s".parse().unwrap());
    assert_eq!(scenario.traffic[0].common.start, "0s".parse().unwrap());
    let Topology::ParallelPaths(topology) = &scenario.topology else { panic!("parallel paths") };
    assert_eq!(topology.links()[1].1.delay, "9ms".parse().unwrap());
    assert_eq!(topology.links()[0].1.delay, topology.delay);
}

#[test]
fn published_distribution_can_be_swept() {
    let plan = Document::open("examples/poisson").unwrap().plan(&Overrides::default()).unwrap();
    let sizes: Vec<_> = plan
        .cases
        .iter()
        .map(|case| match &case.scenario.traffic[0].kind {
            TrafficKind::Poisson(p) => matches!(p.sizes, SizeDist::Named(_)),
            _ => false,
        })
        .collect();
    assert_eq!(sizes, [true; 3]);
}

fn figures(cc: &str, goodput: &[f64]) -> CaseFigures {
    CaseFigures {
        set: IndexMap::from([("cc".to_owned(), json!(cc))]),
        runs: goodput.iter().map(|g| [("goodput_bps".to_owned(), *g)].into()).collect(),
    }
}

#[test]
fn design_claim_is_decided_by_means() {
    let plan = Document::parse("fig9", EXAMPLE).unwrap().plan(&Overrides::default()).unwrap();
    let decide = |lia: &[f64], vmcc: &[f64]| {
        plan.claims[0].evaluate(&[figures("lia", lia), figures("vmcc", vmcc)]).unwrap()
    };
    let better = decide(&[100.0, 102.0], &[104.0, 106.0]);
    assert!(better.pass);
    assert_eq!(better.value, Some(105.0));
    assert!(!decide(&[100.0, 102.0], &[104.0, 104.0]).pass);
}

#[test]
fn every_built_in_scenario_is_valid_at_both_scales() {
    let names: Vec<&str> = vmcc_scenario::builtin::all().iter().map(|b| b.name).collect();
    assert!(names.contains(&"demo"));
    let mut kinds = std::collections::BTreeSet::new();
    for name in names {
        let document = Document::open(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        let plan = document.plan(&Overrides::default()).unwrap();
        for case in &plan.cases {
            kinds.insert(case.scenario.topology.kind());
            kinds.extend(case.scenario.traffic.iter().map(|t| t.kind.name()));
            let json = serde_json::to_string(case).unwrap();
            let back: ResolvedCase = serde_json::from_str(&json).unwrap();
            assert_eq!(&back, case, "{name} does not survive JSON");
        }
    }
    // Of every kind that the language has.
    let schema = vmcc_scenario::schema();
    for section in ["Topology", "Traffic"] {
        let variants = schema["$defs"][section]["oneOf"].as_array().unwrap();
        let tags = variants.iter().map(|variant| variant["properties"]["kind"]["const"].as_str().unwrap());
        let shown: Vec<&str> = tags.filter(|tag| !kinds.contains(tag)).collect();
        assert!(shown.is_empty(), "no built-in scenario has {shown:?}");
    }
}

#[test]
fn every_paper_figure_has_a_quick_form_and_a_description() {
    let scenarios =
        vmcc_scenario::papers::ALL.iter().flat_map(|p| p.figures.iter().filter_map(|f| p.scenario(f)));
    for scenario in scenarios {
        let name = scenario.name;
        let document = Document::open(name).unwrap();
        let plan = |scale| document.plan(&Overrides { scale, ..Overrides::default() }).unwrap();
        let work = |plan: &vmcc_scenario::Plan| -> u64 {
            plan.cases.iter().map(|c| c.scenario.duration.get() * u64::from(c.scenario.runs)).sum()
        };
        let (full, quick) = (plan(Scale::Full), plan(Scale::Quick));
        assert!(work(&quick) < work(&full), "{name}: quick is not quick");
        assert!(quick.runs >= 2, "{name}: one seed has no confidence interval");
        assert!(full.runs >= 5, "{name}");
        assert_eq!(full.claims.len(), quick.claims.len(), "{name}");
        assert!(full.claims.iter().any(|claim| claim.spec.paper.is_some()), "{name}: no number of the paper");
        assert!(full.source.is_some() && full.cases[0].scenario.description.is_some(), "{name}");
    }
}
