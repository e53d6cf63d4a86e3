//! A real Prometheus asks a real agent while connections run: it takes the alerts, and every panel of the dashboard has
//! something to show.

use crate::common::root;
use crate::kept::{Agent, until};
use crate::pair::{FILE, Pair};
use crate::prometheus;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Asks every second, so that rates are known after some.
fn start(pair: &Pair) -> Agent {
    let rules = root().join("dist/vmcc-alerts.yml").canonicalize().unwrap();
    let config = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: ['{}']\nscrape_configs:\n  \
         - job_name: vmcc\n    static_configs: [{{ targets: ['127.0.0.1:9464'] }}]\n",
        rules.display()
    );
    let file = pair.dir.path().join("prometheus.yml");
    fs::write(&file, config).unwrap();
    prometheus::promtool(&["check", "config", file.to_str().unwrap()], "");
    let mut command = std::process::Command::new("nsenter");
    command.arg(format!("--net={}", pair.here.file().display())).arg(prometheus::tool("prometheus"));
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", pair.dir.path().join("data").display()));
    command.arg("--web.listen-address=127.0.0.1:9090");
    let mut server = Agent::spawn(command);
    server.hears("Server is ready to receive web requests");
    server
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Queries Prometheus; returns `data` of the reply.
fn ask(pair: &Pair, path: &str) -> Value {
    let answer = pair.here.within(|| {
        let mut socket = TcpStream::connect("127.0.0.1:9090").unwrap();
        write!(socket, "GET /api/v1/{path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    });
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let document: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"));
    assert_eq!(document["status"], "success", "{path}: {document}");
    document["data"].clone()
}

/// The series that an expression has now.
fn query(pair: &Pair, expression: &str) -> Vec<Value> {
    ask(pair, &format!("query?query={}", encoded(expression)))["result"].as_array().unwrap().clone()
}

fn firing(pair: &Pair) -> Vec<String> {
    let all = ask(pair, "alerts")["alerts"].as_array().unwrap().clone();
    let firing = all.iter().filter(|alert| alert["state"] == "firing");
    firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect()
}

/// Every expression of the dashboard with its panel's title, variables as Grafana fills them in.
fn expressions() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("dist/grafana-vmcc.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let filled = |expression: &str| {
        let ranges = expression.replace("$__rate_interval", "10s").replace("$__range", "1h");
        ranges.replace("$instance", ".*")
    };
    let of = |panel: &Value| -> Vec<(String, String)> {
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        let title = panel["title"].as_str().unwrap().to_owned();
        targets.iter().map(|t| (title.clone(), filled(t["expr"].as_str().unwrap()))).collect()
    };
    let mut all: Vec<_> = panels.iter().flat_map(of).collect();
    let variable = &dashboard["templating"]["list"][1]["definition"];
    let selector = variable.as_str().unwrap().strip_prefix("label_values(").unwrap();
    all.push(("the variable `instance`".to_owned(), selector.split(',').next().unwrap().to_owned()));
    all
}

#[test]
fn root_prometheus_scrapes_the_agent_and_evaluates_alerts_and_dashboard() {
    let pair = Pair::new();
    let marks = "marking = { rule = 'threshold', at = '30kB' }";
    let file = format!("{FILE}[port.p1]\nrate = '200mbit'\n{marks}\n[guard]\nenabled = true\n[metrics]\n");
    let agent = Agent::start(&pair.here, &pair.file(&file));
    let _server = pair.server();
    let _client = pair.client(120);
    let _prometheus = start(&pair);

    let loaded = ask(&pair, "rules");
    assert_eq!(loaded["groups"][0]["rules"].as_array().unwrap().len(), 8, "{loaded}");
    until("a scrape that succeeds", || query(&pair, "up{job='vmcc'} == 1").len() == 1);
    let value = |found: &[Value]| found[0]["value"][1].as_str().unwrap().parse::<f64>().unwrap();
    until("connections that are counted", || {
        let found = query(&pair, "vmcc_mptcp_connections{algorithm='mp_vmcc'}");
        !found.is_empty() && value(&found) >= 1.0
    });
    let all = expressions();
    assert!(all.len() >= 15, "{all:?}");
    for (title, expression) in &all {
        until(&format!("{title}: {expression}"), || !query(&pair, expression).is_empty());
    }
    let marked = &all.iter().find(|(title, _)| title == "Marked share").unwrap().1;
    until("packets that are marked", || value(&query(&pair, marked)) > 0.0);

    assert_eq!(firing(&pair), [""; 0]);
    pair.file("[host]\nnotsent_lowatt = 1");
    agent.signal(Signal::SIGHUP);
    until("an alert for a bad file", || firing(&pair) == ["VmccBadFile"]);
}
