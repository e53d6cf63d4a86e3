//! `vmcc run` on the simulator, and the folder it leaves.

use crate::common::{folder, json, names, output, refused};
use serde_json::Value;
use std::fs;
use std::path::Path;
use vmcc_results::Summary;

fn run_into(dir: &Path, out: &str, extra: &[&str]) -> (i32, Value) {
    let arguments = ["run", "two.toml", "--engine", "sim", "--out", out];
    json(dir, &[&arguments[..], extra].concat())
}

#[test]
fn json_output_equals_the_summary_file_and_fits_the_schema() {
    let dir = folder();
    let (code, document) = run_into(dir.path(), "out", &[]);
    assert_eq!(code, 0);
    let file: Value =
        serde_json::from_slice(&fs::read(dir.path().join("out/summary.json")).unwrap()).unwrap();
    assert_eq!(document, file);
    assert_eq!(
        (&document["schema"], &document["scenario"], &document["engine"]),
        (&1.into(), &"two".into(), &"sim".into())
    );
    assert_eq!(document["claims"][0]["pass"], true);
    assert!(document["work"]["packet_hops"].as_u64().unwrap() > 100);
    assert!(document["work"]["cpu_s"].as_f64().unwrap() > 0.0 && document["work"]["peak_rss_bytes"].is_u64());
    let summary: Summary = serde_json::from_value(document).unwrap();
    assert_eq!(summary.cases.len(), 2);
    for case in &summary.cases {
        assert_eq!(case.runs.iter().map(|r| r.seed).collect::<Vec<_>>(), [7, 8]);
        for run in &case.runs {
            let goodput = run.metrics.goodput_bps.unwrap();
            // What both links carry in 200 ms, and what waited out of order when they began: two buffers at most.
            assert!((1e6..40e6 + 60e3 * 8.0 / 0.2).contains(&goodput), "{goodput}");
            assert_eq!(run.metrics.paths.len(), 2);
            assert!(run.metrics.fct_us.is_none(), "bulk flows have no completion time, so it is absent");
        }
    }
    let left = names(&dir.path().join("out"));
    assert_eq!(left, ["flows.parquet", "report.html", "scenario.toml", "series.parquet", "summary.json"]);
    assert_eq!(names(dir.path()), ["out", "two.toml"]);
}

#[test]
fn scale_that_the_scenario_lacks_is_a_warning() {
    let dir = folder();
    for (scale, warned) in [("full", false), ("quick", true)] {
        let run = output(dir.path(), &["run", "two.toml", "--engine", "sim", "--scale", scale]);
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(said.contains("two has no [scale.quick]: it runs as written"), warned, "{said}");
    }
}

#[test]
fn cases_do_not_depend_on_the_number_of_jobs() {
    let dir = folder();
    let (_, one) = run_into(dir.path(), "one", &["--jobs", "1"]);
    let (_, four) = run_into(dir.path(), "four", &["--jobs", "4"]);
    assert_eq!(serde_json::to_string(&one["cases"]).unwrap(), serde_json::to_string(&four["cases"]).unwrap());
    for file in ["flows.parquet", "series.parquet"] {
        let read = |out: &str| fs::read(dir.path().join(out).join(file)).unwrap();
        assert!(read("one") == read("four"), "{file} differs");
    }
}

#[test]
fn cases_do_not_depend_on_the_number_of_threads() {
    let dir = folder();
    // By less the two hosts would not work ahead of each other.
    let far = ["--set", "topology.delay=50ms"];
    let (_, one) = run_into(dir.path(), "one", &far);
    let (_, two) = run_into(dir.path(), "two", &[&far[..], &["--threads", "2"]].concat());
    assert_eq!(serde_json::to_string(&one["cases"]).unwrap(), serde_json::to_string(&two["cases"]).unwrap());
    let run = ["run", "two.toml", "--engine", "sim", "--threads", "3", "--out"];
    let said = |set: &[&str], out| {
        let options = [&run[..], &[out], set].concat();
        String::from_utf8(output(dir.path(), &options).stderr).unwrap()
    };
    let cut = said(&far, "three");
    assert!(cut.contains("gives work to 2; using 2"), "{cut}");
    for near in ["topology.delay=0s", "topology.delay=1us"] {
        let uncut = said(&["--set", near], near);
        assert!(uncut.contains("gives work to 1; using 1"), "{uncut}");
    }
}

