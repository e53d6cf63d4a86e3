//! Storage of results.

use crate::environment;
use crate::executor::seed_of;
use serde_json::json;
use std::path::{Path, PathBuf};
use vmcc_cc::Algorithm;
use vmcc_results::folder::{self, Access, FolderError, PartialFolder};
use vmcc_scenario::Plan;

/// Folders without a name of the user's that may begin in the same second; more are a loop gone wild.
const MAX_PER_SECOND: u32 = 1000;

/// The folder `out` for the results of `plan` on the engine called `engine`.
///
/// # Errors
/// There is something at `out`, or nothing to resume, or the file system refuses.
pub fn open(out: &Path, plan: &Plan, engine: &str, access: Access) -> Result<PartialFolder, FolderError> {
    PartialFolder::open(out, folder_plan(plan, engine), access)
}

/// A new folder called `base`, or with a number behind it if another run of the same second has that name.
pub fn open_unnamed(base: &Path, plan: &Plan, engine: &str) -> (PathBuf, Result<PartialFolder, FolderError>) {
    numbered(base, &folder_plan(plan, engine))
}

/// Identity of a session: two with equal plans are the same.
fn folder_plan(plan: &Plan, engine: &str) -> folder::Plan {
    folder::Plan {
        vmcc: env!("CARGO_PKG_VERSION").to_owned(),
        scenario: plan.name.clone(),
        engine: engine.to_owned(),
        definition: json!(plan.cases.iter().map(|c| &c.scenario).collect::<Vec<_>>()),
        algorithms: Algorithm::external()
            .iter()
            .map(|own| (own.name().to_owned(), format!("{:016x}", own.build().unwrap_or_default())))
            .collect(),
        cases: plan.cases.iter().map(|c| c.set.clone()).collect(),
        seeds: (0..plan.runs).map(|run| seed_of(plan, run)).collect(),
    }
}

/// `vmcc-results/<name>-<time>`
pub fn default_folder(name: &str) -> PathBuf {
    let name: String = name.chars().map(|c| if c == '/' { '-' } else { c }).collect();
    Path::new("vmcc-results").join(format!("{name}-{}", environment::time_for_name()))
}

fn numbered(base: &Path, plan: &folder::Plan) -> (PathBuf, Result<PartialFolder, FolderError>) {
    let mut target = base.to_owned();
    let mut opened = PartialFolder::open(&target, plan.clone(), Access::New);
    for number in 2..=MAX_PER_SECOND {
        let Err(FolderError::Exists(_) | FolderError::Unfinished(_) | FolderError::InUse(_)) = opened else {
            break;
        };
        let mut name = base.as_os_str().to_owned();
        name.push(format!("-{number}"));
        target = PathBuf::from(name);
        opened = PartialFolder::open(&target, plan.clone(), Access::New);
    }
    (target, opened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn runs_in_one_second_get_distinct_folders() {
        let dir = tempfile::tempdir().unwrap();
        let plan = folder::Plan {
            vmcc: "x".into(),
            scenario: "x".into(),
            engine: "sim".into(),
            definition: json!([]),
            algorithms: Default::default(),
            cases: Vec::new(),
            seeds: Vec::new(),
        };
        let base = dir.path().join("x-20260101-000000");
        // A finished run, a run that goes on, and one that was killed.
        fs::create_dir(&base).unwrap();
        fs::write(base.join("summary.json"), "{}").unwrap();
        let (second, live) = numbered(&base, &plan);
        assert!(second.ends_with("x-20260101-000000-2") && live.is_ok(), "{second:?}");
        fs::create_dir(dir.path().join("x-20260101-000000-3.partial")).unwrap();
        let (fourth, next) = numbered(&base, &plan);
        assert!(fourth.ends_with("x-20260101-000000-4") && next.is_ok(), "{fourth:?}");
    }
}
