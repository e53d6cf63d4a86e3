//! Runs every file of `algorithms/vectors` and demands that each algorithm of the registry has one.

use vmcc_cc::{Algorithm, vectors};

fn directory() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../algorithms/vectors")
}

fn run_file(algorithm: Algorithm) -> Result<usize, String> {
    let path = directory().join(format!("{}.csv", algorithm.name()));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    vectors::run(algorithm, &text).map_err(|e| format!("{}: {e}", path.display()))
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
fn runner_detects_wrong_vectors() {
    let reno = Algorithm::by_name("reno").expect("in the registry");
    let run = |text: &str| vectors::run(reno, &format!("case,do,with,expect,within\n{text}"));
    assert_eq!(run("a,paths,w=10 srtt=100,,\na,increase,,0.1,1e-9\n"), Ok(1));
    assert!(run("a,paths,w=10 srtt=100,,\na,increase,,0.11,1e-9\n").is_err());
    assert!(run("a,paths,w=10 srtt=100,,\na,cut,cause=ece,6,\n").is_err());
    assert!(run("a,paths,w=10 srtt=100,,\na,juggle,,1,\n").is_err());
    assert!(run("a,paths,w=10 srtt=100 speed=3,,\n").is_err());
    assert!(run("a,paths,w=10 srtt=100,,\n").is_err());
    let many = vec!["10"; vmcc_cc::MAX_PATHS + 1].join(";");
    assert!(run(&format!("a,paths,w={many} srtt={many},,\n")).expect_err("too many").contains("at most 32"));
    assert!(run(&"a,paths,w=10 srtt=100,,\n".repeat(2)).expect_err("twice").contains("once"));
    assert!(run("a,paths,w=10 srtt=100,,\na,public,bits=65,0,\n").is_err());
    assert!(run("a,paths,w=10 srtt=100,,\na,ack,n=1e18,1,\n").expect_err("for ever").contains("at most"));
    assert!(vectors::run(reno, "case,do,with,expect\n").is_err());
}
