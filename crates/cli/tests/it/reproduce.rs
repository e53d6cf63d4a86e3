//! `vmcc reproduce`: the list, what is refused, and one figure in its quick form.

use crate::common::{json, names, output, refused};
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn list_shows_the_scenarios_of_each_figure() {
    let dir = tempfile::tempdir().unwrap();
    let (code, document) = json(dir.path(), &["reproduce"]);
    assert_eq!(code, 0);
    let figures = document["figures"].as_array().unwrap();
    let find = |paper: &str, figure: &str| {
        let found = figures.iter().find(|f| f["paper"] == paper && f["figure"] == figure);
        found.unwrap_or_else(|| panic!("{paper}/{figure}")).clone()
    };
    assert!(find("vmcc", "fig9")["claims"].as_u64().unwrap() >= 5);
    assert_eq!(find("vmcc", "fig9").get("results"), None);
    assert_eq!(find("icpe", "fig6").get("claims"), None);
    let text = String::from_utf8(output(dir.path(), &["reproduce"]).stdout).unwrap();
    let line = |name: &str| text.lines().find(|l| l.trim_start().starts_with(name)).unwrap().to_owned();
    assert!(line("icpe/fig6").contains("no scenario yet"), "{text}");
    assert!(line("vmcc/fig9").contains("claims"), "{text}");
}

#[test]
fn unknown_figure_is_refused_with_a_suggestion() {
    let dir = tempfile::tempdir().unwrap();
    let figure = refused(dir.path(), &["reproduce", "vmcc/fig99"], 2);
    assert!(figure.contains("vmcc/fig99: there is no such") && figure.contains("`vmcc/fig9`"), "{figure}");
    let paper = refused(dir.path(), &["reproduce", "vmmc"], 2);
    assert!(paper.contains("did you mean `vmcc`"), "{paper}");
    let mtcp = refused(dir.path(), &["reproduce", "mtcp/fig99"], 2);
    assert!(
        mtcp.contains("`mtcp/fig") && !mtcp.contains("`mtcp/fig1`"),
        "what cannot be run is not meant: {mtcp}"
    );
    let map = refused(dir.path(), &["reproduce", "mtcp/fig1"], 2);
    assert!(map.contains("mtcp/fig1: an inventory of the Internet's paths"), "{map}");
    let none_yet = refused(dir.path(), &["reproduce", "icpe/fig6"], 2);
    assert!(none_yet.contains("icpe/fig6: there is no scenario of it yet"), "{none_yet}");
    assert!(names(dir.path()).is_empty(), "nothing is made before that is known");
}

#[test]
fn figure_is_run_and_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let run = ["reproduce", "vmcc/fig10", "--quick", "--out", "out"];
    let (code, document) = json(dir.path(), &run);
    let figure = &document["figures"][0];
    let claims = figure["claims"].as_array().unwrap();
    let unmeasured = claims.iter().filter(|claim| claim["unmeasured"] == true).count();
    let failed = claims.iter().filter(|claim| claim["pass"] == false).count() - unmeasured;
    assert_eq!(code, i32::from(failed > 0), "{claims:#?}");
    assert_eq!((&figure["figure"], &figure["engine"]), (&"vmcc/fig10".into(), &"sim".into()));
    assert!(figure["command"].as_str().unwrap().contains("--scale quick"), "{figure}");
    let lia = claims.iter().find(|claim| claim["id"] == "a-completion-vs-lia").unwrap();
    assert!(lia["paper"].as_str().unwrap().contains("22.1 %"));
    assert!(lia["value"].as_f64().unwrap() > 0.0 && lia["half_width"].as_f64().unwrap() > 0.0, "{lia}");
    assert!(unmeasured >= 1, "the simulator has no counters of energy");

    let index = fs::read_to_string(dir.path().join("out/index.html")).unwrap();
    assert!(index.contains("vmcc/fig10/index.html") && index.contains("a-completion-vs-lia"));
    assert!(dir.path().join("out/vmcc/fig10/sim/report.html").is_file());
    let page = fs::read_to_string(dir.path().join("out/vmcc/fig10/index.html")).unwrap();
    assert!(
        page.contains("sim/report.html") && page.contains("Sizes of the objects"),
        "with what the paper leaves out"
    );

    let (_, list) = json(dir.path(), &["reproduce", "--out", "out"]);
    let last = list["figures"].as_array().unwrap().iter().find(|f| f["figure"] == "fig10").unwrap();
    assert_eq!(last["results"][0]["passed"], claims.len() - failed - unmeasured);

    let table =
        String::from_utf8(output(dir.path(), &["reproduce", "--out", "out", "--table"]).stdout).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "| figure | claim | paper | condition | simulator |");
    assert_eq!(lines.len(), 2 + claims.len(), "{table}");
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("| vmcc/fig10 | a-completion-vs-lia | -22.1 %, 0.779 times |"))
    );
    let energy = lines.iter().find(|line| line.starts_with("| vmcc/fig10 | d-energy-vs-lia |")).unwrap();
    assert!(
        energy.contains("| efficiency above both | ") && energy.ends_with("| not measured here |"),
        "{energy}"
    );
    let empty = refused(dir.path(), &["reproduce", "--out", "elsewhere", "--table"], 2);
    assert!(empty.contains("has no results"), "{empty}");

    let again = refused(dir.path(), &run, 2);
    assert!(again.contains("exists and is not empty"), "{again}");
    let resumed = [&run[..], &["--resume"]].concat();
    let (_, kept) = json(dir.path(), &resumed);
    assert_eq!(kept["figures"][0]["claims"], figure["claims"]);
    beside_a_kernel(dir.path(), &resumed);
    let other = refused(dir.path(), &["reproduce", "vmcc/fig10", "--out", "out", "--resume"], 2);
    assert!(other.contains("holds the result of another command"), "{other}");
}

