//! Distributions of sizes from a file beside the scenario.

use std::fs;
use std::path::{Path, PathBuf};
use vmcc_scenario::model::{SizeDist, TrafficKind};
use vmcc_scenario::{Document, Overrides};

const SCENARIO: &str = "title = 't'\nduration = '1s'\n[host]\ncc = 'lia'\n[topology]\nkind = 'parallel-paths'\npaths = 2\n\
                        rate = '20mbit'\ndelay = '5ms'\n[[traffic]]\nkind = 'poisson'\nload = 0.5\nsizes = 'web-search'\n\
                        [sweep]\nsizes = ['web-search', 'mine.csv']\n";

fn folder(test: &str, file: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("size-files-{test}"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("mine.csv"), file).unwrap();
    fs::write(folder.join("s.toml"), SCENARIO).unwrap();
    folder
}

/// The points of the second case.
fn points(file: &str, test: &str) -> Vec<(u64, f64)> {
    let document = Document::load(&folder(test, file).join("s.toml")).unwrap_or_else(|e| panic!("{e}"));
    let plan = document.plan(&Overrides::default()).unwrap();
    assert_eq!(plan.cases[1].set["sizes"], "mine.csv");
    let TrafficKind::Poisson(poisson) = &plan.cases[1].scenario.traffic[0].kind else { panic!() };
    let SizeDist::Points(points) = &poisson.sizes else { panic!("{:?}", poisson.sizes) };
    points.iter().map(|point| (point.size.get(), point.cdf)).collect()
}

#[test]
fn shares_and_percentages_are_the_same_distribution() {
    let expected = [(1, 0.0), (1_000, 0.25), (50_000, 1.0)];
    assert_eq!(points("bytes,cdf\n# of a cluster\n0,0\n1000,0.25\n\n50000, 1\n", "shares"), expected);
    assert_eq!(points("0 0\n1000 25\n50000\t100\n", "percent"), expected);
}

#[test]
fn faults_name_file_line_and_remedy() {
    for (name, file, expected) in [
        ("word", "1000,0.5\n2000,most\n", "mine.csv:2: \"2000,most\" is no point of a distribution"),
        ("three", "1000,0.5,1\n", "mine.csv:1: \"1000,0.5,1\" is no point"),
        ("negative", "-5,0.5\n9,1\n", "mine.csv:1: \"-5,0.5\" is no point"),
        ("infinite", "1000,inf\n", "mine.csv:1: \"1000,inf\" is no point"),
        ("empty", "bytes,cdf\n", "mine.csv:1: there is no point in it"),
        // What holds for points in the scenario itself.
        ("short", "1000,0.5\n2000,0.9\n", "the last point must have cdf = 1"),
        ("falling", "1000,0.5\n900,1\n", "sizes and shares must rise"),
    ] {
        let said = Document::load(&folder(name, file).join("s.toml")).unwrap_err().to_string();
        assert!(said.contains(expected) && said.contains("s.toml"), "{name}: {said}");
    }
    let said = Document::parse("s.toml", SCENARIO).unwrap_err().to_string();
    assert!(said.contains("there is no folder"), "{said}");
}
