//! Running a plan on the simulator through the trait, with no command line anywhere.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use vmcc_engine::{Engine, EngineError, ErrorKind, Execution, Session, Shard, Stopped, jobs, open};
use vmcc_results::folder::{Access, FLOWS_FILE, FolderError, SERIES_FILE, read_summary};
use vmcc_results::{ClaimResult, RunOutput, Summary};
use vmcc_scenario::{Document, Overrides, Plan, ResolvedCase};
use vmcc_sim::{SimError, Simulator};

const SIMULATOR: Simulator = Simulator::threaded(1);

const SCENARIO: &str = r#"
title = "Two algorithms on two paths"
duration = "600ms"
warmup = "200ms"
runs = 2
seed = 7
[topology]
kind = "parallel-paths"
paths = 2
rate = "20mbit"
delay = "1ms"
buffer = "100kB"
[[traffic]]
kind = "bulk"
[sweep]
cc = ["reno", "lia"]
[[claim]]
id = "moves-data"
check = "mean(goodput_bps, cc='lia') > 1000000"
"#;

fn inputs() -> Vec<(String, &'static [u8])> {
    vec![(vmcc_engine::SCENARIO_FILE.to_owned(), SCENARIO.as_bytes())]
}

fn plan() -> Plan {
    Document::parse("two", SCENARIO).unwrap().plan(&Overrides::default()).unwrap()
}

#[test]
fn energy_claims_without_readings_are_undecided() {
    let claims = "[[claim]]\nid = 'energy'\ncheck = \"mean(package_j_per_gb, cc='lia') > 1\"\nanalysis = 'x'\n\
                  [[claim]]\nid = 'more'\ncheck = \"mean(goodput_bps, cc='lia') > 1e12\"\nanalysis = 'the links'\n\
                  kernel_analysis = 'the processors'\n";
    let text = format!("{SCENARIO}{claims}");
    let plan = Document::parse("two", &text).unwrap().plan(&Overrides::default()).unwrap();
    let of = |engine: &dyn Engine| {
        let stop = AtomicBool::new(false);
        let mut session = Session::new(&plan, engine, None);
        session.execute(&Execution { jobs: 1, stop: &stop, progress: &|_, _| () }).unwrap();
        session.summary("a test".into()).claims
    };
    let sim = of(&SIMULATOR);
    assert_eq!(ClaimResult::tally(&sim), (1, 2));
    assert!(sim[1].unmeasured && !sim[1].fails() && sim[1].analysis.is_none(), "{:?}", sim[1]);
    assert!(sim[1].note.as_ref().unwrap().contains("did not measure `package_j_per_gb`"), "{:?}", sim[1]);
    assert!(sim[2].fails() && sim[2].analysis.as_deref() == Some("the links"), "{:?}", sim[2]);
    assert_eq!(of(&Disguised::new("kernel", None))[2].analysis.as_deref(), Some("the processors"));
}

/// The simulator as something else: under another name, or with a signal as one of its runs begins.
struct Disguised {
    name: &'static str,
    /// The run, counted from 0 in this process's life.
    signal_at: Option<usize>,
    begun: AtomicUsize,
}

impl Disguised {
    fn new(name: &'static str, signal_at: Option<usize>) -> Self {
        Self { name, signal_at, begun: AtomicUsize::new(0) }
    }
}

impl Engine for Disguised {
    fn name(&self) -> &'static str {
        self.name
    }

    fn most_jobs(&self) -> Option<usize> {
        Some(1)
    }

    fn run(
        &self,
        case: &ResolvedCase,
        seed: u64,
        stop: &AtomicBool,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<RunOutput, EngineError> {
        if self.signal_at == Some(self.begun.fetch_add(1, Ordering::SeqCst)) {
            stop.store(true, Ordering::SeqCst);
        }
        SIMULATOR.run(case, seed, stop, progress)
    }
}

fn execute(session: &mut Session<'_>, engine: &dyn Engine) -> Result<(), Stopped> {
    let stop = AtomicBool::new(false);
    session.execute(&Execution { jobs: jobs(engine, None, 1), stop: &stop, progress: &|_, _| {} })
}

/// The whole plan in one go, kept in `out`.
fn in_one_go(plan: &Plan, out: &Path) -> Summary {
    let folder = open(out, plan, SIMULATOR.name(), Access::New).unwrap();
    let mut session = Session::new(plan, &SIMULATOR, Some(folder));
    execute(&mut session, &SIMULATOR).unwrap();
    let summary = session.summary("a test".into());
    session.assemble(&summary, &inputs()).unwrap().unwrap().publish().unwrap();
    summary
}

