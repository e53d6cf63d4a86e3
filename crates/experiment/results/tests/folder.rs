//! A result folder is complete or not there, and an interrupted run can be resumed.

use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use vmcc_results::folder::{Access, FolderError, PartialFolder, Plan, StoredRun, read_summary};
use vmcc_results::parquet_files::read_columns;
use vmcc_results::{
    Case, Environment, FlowRecord, Metrics, Run, RunOutput, SCHEMA_VERSION, Settings, Summary, Work,
};

fn plan() -> Plan {
    let case =
        |cc: &str, n: u32| Settings::from_iter([("cc".into(), json!(cc)), ("connections".into(), json!(n))]);
    Plan {
        vmcc: "0.1.0".into(),
        scenario: "test".into(),
        engine: "sim".into(),
        definition: json!({"duration": "1s"}),
        algorithms: BTreeMap::new(),
        cases: vec![case("lia", 1), case("vmcc", 100)],
        seeds: vec![7],
    }
}

fn output(goodput_bps: f64) -> RunOutput {
    let mut output = RunOutput {
        metrics: Metrics { goodput_bps: Some(goodput_bps), ..Metrics::default() },
        flows: vec![FlowRecord { cc: "lia".into(), fct_us: Some(0.1 + 0.2), ..FlowRecord::default() }],
        work: Work { events: Some(10), ..Work::default() },
        ..RunOutput::default()
    };
    let (entity, metric) = (output.series.name("path a"), output.series.name("cwnd_pkt"));
    for t_us in 0..3 {
        output.series.push(t_us, entity, metric, 10.0);
    }
    output
}

fn summary(runs: Vec<StoredRun>) -> Summary {
    let cases = plan().cases.into_iter().zip(runs);
    Summary {
        schema: SCHEMA_VERSION,
        scenario: "test".into(),
        title: None,
        source: None,
        engine: "sim".into(),
        environment: Environment {
            vmcc: "0.1.0".into(),
            os: "linux".into(),
            cpus: 1,
            ..Environment::default()
        },
        cases: cases
            .map(|(set, run)| Case {
                set,
                warmup_us: 0,
                runs: vec![Run { seed: run.seed, metrics: run.metrics }],
            })
            .collect(),
        claims: Vec::new(),
        work: Work::default(),
        warnings: Vec::new(),
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn complete_run_leaves_its_folder_only() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    let folder = PartialFolder::open(&target, plan(), Access::New).unwrap();
    let runs =
        (0..2).map(|case| folder.store((case, 0), 7, &output(f64::from(case) + 0.1)).unwrap()).collect();
    let expected = summary(runs);
    let assembled = folder.assemble(&expected, &[("scenario.toml", b"x")]).unwrap();
    assert!(!target.exists(), "nothing has the final name before publishing");
    assert_eq!(assembled.publish().unwrap(), target);
    assert_eq!(names(dir.path()), ["out"]);
    assert_eq!(names(&target), ["flows.parquet", "scenario.toml", "series.parquet", "summary.json"]);
    assert_eq!(read_summary(&target).unwrap(), expected);
    let rows: usize =
        read_columns(&target.join("series.parquet"), &[]).unwrap().map(|b| b.unwrap().num_rows()).sum();
    assert_eq!(rows, 6);
}

#[test]
fn existing_folder_is_refused_unless_empty() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    fs::create_dir(&target).unwrap();
    PartialFolder::open(&target, plan(), Access::New).unwrap().abandon().unwrap();
    fs::write(target.join("thesis.txt"), "mine").unwrap();
    let refused = PartialFolder::open(&target, plan(), Access::New);
    assert!(matches!(refused, Err(FolderError::Exists(_))), "{refused:?}");
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn interrupted_run_keeps_finished_cases_and_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    let folder = PartialFolder::open(&target, plan(), Access::New).unwrap();
    let first = folder.store((0, 0), 7, &output(1.0 / 3.0)).unwrap();
    let kept = folder.abandon().unwrap().expect("a finished run is kept");

    let again = PartialFolder::open(&target, plan(), Access::New);
    assert!(matches!(again, Err(FolderError::Unfinished(ref p)) if *p == kept), "{again:?}");
    let mut other = plan();
    other.seeds = vec![8];
    let other = PartialFolder::open(&target, other, Access::Resumed);
    assert!(
        matches!(other, Err(FolderError::OtherPlan { ref differs, .. }) if differs.contains("seed")),
        "{other:?}"
    );

    let resumed = PartialFolder::open(&target, plan(), Access::Resumed).unwrap();
    assert_eq!(resumed.finished().get(&(0, 0)), Some(&first), "figures survive bit for bit");
    let second = resumed.store((1, 0), 7, &output(2.0)).unwrap();
    resumed.assemble(&summary(vec![first, second]), &[]).unwrap().publish().unwrap();
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn interrupted_run_without_results_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let folder = PartialFolder::open(&dir.path().join("out"), plan(), Access::New).unwrap();
    assert_eq!(folder.abandon().unwrap(), None);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn shared_folder_and_resume_without_results_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    let nothing = PartialFolder::open(&target, plan(), Access::Resumed);
    assert!(matches!(nothing, Err(FolderError::NothingToResume(_))), "{nothing:?}");
    let _first = PartialFolder::open(&target, plan(), Access::New).unwrap();
    let second = PartialFolder::open(&target, plan(), Access::Resumed);
    assert!(matches!(second, Err(FolderError::InUse(_))), "{second:?}");
    // Nobody was interrupted: advice to remove it would destroy what the first one is doing.
    let third = PartialFolder::open(&target, plan(), Access::New);
    assert!(matches!(third, Err(FolderError::InUse(_))), "{third:?}");
}

#[test]
fn concurrent_starts_create_one_folder() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("out");
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| PartialFolder::open(&target, plan(), Access::New))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let in_use = opened.iter().filter(|o| matches!(o, Err(FolderError::InUse(_)))).count();
        assert_eq!((opened.iter().filter(|o| o.is_ok()).count(), in_use), (1, 7), "{opened:?}");
        assert_eq!(names(dir.path()), ["out.partial"]);
    }
}

#[test]
fn other_folders_are_refused_as_results() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "mine").unwrap();
    let out = PartialFolder::open(&file, plan(), Access::New);
    assert!(matches!(out, Err(FolderError::NotAFolder(_))), "{out:?}");
    for path in [file, dir.path().join("nothing"), dir.path().to_owned()] {
        let read = read_summary(&path);
        assert!(matches!(read, Err(FolderError::NotAResult(ref p)) if *p == path), "{read:?}");
    }
}

#[test]
fn summary_of_another_schema_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut other = summary(Vec::new());
    other.schema = 99;
    fs::write(dir.path().join("summary.json"), serde_json::to_vec(&other).unwrap()).unwrap();
    let read = read_summary(dir.path());
    assert!(matches!(read, Err(FolderError::Format { ref reason, .. }) if reason.contains("99")), "{read:?}");
}