#[test]
fn options_override_sweeps_and_seeds() {
    let dir = folder();
    let (code, document) = run_into(
        dir.path(),
        "out",
        &["--set", "topology.rate=10mbit,30mbit", "--set", "cc=lia", "--seed", "3", "--runs", "1"],
    );
    assert_eq!(code, 0, "{document}");
    let cases = document["cases"].as_array().unwrap();
    let goodput = |i: usize| cases[i]["runs"][0]["metrics"]["goodput_bps"].as_f64().unwrap();
    assert_eq!(cases.len(), 2);
    assert_eq!(cases[0]["runs"][0]["seed"], 3);
    assert!(goodput(0) < goodput(1));
    let command = document["environment"]["command"].as_str().unwrap();
    assert!(command.contains("--seed 3") && command.contains("topology.rate=10mbit,30mbit"), "{command}");
}

#[test]
fn failed_claim_exits_1_and_keeps_the_results() {
    let dir = folder();
    let text = fs::read_to_string(dir.path().join("two.toml")).unwrap().replace("> 1000000", "> 1e15");
    fs::write(dir.path().join("two.toml"), text).unwrap();
    let (code, document) = run_into(dir.path(), "out", &[]);
    assert_eq!((code, &document["claims"][0]["pass"]), (1, &false.into()));
    assert!(dir.path().join("out/report.html").exists());
}

#[test]
fn claims_about_removed_cases_are_not_applicable() {
    let dir = folder();
    let out = |cc: &str| format!("out-{cc}");
    let (code, document) = run_into(dir.path(), &out("reno"), &["--set", "cc=reno"]);
    assert_eq!((code, &document["claims"]), (0, &serde_json::json!([])), "{document}");
    assert!(document["warnings"][0].as_str().unwrap().contains("moves-data is not checked"), "{document}");
    let report = fs::read_to_string(dir.path().join("out-reno/report.html")).unwrap();
    assert!(report.contains("moves-data is not checked") && !report.contains("id=\"claims\""));
    let text = output(
        dir.path(),
        &["run", "two.toml", "--engine", "sim", "--set", "cc=reno", "--out", &out("text")],
    );
    let text = String::from_utf8(text.stdout).unwrap();
    let line = text.lines().find(|l| l.trim_start().starts_with("moves-data")).unwrap();
    assert!(line.split_whitespace().nth(1) == Some("-") && !text.contains("FAIL"), "{text}");
    // Still there, hence still checked.
    let (_, document) = run_into(dir.path(), &out("lia"), &["--set", "cc=lia"]);
    assert_eq!(document["claims"][0]["pass"], true);
}

#[test]
fn claim_that_no_case_can_decide_fails() {
    let dir = folder();
    let text = fs::read_to_string(dir.path().join("two.toml")).unwrap();
    fs::write(dir.path().join("two.toml"), text.replace("cc='lia')", "cc='lia', cc='reno')")).unwrap();
    for (out, extra) in [("a", &[][..]), ("b", &["--set", "cc=reno"])] {
        let (code, document) = run_into(dir.path(), out, extra);
        assert_eq!((code, &document["claims"][0]["pass"]), (1, &false.into()), "{document}");
    }
}