/// The page of a figure and the index have both engines' results side by side.
fn beside_a_kernel(dir: &Path, resumed: &[&str]) {
    let (sim, kernel) = (dir.join("out/vmcc/fig10/sim"), dir.join("out/vmcc/fig10/kernel"));
    fs::create_dir(&kernel).unwrap();
    for file in ["flows.parquet", "series.parquet", "summary.json"] {
        fs::copy(sim.join(file), kernel.join(file)).unwrap();
    }
    let mut summary: serde_json::Value =
        serde_json::from_slice(&fs::read(kernel.join("summary.json")).unwrap()).unwrap();
    summary["engine"] = "kernel".into();
    let claim = &mut summary["claims"][0];
    (claim["value"], claim["half_width"], claim["pass"]) =
        (123.0.into(), serde_json::Value::Null, false.into());
    fs::write(kernel.join("summary.json"), summary.to_string()).unwrap();
    json(dir, resumed);
    for page in ["out/index.html", "out/vmcc/fig10/index.html"] {
        let text = fs::read_to_string(dir.join(page)).unwrap();
        assert!(text.contains(">simulator</th>") && text.contains(">kernel</th>"), "{page}");
        let row = text.split("<td>a-completion-vs-lia</td>").nth(1).unwrap().split("</tr>").next().unwrap();
        assert!(row.contains(">123<br>") && row.contains("badge fail"), "{page}: {row}");
        assert!(row.contains(" ± "), "{page}: the simulator's with its interval: {row}");
    }
    let page = fs::read_to_string(dir.join("out/vmcc/fig10/index.html")).unwrap();
    assert!(page.contains("sim/report.html") && page.contains("kernel/report.html"));
    assert!(page.contains(", simulator\"") && page.contains(", kernel\""), "plots of both");
    let table = String::from_utf8(output(dir, &["reproduce", "--out", "out", "--table"]).stdout).unwrap();
    assert!(table.starts_with("| figure | claim | paper | condition | simulator | kernel |\n"), "{table}");
    assert!(table.contains("| **fails**: 123 |"), "{table}");
    fs::remove_dir_all(kernel).unwrap();
}

/// The kernel engine is not there, or none of its programs, or it cannot express the figure: nothing is made, and the reason is said.
#[test]
fn unsupported_figure_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (figure, group) = ("mtcp/fig5", "mtcp");
    for what in [figure, group] {
        let mut vmcc = Command::new(assert_cmd::cargo::cargo_bin("vmcc"));
        vmcc.args(["reproduce", what, "--engine", "kernel", "--out", "out"]);
        let ended = vmcc.current_dir(dir.path()).env("PATH", dir.path()).output().unwrap();
        let message = String::from_utf8(ended.stderr).unwrap();
        assert!(matches!(ended.status.code(), Some(2 | 3)), "{message}");
        assert!(message.contains("kernel") && ended.stdout.is_empty(), "{message}");
        assert_eq!(what == group, message.contains("none of its figures"), "{message}");
    }
    assert!(names(dir.path()).is_empty());
}
