//! Alerts are rules that Prometheus accepts; each is raised when it should be, and only then.

use crate::common::root;
use crate::prometheus::promtool;

#[test]
fn each_alert_fires_exactly_on_its_condition() {
    let rules = root().join("dist/vmcc-alerts.yml");
    promtool(&["check", "rules", rules.to_str().unwrap()], "");
    let cases = root().join("crates/cli/tests/prometheus/alerts.yml");
    promtool(&["test", "rules", cases.to_str().unwrap()], "");
    // promtool is content with alerts that nobody tests.
    let (rules, cases) = (std::fs::read_to_string(rules).unwrap(), std::fs::read_to_string(cases).unwrap());
    let names: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        for end in ["is raised", "is not raised"] {
            assert!(cases.contains(&format!("- name: {name} {end}\n")), "{name} {end}");
        }
    }
}
