//! Runs every file of `algorithms/vectors` and demands that each algorithm of the registry has one.
//!
//! A file is CSV with the columns `case,do,with,expect,within`. Rows of the same case run one after the
//! other on one connection; `algorithms/vectors/README.md` says what each `do` means.

mod connection;
mod file;

use connection::Connection;
use file::Row;
use vmcc_cc::Algorithm;

fn directory() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../algorithms/vectors")
}

/// Runs the rows of one case; the error names the row.
fn run_case(algorithm: Algorithm, rows: &[Row]) -> Result<usize, String> {
    let mut connection = Connection::new(algorithm);
    let mut checks = 0;
    for row in rows {
        let at = |e: String| format!("{}.csv:{}: {}: {e}", algorithm.name(), row.line, row.case);
        checks += connection.run(row).map_err(at)?;
    }
    Ok(checks)
}

fn run_file(algorithm: Algorithm) -> Result<usize, String> {
    let path = directory().join(format!("{}.csv", algorithm.name()));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let rows = file::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut checks = 0;
    for case in rows.chunk_by(|a, b| a.case == b.case) {
        let found = run_case(algorithm, case)?;
        if found == 0 {
            return Err(format!("{}.csv: {}: checks nothing", algorithm.name(), case[0].case));
        }
        checks += found;
    }
    if checks == 0 { Err(format!("{}: no rows", path.display())) } else { Ok(checks) }
}

#[test]
fn every_algorithm_passes_its_vectors() {
    let mut failures = Vec::new();
    for algorithm in Algorithm::all() {
        match run_file(algorithm) {
            Ok(checks) => println!("{:8} {checks} checks", algorithm.name()),
            Err(e) => failures.push(e),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_vector_file_belongs_to_an_algorithm() {
    for entry in std::fs::read_dir(directory()).expect("algorithms/vectors exists") {
        let name = entry.expect("readable").file_name().into_string().expect("UTF-8");
        if let Some(stem) = name.strip_suffix(".csv") {
            assert!(Algorithm::by_name(stem).is_ok(), "{name} belongs to no algorithm of the registry");
        }
    }
}

/// The runner itself can fail: a wrong expectation, an unknown word, a case without a check.
#[test]
fn the_runner_notices() {
    let reno = Algorithm::by_name("reno").expect("in the registry");
    let run = |text: &str| {
        let rows = file::parse(&format!("case,do,with,expect,within\n{text}")).expect("well-formed");
        run_case(reno, &rows)
    };
    assert_eq!(run("a,paths,w=10 srtt=100,,\na,increase,,0.1,1e-9\n"), Ok(1));
    assert!(run("a,paths,w=10 srtt=100,,\na,increase,,0.11,1e-9\n").is_err());
    assert!(run("a,paths,w=10 srtt=100,,\na,cut,cause=ece,6,\n").is_err());
    assert!(run("a,paths,w=10 srtt=100,,\na,juggle,,1,\n").is_err());
    assert!(run("a,paths,w=10 srtt=100 speed=3,,\n").is_err());
    assert!(file::parse("case,do,with,expect\n").is_err());
}
