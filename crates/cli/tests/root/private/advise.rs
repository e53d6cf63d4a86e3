//! `vmcc advise` as a user runs it, in a namespace with two interfaces.

use crate::kept::within;
use serde_json::Value;
use vmcc_agent::config::Config;
use vmcc_testkit::netns::{Namespace, join, run};

/// A client with two subnets in common with its peer.
fn client() -> (Namespace, Namespace) {
    let (here, there) = (Namespace::new("a"), Namespace::new("b"));
    join(&here, &there, "p0", "10.9.0");
    join(&here, &there, "p1", "10.9.1");
    here.sysctl("mptcp/enabled", "1");
    run(&format!("ip -n {here} mptcp limits set subflows 2 add_addr_accepted 0"));
    (here, there)
}

fn advice(namespace: &Namespace, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = within(namespace, &[&["advise", "--json"], arguments].concat()).output().unwrap();
    let document = serde_json::from_slice(&output.stdout);
    (output.status.code(), document.unwrap_or_else(|e| panic!("{e}: {output:?}")))
}

#[test]
fn root_advice_names_the_cause_and_has_a_file_for_the_agent() {
    let (here, _there) = client();
    let options = [
        "--to",
        "10.9.0.2",
        "--size",
        "40MB",
        "--rate",
        "p0=100mbit",
        "--rate",
        "p1=100mbit",
        "--demand",
        "1gbit",
    ];
    let (code, document) = advice(&here, &options);
    assert_eq!(code, Some(0));
    assert_eq!(document["causes"][0]["code"], "no-endpoint", "{document:#}");
    assert_eq!(document["facts"]["nics"][1]["rate_bps"], 100_000_000, "{document:#}");
    let file = document["file"].as_str().unwrap();
    let config = Config::parse("file", file).unwrap();
    assert_eq!(config.host.mptcp.endpoints[0].nic, "p1", "{file}");
    let text = within(&here, &[&["advise"][..], &options[..]].concat()).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    for part in [
        "only one path now, because:",
        "help: ip mptcp endpoint add 10.9.1.1 dev p1",
        "[[host.mptcp.endpoint]]",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn root_advice_refuses_names_that_are_not_there() {
    let (here, _there) = client();
    let (code, document) = advice(&here, &["--rate", "p7=1gbit"]);
    assert_eq!(code, Some(2));
    let message = document["error"]["message"].as_str().unwrap();
    assert!(message.contains("p7") && message.contains("p0, p1"), "{message}");
    assert_eq!(advice(&here, &["--to", "no-such-host.invalid"]).0, Some(2));
}
