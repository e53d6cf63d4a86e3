//! Where the results go.

use crate::args::RunOptions;
use crate::failure::{Failure, folder_failure};
use crate::run::environment;
use crate::run::execute::seed_of;
use crate::ui::Ui;
use serde_json::json;
use std::path::{Path, PathBuf};
use vmcc_results::folder::{self, FolderError, PartialFolder};
use vmcc_scenario::Plan;

/// Folders without a name of the user's that may begin in the same second; more are a loop gone wild.
const MOST_PER_SECOND: u32 = 1000;

/// The folder for the results and its name. A folder that was asked for must be usable; without one in a place
/// where nothing can be written, the results are only printed.
pub(crate) fn open(
    options: &RunOptions,
    plan: &Plan,
    engine: &str,
    ui: &Ui,
) -> Result<(PathBuf, Option<PartialFolder>), Failure> {
    let folder_plan = folder::Plan {
        vmcc: env!("CARGO_PKG_VERSION").to_owned(),
        scenario: plan.name.clone(),
        engine: engine.to_owned(),
        definition: json!(plan.cases.iter().map(|c| &c.scenario).collect::<Vec<_>>()),
        cases: plan.cases.iter().map(|c| c.set.clone()).collect(),
        seeds: (0..plan.runs).map(|run| seed_of(plan, run)).collect(),
    };
    if let Some(out) = &options.common.out {
        let folder = PartialFolder::open(out, folder_plan, options.common.resume);
        return folder.map(|f| (out.clone(), Some(f))).map_err(|e| folder_failure(&e, out));
    }
    let (target, folder) = open_unnamed(&default_folder(plan), &folder_plan);
    match folder {
        Ok(folder) => Ok((target, Some(folder))),
        Err(FolderError::Io { path, source }) => {
            ui.warn(&format!("{}: {source}; the results are printed and not kept", path.display()));
            Ok((target, None))
        }
        Err(error) => Err(folder_failure(&error, &target)),
    }
}

fn default_folder(plan: &Plan) -> PathBuf {
    let name: String = plan.name.chars().map(|c| if c == '/' { '-' } else { c }).collect();
    Path::new("vmcc-results").join(format!("{name}-{}", environment::time_for_name()))
}

/// Opens `base`, or with a number behind it if another run of the same second has that name.
fn open_unnamed(base: &Path, plan: &folder::Plan) -> (PathBuf, Result<PartialFolder, FolderError>) {
    let mut target = base.to_owned();
    let mut opened = PartialFolder::open(&target, plan.clone(), false);
    for number in 2..=MOST_PER_SECOND {
        let Err(FolderError::Exists(_) | FolderError::Unfinished(_) | FolderError::InUse(_)) = opened else {
            break;
        };
        let mut name = base.as_os_str().to_owned();
        name.push(format!("-{number}"));
        target = PathBuf::from(name);
        opened = PartialFolder::open(&target, plan.clone(), false);
    }
    (target, opened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn runs_of_one_second_get_folders_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let plan = folder::Plan {
            vmcc: "x".into(),
            scenario: "x".into(),
            engine: "sim".into(),
            definition: json!([]),
            cases: Vec::new(),
            seeds: Vec::new(),
        };
        let base = dir.path().join("x-20260101-000000");
        // A finished run, a run that goes on, and one that was killed.
        fs::create_dir(&base).unwrap();
        fs::write(base.join("summary.json"), "{}").unwrap();
        let (second, live) = open_unnamed(&base, &plan);
        assert!(second.ends_with("x-20260101-000000-2") && live.is_ok(), "{second:?}");
        fs::create_dir(dir.path().join("x-20260101-000000-3.partial")).unwrap();
        let (fourth, next) = open_unnamed(&base, &plan);
        assert!(fourth.ends_with("x-20260101-000000-4") && next.is_ok(), "{fourth:?}");
    }
}