#[test]
fn shards_that_share_a_folder_give_the_same_results() {
    let (dir, plan) = (tempfile::tempdir().unwrap(), plan());
    let whole = in_one_go(&plan, &dir.path().join("whole"));
    let out = dir.path().join("shared");
    let run_shard = |number| {
        let folder = open(&out, &plan, "sim", Access::Shared).unwrap();
        let mut session =
            Session::new(&plan, &SIMULATOR, Some(folder)).with_shard(Shard::new(number, 3).unwrap());
        execute(&mut session, &SIMULATOR).unwrap();
        assert_eq!(session.finished(), session.runs());
        session.abandon().unwrap().expect("others share it");
    };
    // At the same time, one of them twice; the third never runs.
    std::thread::scope(|scope| {
        for number in [1, 2, 2] {
            let run_shard = &run_shard;
            scope.spawn(move || run_shard(number));
        }
    });
    let shared = open(&out, &plan, "sim", Access::Shared).unwrap();
    assert!(
        matches!(open(&out, &plan, "sim", Access::Resumed), Err(FolderError::InUse(_))),
        "a shard may still run"
    );
    drop(shared);
    let folder = open(&out, &plan, "sim", Access::Resumed).unwrap();
    let mut session = Session::new(&plan, &SIMULATOR, Some(folder));
    assert_eq!((session.finished(), session.runs()), (3, 4), "two of the first, one of the second shard");
    execute(&mut session, &SIMULATOR).unwrap();
    let summary = session.summary("a test".into());
    session.assemble(&summary, &inputs()).unwrap().unwrap().publish().unwrap();
    assert_eq!(summary.cases, whole.cases);
    for file in [FLOWS_FILE, SERIES_FILE] {
        assert_eq!(
            fs::read(out.join(file)).unwrap(),
            fs::read(dir.path().join("whole").join(file)).unwrap(),
            "{file}"
        );
    }
    assert!(matches!(open(&out, &plan, "sim", Access::Shared), Err(FolderError::Exists(_))));
}

#[test]
fn interrupted_session_resumes_to_the_same_results() {
    let (dir, plan) = (tempfile::tempdir().unwrap(), plan());
    let whole = in_one_go(&plan, &dir.path().join("whole"));

    let out = dir.path().join("parts");
    let interrupted = Disguised::new(SIMULATOR.name(), Some(2));
    let folder = open(&out, &plan, interrupted.name(), Access::New).unwrap();
    let mut session = Session::new(&plan, &interrupted, Some(folder));
    let stopped = execute(&mut session, &interrupted).unwrap_err();
    assert!(matches!(stopped, Stopped::Interrupted), "{stopped}");
    assert_eq!((session.finished(), session.runs()), (2, 4));
    let kept = session.abandon().unwrap().expect("two finished runs");
    assert!(kept.exists() && !out.exists());

    assert!(
        matches!(open(&out, &plan, "sim", Access::New), Err(FolderError::Unfinished(_))),
        "not by accident"
    );
    let folder = open(&out, &plan, "sim", Access::Resumed).unwrap();
    let mut session = Session::new(&plan, &SIMULATOR, Some(folder));
    assert_eq!(session.finished(), 2);
    let begun = AtomicUsize::new(0);
    let counted = |_: usize, fraction: f64| {
        begun.fetch_add(usize::from(fraction >= 1.0), Ordering::SeqCst);
    };
    let stop = AtomicBool::new(false);
    session.execute(&Execution { jobs: 2, stop: &stop, progress: &counted }).unwrap();
    assert_eq!(begun.load(Ordering::SeqCst), 4, "cases finished before are reported at once");
    let summary = session.summary("a test".into());
    session.assemble(&summary, &inputs()).unwrap().unwrap().publish().unwrap();

    assert_eq!(summary.cases, whole.cases);
    assert_eq!(read_summary(&out).unwrap(), summary);
    assert!(summary.claims.len() == 1 && summary.claims[0].pass, "{:?}", summary.claims);
    for file in ["flows.parquet", "series.parquet", "scenario.toml"] {
        let read = |folder: &str| std::fs::read(dir.path().join(folder).join(file)).unwrap();
        assert!(read("whole") == read("parts"), "{file} differs");
    }
}

#[test]
fn session_without_a_folder_keeps_the_summary_only() {
    let plan = plan();
    let mut session = Session::new(&plan, &SIMULATOR, None);
    execute(&mut session, &SIMULATOR).unwrap();
    let summary = session.summary("a test".into());
    assert_eq!((summary.engine.as_str(), summary.cases.len()), ("sim", 2));
    assert!(summary.work.packet_hops > Some(100));
    assert!(session.partial_path().is_none() && session.assemble(&summary, &inputs()).unwrap().is_none());
}

/// An engine that is the simulator but for cases that it refuses.
struct Refuses;

impl Engine for Refuses {
    fn name(&self) -> &'static str {
        "refuses"
    }

    fn most_jobs(&self) -> Option<usize> {
        None
    }

    fn run(
        &self,
        _: &ResolvedCase,
        _: u64,
        _: &AtomicBool,
        _: &(dyn Fn(f64) + Sync),
    ) -> Result<RunOutput, EngineError> {
        Err(SimError::NoSubflow { at_s: 1.0 }.into())
    }
}

#[test]
fn engine_error_keeps_its_type() {
    let plan = plan();
    let stop = AtomicBool::new(false);
    let mut session = Session::new(&plan, &Refuses, None);
    let stopped = session.execute(&Execution { jobs: 2, stop: &stop, progress: &|_, _| {} }).unwrap_err();
    let Stopped::Failed(error) = stopped else { panic!("{stopped}") };
    assert_eq!(error.kind(), ErrorKind::BadInput);
    assert!(matches!(error.cause().downcast_ref(), Some(SimError::NoSubflow { .. })), "{error:?}");
    assert!(stop.load(Ordering::SeqCst), "the others stop because of it");
    assert_eq!(session.finished(), 0);
}