#[test]
fn text_output_has_table_claims_and_report() {
    let dir = folder();
    let output = output(dir.path(), &["run", "two.toml", "--engine", "sim", "--out", "out"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for wanted in
        ["goodput", "Mbit/s", "±", "lia", "moves-data", "pass", "> 1.00 Mbit/s", "Report: out/report.html"]
    {
        assert!(text.contains(wanted), "{wanted} is missing in\n{text}");
    }
    assert!(String::from_utf8(output.stderr).unwrap().contains("2 cases, 4 runs"));
}

#[test]
fn quiet_keeps_stderr_empty_and_auto_explains_its_engine() {
    let dir = folder();
    let quiet = output(dir.path(), &["run", "two.toml", "--engine", "sim", "--out", "a", "--quiet"]);
    assert!(quiet.status.success() && quiet.stderr.is_empty());
    // A jittery path is something only the simulator has.
    let auto = output(dir.path(), &["run", "two.toml", "--set", "topology.jitter=1ms", "--out", "b"]);
    let notes = String::from_utf8(auto.stderr).unwrap();
    assert!(notes.contains("engine: sim (not kernel: "), "{notes}");
}

#[test]
fn existing_result_folder_is_refused() {
    let dir = folder();
    fs::create_dir(dir.path().join("out")).unwrap();
    fs::write(dir.path().join("out/thesis.txt"), "mine").unwrap();
    let message = refused(dir.path(), &["run", "two.toml", "--engine", "sim", "--out", "out"], 2);
    assert!(message.contains("out: the result folder exists") && message.contains("--out"), "{message}");
    assert_eq!(names(&dir.path().join("out")), ["thesis.txt"]);
    assert_eq!(names(dir.path()), ["out", "two.toml"]);
}

#[test]
fn impossible_scenarios_are_refused_without_output() {
    let dir = folder();
    for set in [
        "topology.rate=0bit",
        "topology.paths=0",
        "duration=99999999999999999999s",
        "warmup=1h",
        "no.such.key=1",
        "cc=",
        "nonsense",
    ] {
        let message =
            refused(dir.path(), &["run", "two.toml", "--engine", "sim", "--set", set, "--out", "out"], 2);
        assert!(message.len() < 2000, "{set}: {message}");
        assert_eq!(names(dir.path()), ["two.toml"], "{set}");
    }
}

#[test]
fn results_default_to_the_vmcc_results_folder() {
    let dir = folder();
    let output = output(dir.path(), &["run", "two.toml", "--engine", "sim"]);
    assert!(output.status.success());
    let made = names(&dir.path().join("vmcc-results"));
    assert!(matches!(made.as_slice(), [one] if one.starts_with("two-2")), "{made:?}");
}

#[test]
fn runs_started_in_the_same_second_do_not_collide() {
    let dir = folder();
    let program = assert_cmd::cargo::cargo_bin("vmcc");
    let start = || {
        let arguments = ["run", "two.toml", "--engine", "sim", "--quiet"];
        std::process::Command::new(&program).args(arguments).current_dir(dir.path()).output().unwrap()
    };
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        for run in runs {
            let output = run.join().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    });
    assert_eq!(names(&dir.path().join("vmcc-results")).len(), 4);
}

#[test]
fn foreign_folder_is_never_recommended_for_removal() {
    let dir = folder();
    fs::create_dir(dir.path().join("thesis")).unwrap();
    fs::write(dir.path().join("thesis/text"), "mine").unwrap();
    let message = refused(dir.path(), &["demo", "--engine", "sim", "--out", "thesis"], 2);
    assert!(message.contains("--out") && !message.contains("remove"), "{message}");
    let message = refused(dir.path(), &["demo", "--engine", "sim", "--out", "thesis/text"], 2);
    assert!(message.contains("thesis/text: not a folder"), "{message}");
    run_into(dir.path(), "out", &[]);
    let message = refused(dir.path(), &["run", "two.toml", "--engine", "sim", "--out", "out"], 2);
    assert!(message.contains("remove this one"), "{message}");
}

#[test]
fn report_is_rebuilt_and_bad_folders_are_refused() {
    let dir = folder();
    run_into(dir.path(), "out", &[]);
    let report = dir.path().join("out/report.html");
    let before = fs::read(&report).unwrap();
    fs::remove_file(&report).unwrap();
    let (code, document) = json(dir.path(), &["report", "out"]);
    assert_eq!((code, &document["report"]), (0, &"out/report.html".into()));
    assert!(fs::read(&report).unwrap() == before);
    let message = refused(dir.path(), &["report", "nowhere"], 2);
    assert!(message.contains("nowhere: not a result folder"), "{message}");
    fs::write(dir.path().join("out/summary.json"), "{}").unwrap();
    let message = refused(dir.path(), &["report", "out"], 2);
    assert!(message.contains("summary.json"), "{message}");
}

#[test]
#[cfg(not(feature = "kernel"))]
fn builds_without_the_kernel_engine_explain_how_to_get_it() {
    let dir = folder();
    for arguments in [
        &["run", "two.toml", "--engine", "kernel"][..],
        &["run", "two.toml", "--engine", "guest"],
        &["bench", "kernel"],
        &["mark", "eth0", "--threshold", "30kB"],
        &["unmark", "eth0"],
        &["clean"],
    ] {
        let message = refused(dir.path(), arguments, 3);
        assert!(message.contains("--features kernel"), "{arguments:?}: {message}");
    }
    assert_eq!(names(dir.path()), ["two.toml"]);
}

#[test]
fn simulator_bench_prints_its_work() {
    let dir = folder();
    let (code, document) = json(dir.path(), &["bench", "sim", "--case", "engine-k8"]);
    assert_eq!(code, 0);
    let case = &document["cases"][0];
    assert!(case["packet_hops"].as_u64().unwrap() > 1_000_000, "{case}");
    assert!(case["cpu_s"].as_f64().unwrap() > 0.0 && case["peak_rss_bytes"].as_u64().unwrap() > 1 << 20);
    assert!(refused(dir.path(), &["bench", "sim", "--case", "nothing"], 2).contains("dctcp-k8"));
    #[cfg(feature = "kernel")]
    assert!(refused(dir.path(), &["bench", "port", "--case", "nothing"], 2).contains("uncapped"));
}
