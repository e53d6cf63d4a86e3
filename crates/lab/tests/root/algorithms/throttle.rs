//! A host whose programs have a quota of processor time: what it sends, and that its cgroup goes with the run.

use crate::common::{alone, cgroups_of, control, watched};
use std::path::PathBuf;
use vmcc_lab::LabSpec;
use vmcc_scenario::{Document, Overrides, ResolvedCase};

const TEXT: &str = "title='t'\nduration='3s'\nwarmup='1s'\n\
    [topology]\nkind='parallel-paths'\npaths=[{name='a'},{name='b'}]\nrate='200mbit'\ndelay='50us'\nbuffer='200kB'\n\
    [[traffic]]\nkind='bulk'\ncc='lia'\n";
const THROTTLE: &str = "[[event]]\nat='500ms'\nkind='throttle'\nhost='client'\nquota='1ms'\n";

fn case(events: &str) -> ResolvedCase {
    let plan = Document::parse("t", &format!("{TEXT}{events}")).and_then(|d| d.plan(&Overrides::default()));
    plan.unwrap_or_else(|e| panic!("{e}")).cases.remove(0)
}

#[test]
fn root_throttled_host_sends_less_and_leaves_no_cgroup() {
    let _alone = alone();
    let run_id = format!("thr-{}", std::process::id());
    let run = |events: &str, seen: &mut Vec<PathBuf>| {
        let spec = LabSpec { run_id: Some(run_id.clone()), ..LabSpec::try_from(&case(events)).unwrap() };
        let output = watched(&spec, &mut |_| seen.extend(cgroups_of(&run_id)));
        assert!(cgroups_of(&run_id).is_empty());
        output.metrics.get("goodput_bps").unwrap()
    };
    let both = || {
        let mut seen = Vec::new();
        let free = run("", &mut seen);
        assert!(seen.is_empty());
        (free, run(THROTTLE, &mut seen), seen)
    };
    let verdict = |(free, throttled, seen): &(f64, f64, Vec<PathBuf>)| {
        let own = format!("vmcc-{run_id}-client");
        assert!(!seen.is_empty() && seen.iter().all(|path| path.ends_with(&own)));
        // One per cent of a processor does not fill 400 Mbit/s.
        assert!(*throttled > 0.0 && *throttled < free * 0.8, "{throttled} after {free}");
    };
    vmcc_testkit::judge(both, verdict, |_| control());
}

#[test]
fn root_throttled_host_runs_on_the_kernel_engine() {
    let simulated = vmcc_sim::run_case(&case(THROTTLE), 1, &vmcc_sim::Options::default()).unwrap_err();
    assert!(simulated.to_string().contains("--engine kernel"), "{simulated}");
}
