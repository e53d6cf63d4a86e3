//! Messages for faulty scenarios: reviewed texts.

use vmcc_scenario::{Document, Overrides};

const GOOD: &str = r#"title = "t"
duration = "1s"
[host]
cc = "lia"
[topology]
kind = "parallel-paths"
paths = 2
rate = "100mbit"
delay = "5ms"
[[traffic]]
kind = "bulk"
connections = 2
[sweep]
cc = ["lia", "vmcc"]
[[claim]]
id = "c"
check = "mean(goodput_bps, cc='vmcc') > 1"
"#;

/// The message of the good scenario with one text replaced.
fn replaced(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "`{old}` is not in the good scenario");
    match Document::parse("s.toml", &GOOD.replacen(old, new, 1)) {
        Ok(_) => panic!("`{new}` instead of `{old}` was accepted"),
        Err(error) => error.to_string(),
    }
}

fn option(option: &str) -> String {
    let document = Document::parse("s.toml", GOOD).unwrap();
    let overrides = Overrides { set: vec![option.to_owned()], ..Overrides::default() };
    match document.plan(&overrides) {
        Ok(_) => panic!("--set {option} was accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn syntax_faults_are_explained() {
    let cases = [
        ("cc = \"lia\"", "cc = \"lia"),
        ("connections = 2", "conections = 2"),
        ("connections = 2", "connections = \"two\""),
        ("connections = 2", "size = 2"),
        ("duration = \"1s\"", "duration = 1"),
        ("duration = \"1s\"", "duration = \"1sec\""),
        ("duration = \"1s\"\n", ""),
        ("duration = \"1s\"", "duration = \"999999999999s\""),
        ("kind = \"bulk\"", "kind = \"bulky\""),
        ("kind = \"bulk\"\n", ""),
        ("kind = \"parallel-paths\"", "kind = \"paralel-paths\""),
        ("delay = \"5ms\"\n", ""),
        ("delay = \"5ms\"", "delay = \"5ms\"\nmarking = { rule = \"treshold\", at = \"3kB\" }"),
        ("delay = \"5ms\"", "delay = \"5ms\"\nmarking = { rule = \"threshold\", at = \"3KB\" }"),
        ("delay = \"5ms\"", "delay = \"5ms\"\nmarking = { rule = \"threshold\", at = \"101pkt\" }"),
        ("paths = 2", "paths = [{ name = \"a\" }, { name = \"b\", rte = \"1mbit\" }]"),
        ("paths = 2", "paths = [{ name = \"a\" }, { name = \"b\", rate = \"0mbit\" }]"),
        ("paths = 2", "paths = 0"),
        ("[sweep]", "[swep]"),
        ("title = \"t\"", "titel = \"t\""),
    ];
    let texts: Vec<String> = cases.iter().map(|(old, new)| replaced(old, new)).collect();
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn semantic_faults_are_explained() {
    let cases = [
        ("rate = \"100mbit\"", "rate = \"0bit\""),
        ("connections = 2", "cc = \"lja\""),
        ("cc = \"lia\"", "cc = \"lia\"\nprotocol = \"tcp\"\nsubflows = 2"),
        ("cc = \"lia\"", "cc = \"lia\"\nparams.vmcc.theta = 1e9"),
        ("cc = \"lia\"", "cc = \"lia\"\nparams.vmcc.tetha = 1"),
        ("connections = 2", "from = \"cleint\""),
        ("connections = 2", "to = \"client\""),
        ("connections = 2", "path = \"c\""),
        ("connections = 2", "class = 1"),
        ("connections = 2", "name = \"a\""),
        ("connections = 2", "connections = 2\n[[event]]\nat = \"0s\"\nkind = \"link-down\"\nlink = \"aa\""),
        ("connections = 2", "connections = 2\n[[event]]\nat = \"2s\"\nkind = \"link-down\"\nlink = \"a\""),
        ("connections = 2", "connections = 2\n[[event]]\nat = \"0s\"\nkind = \"close-subflow\""),
        ("connections = 2", "connections = 2\n[[event]]\nat = \"0s\"\nkind = \"set-backup\"\nsubflow = 32"),
        ("connections = 2", "connections = 2\n[[event]]\nat = \"0s\"\nkind = \"set-backup\"\npath = \"c\""),
        (
            "connections = 2",
            "connections = 2\n[[event]]\nat = \"0s\"\nkind = \"open-subflow\"\nsubflow = 1\ntraffic = \"bulc\"",
        ),
        (
            "connections = 2",
            "connections = 2\n[[event]]\nat = \"0s\"\nkind = \"remap\"\nvm = \"vm0\"\nvnic = 0\nnic = 0",
        ),
        ("kind = \"bulk\"\nconnections = 2", "kind = \"poisson\"\nsizes = \"web-serch\"\nload = 0.5"),
        (
            "kind = \"bulk\"\nconnections = 2",
            "kind = \"poisson\"\nsizes = \"1kB\"\nload = 0.5\nper_second = 3.0",
        ),
        (
            "kind = \"bulk\"\nconnections = 2",
            "kind = \"poisson\"\nsizes = \"1kB\"\nload = 0.5\nkept_connections = 0",
        ),
        (
            "kind = \"bulk\"\nconnections = 2",
            "kind = \"poisson\"\nsizes = \"1kB\"\nload = 0.5\nkept_connections = 2000000",
        ),
        (
            "kind = \"bulk\"\nconnections = 2",
            "kind = \"poisson\"\nsizes = \"1kB\"\nload = 0.5\nkept_connections = 2\nread_rate = \"1mbit\"",
        ),
        ("kind = \"bulk\"\nconnections = 2", "kind = \"on-off-udp\"\nrate = \"1mbit\"\ncc = \"lia\""),
        ("connections = 2", "write_rate = \"0bit\""),
        ("connections = 2", "write_chunk = \"1kB\""),
        ("connections = 2", "write_rate = \"1mbit\"\nwrite_chunk = \"2GiB\""),
        ("connections = 2", "read_rate = \"0bit\""),
        (
            "kind = \"bulk\"\nconnections = 2",
            "kind = \"on-off-udp\"\nrate = \"1mbit\"\nread_rate = \"1mbit\"",
        ),
        (
            "kind = \"bulk\"\nconnections = 2",
            "kind = \"request-response\"\nrequest = \"1kB\"\nresponse = \"1kB\"\nread_rate = \"1mbit\"",
        ),
        ("cc = \"lia\"", "cc = \"lia\"\npacket_memory = \"100B\""),
        ("cc = [\"lia\", \"vmcc\"]", "cc = [\"lia\", \"vmc\"]"),
        ("cc = [\"lia\", \"vmcc\"]", "cx = [\"lia\", \"vmcc\"]"),
        ("cc = [\"lia\", \"vmcc\"]", "cc = []"),
        ("[sweep]", "[scale.tiny]\nruns = 1\n[sweep]"),
        ("[sweep]", "[scale.small]\ntopology.rat = \"1mbit\"\n[sweep]"),
        ("[sweep]", "[scale.small]\ntopology.rate = \"0mbit\"\n[sweep]"),
        ("[sweep]", "[scale.small]\nhost.cc = \"reno\"\n[sweep]"),
        ("[sweep]", "[scale.small]\nonly_claimed = 1\n[sweep]"),
    ];
    let texts: Vec<String> = cases.iter().map(|(old, new)| replaced(old, new)).collect();
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn probe_faults_are_explained() {
    let probe = |more: &str| {
        replaced("kind = \"bulk\"\nconnections = 2", &format!("kind = \"probe\"\ninterval = \"1ms\"\n{more}"))
    };
    let cases = [
        "timeout = \"1s\"",
        "timeout = \"500ms\"\nstart = \"600ms\"",
        "timeout = \"10ms\"\nscheduler = \"redundant\"",
        "timeout = \"10ms\"\nack_path = \"best\"",
    ];
    insta::assert_snapshot!(cases.map(probe).join("\n\n"));
}

#[test]
fn window_and_min_paths_faults_are_explained() {
    let host = |more: &str| replaced("cc = \"lia\"", &format!("cc = \"lia\"\n{more}"));
    let entry = |more: &str| replaced("connections = 2", &format!("connections = 2\n{more}"));
    let texts = [
        host("coupling = \"combined\""),
        host("coupling = \"both\""),
        host("min_paths = 0"),
        host("min_paths = 33"),
        entry("coupling = \"separate\""),
        entry("protocol = \"tcp\"\ncoupling = \"combined\""),
        replaced(
            "kind = \"bulk\"\nconnections = 2",
            "kind = \"on-off-udp\"\nrate = \"1mbit\"\ncoupling = \"combined\"",
        ),
        replaced(
            "kind = \"bulk\"\nconnections = 2",
            "kind = \"probe\"\ninterval = \"1ms\"\ntimeout = \"10ms\"\ncoupling = \"combined\"",
        ),
    ];
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn quota_faults_are_explained() {
    let cases =
        ["quota = \"999us\"", "quota = \"5ms\"\nperiod = \"2s\"", "quota = \"5ms\"\nuntil = \"0s\"", ""];
    let event = |host: &str, rest: &str| {
        let event = format!("[[event]]\nat = \"0s\"\nkind = \"throttle\"\nhost = \"{host}\"\n{rest}");
        replaced("connections = 2", &format!("connections = 2\n{event}"))
    };
    let mut texts: Vec<String> = cases.iter().map(|rest| event("client", rest)).collect();
    texts.push(event("clinet", "quota = \"5ms\""));
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn subflow_event_faults_are_explained() {
    let event = |entry: &str, kind: &str, which: &str| {
        let event = format!("[[event]]\nat = \"0s\"\nkind = \"{kind}\"\n{which}");
        replaced("connections = 2", &format!("connections = 2\n{entry}\n{event}"))
    };
    let probe = "[[traffic]]\nname = \"asks\"\nkind = \"probe\"\ninterval = \"1ms\"\ntimeout = \"10ms\"\n";
    let texts = [
        event(probe, "set-backup", "path = \"a\"\ntraffic = \"asks\""),
        event("", "open-subflow", "subflow = 5"),
        event("subflows = 3", "open-subflow", "subflow = 3"),
        event("path = \"a\"\nsubflows = 2", "close-subflow", "path = \"b\""),
        event("path = \"a\"", "close-subflow", "path = \"a\""),
        event("protocol = \"tcp\"", "close-subflow", "path = \"a\""),
        replaced(
            "connections = 2",
            "connections = 2\nprotocol = \"tcp\"\n[[traffic]]\nkind = \"bulk\"\n\
            [[event]]\nat = \"0s\"\nkind = \"set-backup\"\nsubflow = 1\ntraffic = \"bulk\"",
        ),
    ];
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn claim_faults_are_explained() {
    let check = "mean(goodput_bps, cc='vmcc') > 1";
    let cases = [
        "mean(godput_bps, cc='vmcc') > 1",
        "mean(goodput_bps, cc='vmc') > 1",
        "mean(goodput_bps, c='vmcc') > 1",
        "mean(goodput_bps, cc='vmcc' > 1",
        "mean(goodput_bps, cc='vmcc')",
        "maen(goodput_bps) > 1",
        "goodput_bps > 1",
        "mean(goodput_bps) > 1x",
        "mean(goodput_bps) > (1",
        "mean(goodput_bps) = 1",
        "mean(paths.c.goodput_bps) > 1",
        "spearman(goodput_bps) > 0",
        "1 > 2",
        "",
    ];
    let texts: Vec<String> = cases.iter().map(|new| replaced(check, new)).collect();
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn graph_faults_are_explained() {
    let graph = |text: &str| {
        format!(
            "title = \"t\"\nduration = \"1s\"\n[topology]\nkind = \"graph\"\nhosts = [\"a\", \"b\"]\n\
             links = [{{ from = \"a\", to = \"s\", rate = \"1mbit\", delay = \"1ms\" }}, \
             {{ from = \"t\", to = \"b\", rate = \"1mbit\", delay = \"1ms\" }}]\n{text}\n\
             [[traffic]]\nkind = \"bulk\"\n"
        )
    };
    let cases = [
        "",
        "routing = \"explicit\"",
        "routes = [{ via = [\"a\", \"b\"] }]",
        "routing = \"explicit\"\nroutes = [{ via = [\"a\", \"s\", \"a\", \"b\"] }]",
        "routing = \"explicit\"\nroutes = [{ via = [\"a\", \"s\", \"b\"] }]",
        "routing = \"explicit\"\nroutes = [{ via = [\"a\", \"x\", \"b\"] }]",
    ];
    let message = |text: &&str| match Document::parse("g.toml", &graph(text)) {
        Ok(_) => panic!("`{text}` was accepted"),
        Err(error) => error.to_string(),
    };
    let texts: Vec<String> = cases.iter().map(message).collect();
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn option_faults_are_explained() {
    let cases = [
        "cc",
        "cc=",
        "cc=lia,",
        "conections=3",
        "connections=x",
        "delay=5",
        "rate=0mbit",
        "runs=1,2",
        "traffic.7.connections=1",
        "topology.buffer=[",
        "cc=lia,vmc",
        "connections=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,x",
    ];
    let texts: Vec<String> = cases.iter().map(|text| option(text)).collect();
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn unknown_scenario_name_gets_a_suggestion() {
    insta::assert_snapshot!(
        Document::open("dmo").unwrap_err(),
        @"no built-in scenario and no file is called `dmo` (nearest: demo); `vmcc scenarios` lists the built-in ones"
    );
    insta::assert_snapshot!(
        Document::open("fat-tree").unwrap_err(),
        @"no built-in scenario and no file is called `fat-tree` (nearest: examples/fat-tree); `vmcc scenarios` lists the built-in ones"
    );
    assert!(
        Document::open("/nonexistent/x.toml").unwrap_err().to_string().starts_with("cannot read scenario")
    );
}

/// The command that a refusal suggests can be pasted into a shell, and does what it says.
#[test]
fn value_set_by_variants_is_refused_with_a_working_command() {
    let text = "title = 't'\nduration = '1s'\n[topology]\nkind = 'parallel-paths'\npaths = 1\nrate = '1mbit'\ndelay = '1ms'\n\
                [[traffic]]\nkind = 'bulk'\n\
                [[sweep.variant]]\nname = 'one path, cubic'\ncc = 'cubic'\n\
                [[sweep.variant]]\nname = \"two\"\ncc = 'lia'\n";
    let document = vmcc_scenario::Document::parse("t", text).unwrap();
    let plan = |set: &str| {
        let overrides = vmcc_scenario::Overrides { set: vec![set.to_owned()], ..Default::default() };
        document.plan(&overrides)
    };
    let error = plan("cc=reno").unwrap_err().to_string();
    let choice = error.split("choose with --set ").nth(1).unwrap_or_else(|| panic!("{error}"));
    assert_eq!(choice, r#"'variant=["one path, cubic","two"]'"#);
    assert_eq!(plan(choice.trim_matches('\'')).unwrap().cases.len(), 2);
    assert_eq!(plan("variant=two").unwrap().cases.len(), 1);
}
