//! `vmcc up`: algorithms as congestion controls of this host.

#[cfg(feature = "kernel")]
mod agent;
#[cfg(feature = "kernel")]
mod load;

#[cfg(not(feature = "kernel"))]
use super::absent::{agent, load};
use crate::args::UpOptions;
use crate::failure::{Exit, Failure};
use crate::own_algorithms;
use crate::ui::Ui;
#[cfg(feature = "kernel")]
use agent::agent;
#[cfg(feature = "kernel")]
pub(crate) use agent::say;
#[cfg(feature = "kernel")]
use load::load;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use vmcc_cc::{Algorithm, Params};

/// Parses everything before anything is loaded.
pub(crate) fn up(options: &UpOptions, ui: &Ui) -> Result<Exit, Failure> {
    match &options.config {
        Some(file) => agent(file, ui),
        None => {
            load_files(options, ui)?;
            load(&parameters(options)?, options, ui)
        }
    }
}

/// Compiles and registers the algorithms that are given as files.
fn load_files(options: &UpOptions, ui: &Ui) -> Result<(), Failure> {
    let files = options.algorithms.iter().filter(|name| vmcc_external::is_file(name));
    let files: Vec<PathBuf> = files.map(PathBuf::from).collect();
    let own = own_algorithms::load(&files, ui)?;
    if own.is_empty() { Ok(()) } else { own_algorithms::compile(&own) }
}

/// Expected syntax of a parameter, for messages.
const EXPECTED: &str = "expected ALGORITHM.PARAMETER=VALUE, such as vmcc.theta=5";

/// The algorithms asked for with their parameters.
fn parameters(options: &UpOptions) -> Result<Vec<Params>, Failure> {
    let by_name = |name: &String| {
        let name = if vmcc_external::is_file(name) { own_name(name) } else { name.as_str() };
        Algorithm::by_name(name).map_err(Failure::usage)
    };
    let named: Vec<Algorithm> = options.algorithms.iter().map(by_name).collect::<Result<_, _>>()?;
    let algorithms = if named.is_empty() { Algorithm::all().collect() } else { named };
    let mut wanted: Vec<Params> = algorithms.into_iter().map(Params::defaults).collect();
    for setting in &options.set {
        apply(setting, &mut wanted)?;
    }
    Ok(wanted)
}

/// Name of the algorithm in a file that was loaded.
fn own_name(file: &str) -> &str {
    Path::new(file).file_stem().and_then(OsStr::to_str).unwrap_or(file)
}

/// `vmcc.theta=5`
fn apply(setting: &str, wanted: &mut [Params]) -> Result<(), Failure> {
    let wrong = |problem: String| Failure::usage(format!("--set {setting}: {problem}"));
    let (key, value) =
        setting.split_once('=').ok_or_else(|| wrong(format!("there is no `=` with a value; {EXPECTED}")))?;
    let (algorithm, name) = key
        .split_once('.')
        .ok_or_else(|| wrong(format!("it does not say the parameter of which algorithm; {EXPECTED}")))?;
    let algorithm = Algorithm::by_name(algorithm.trim()).map_err(|e| wrong(e.to_string()))?;
    let params = wanted
        .iter_mut()
        .find(|params| params.algorithm() == algorithm)
        .ok_or_else(|| wrong(format!("{algorithm} is not among the algorithms to load")))?;
    params.set(name.trim(), value.trim()).map_err(|e| wrong(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::PolicyOptions;

    fn refused(algorithms: &[&str], set: &str) -> String {
        let options = UpOptions {
            algorithms: algorithms.iter().map(|&a| a.to_owned()).collect(),
            set: vec![set.to_owned()],
            restricted: false,
            guard: false,
            config: None,
            policy: PolicyOptions::default(),
        };
        parameters(&options).expect_err("refused").message
    }

    #[test]
    fn settings_are_checked_before_anything_is_loaded() {
        assert!(refused(&[], "theta=5").contains("of which algorithm"));
        assert!(
            refused(&[], "g=0.1").contains("of which algorithm"),
            "the point of the value is none of the key"
        );
        assert!(refused(&[], "vmcc.theta").contains('='));
        assert!(refused(&[], "vmcc.thet=5").contains("theta"), "the nearest name is given");
        assert!(refused(&[], "vmcc.theta=5000").contains("1000"), "the range is given");
        assert!(refused(&["lia"], "vmcc.theta=5").contains("not among"));
        assert!(refused(&["vmc"], "vmcc.theta=5").contains("vmcc"));
    }
}
