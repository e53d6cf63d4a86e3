//! Messages about a wrong port configuration: reviewed texts.

use vmcc_port::{ConfigFile, LinkFacts};
use vmcc_units::{BitsPerSec, Bytes};

const GOOD: &str = r#"rate = "100mbit"
queue = "drr"
buffer = "200pkt"
[marking]
rule = "mq-ecn"
rtt = "250us"
[[class]]
name = "gold"
weight = 4
dscp = [46]
[[class]]
name = "rest"
"#;

const LINK: LinkFacts = LinkFacts { mtu: Bytes::new(1500), speed: Some(BitsPerSec::new(1_000_000_000)) };

/// The message of the good configuration with one text replaced, from reading or else from planning.
fn replaced(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "`{old}` is not in the good configuration");
    let file = match ConfigFile::parse("p.toml", &GOOD.replacen(old, new, 1)) {
        Ok(file) => file,
        Err(error) => return error.to_string(),
    };
    match file.config.plan(&LINK) {
        Ok(plan) => panic!("`{new}` instead of `{old}` was accepted: {plan:?}"),
        Err(error) => file.locate(&error).to_string(),
    }
}

fn texts(cases: &[(&str, &str)]) -> String {
    cases.iter().map(|(old, new)| replaced(old, new)).collect::<Vec<_>>().join("\n\n")
}

#[test]
fn reference_config_is_valid() {
    ConfigFile::parse("p.toml", GOOD).unwrap().config.plan(&LINK).unwrap();
}

#[test]
fn syntax_faults_are_explained() {
    insta::assert_snapshot!(texts(&[
        ("rate = \"100mbit\"", "rate = \"100mbit"),
        ("rate = \"100mbit\"", "rat = \"100mbit\""),
        ("rate = \"100mbit\"", "rate = 100"),
        ("rate = \"100mbit\"", "rate = \"100Mbps\""),
        ("queue = \"drr\"", "queue = \"wrr\""),
        ("weight = 4", "wieght = 4"),
        ("weight = 4", "weight = -1"),
        ("weight = 4", "weight = 2020-01-01"),
        ("name = \"gold\"\n", ""),
        ("[[class]]", "[[clas]]"),
        ("rule = \"mq-ecn\"", "rule = \"mqecn\""),
        ("rtt = \"250us\"", "at = \"30kB\""),
        ("dscp = [46]", "filter = [{ form = \"10.0.0.1\" }]"),
        ("dscp = [46]", "filter = [{ from = \"10.0.0\" }]"),
        ("dscp = [46]", "dscp = [300]"),
    ]));
}

#[test]
fn rate_faults_are_explained() {
    insta::assert_snapshot!(texts(&[
        ("rate = \"100mbit\"", "rate = \"0bit\""),
        ("rate = \"100mbit\"", "rate = \"1kbit\""),
        ("rate = \"100mbit\"", "rate = \"1100mbit\""),
        ("rate = \"100mbit\"", "vm = { name = \"vm0\", rate = \"0bit\" }"),
        ("rate = \"100mbit\"", "vm = { name = \"vm 0\", rate = \"10mbit\" }"),
        ("weight = 4", "guarantee = \"101mbit\""),
        ("weight = 4\ndscp = [46]\n[[class]]", "guarantee = \"60mbit\"\n[[class]]\nguarantee = \"41mbit\""),
        ("weight = 4", "guarantee = \"100mbit\""),
        ("weight = 4", "guarantee = \"20mbit\"\nceiling = \"10mbit\""),
        ("weight = 4", "ceiling = \"200mbit\""),
    ]));
}

#[test]
fn class_faults_are_explained() {
    let nine: String = (0..9).map(|i| format!("[[class]]\nname = \"c{i}\"\n")).collect();
    insta::assert_snapshot!(texts(&[
        ("weight = 4", "weight = 0"),
        ("weight = 4", "weight = 1001"),
        ("name = \"rest\"", "name = \"gold\""),
        ("name = \"rest\"", "name = \"\""),
        ("name = \"rest\"", "name = \"a\\\"b\""),
        ("queue = \"drr\"", "queue = \"fifo\""),
        ("queue = \"drr\"", "queue = \"priority\""),
        ("[[class]]\nname = \"rest\"", &nine),
        ("dscp = [46]", "dscp = [46, 64]"),
        ("dscp = [46]", "dscp = [46, 46]"),
        ("name = \"rest\"", "name = \"rest\"\ndscp = [10, 46]"),
        ("name = \"rest\"", "name = \"rest\"\npriority = [7, 7]"),
        ("dscp = [46]", "filter = [{}]"),
        ("dscp = [46]", "filter = [{ to = \"10.0.0.1\" }, { from = \"10.0.0.1\", to = \"fd00::1\" }]"),
        ("dscp = [46]", "filter = [{ protocol = 1, to_port = 80 }]"),
    ]));
}

#[test]
fn marking_and_buffer_faults_are_explained() {
    insta::assert_snapshot!(texts(&[
        ("rule = \"mq-ecn\"\nrtt = \"250us\"", "rule = \"red\"\nmin = \"10kB\"\nmax = \"20kB\""),
        ("rule = \"mq-ecn\"\nrtt = \"250us\"", "rule = \"threshold\"\nat = \"302800B\""),
        ("rule = \"mq-ecn\"\nrtt = \"250us\"", "rule = \"threshold\"\nat = \"200pkt\""),
        ("rule = \"mq-ecn\"\nrtt = \"250us\"", "rule = \"threshold\"\nat = \"1s\""),
        ("rule = \"mq-ecn\"\nrtt = \"250us\"", "rule = \"threshold\"\nat = \"0B\""),
        ("rule = \"mq-ecn\"\nrtt = \"250us\"", "rule = \"threshold\"\nat = \"1ns\""),
        ("rtt = \"250us\"", "rtt = \"1s\""),
        ("rtt = \"250us\"", "rtt = \"0s\""),
        ("rtt = \"250us\"", "rtt = \"11s\""),
        ("rtt = \"250us\"", "lambda = 0"),
        ("weight = 4", "buffer = \"1000B\""),
        ("weight = 4", "buffer = \"3kB\""),
        ("buffer = \"200pkt\"", "buffer = \"0pkt\""),
        ("buffer = \"200pkt\"", "buffer = \"5GB\""),
        ("buffer = \"200pkt\"", "phantom = 0.3"),
        ("buffer = \"200pkt\"", "phantom = 1.01"),
        ("buffer = \"200pkt\"", "quantum = \"0B\""),
    ]));
}

#[test]
fn faults_without_a_rate_are_explained() {
    let message = |text: &str| {
        let file = ConfigFile::parse("p.toml", text).unwrap();
        let error = file.config.plan(&LinkFacts { speed: None, ..LINK }).unwrap_err();
        format!("{}\n-- {error}", file.locate(&error))
    };
    insta::assert_snapshot!(
        [
            "marking = { rule = \"mq-ecn\" }",
            "marking = { rule = \"threshold\", at = \"1ms\" }",
            "[[class]]\nname = \"a\"\nguarantee = \"1mbit\"",
        ]
        .map(message)
        .join("\n\n")
    );
}

#[test]
fn unreadable_files_are_explained() {
    let dir = std::env::temp_dir().join(format!("vmcc-port-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let load = |name: &str, bytes: &[u8]| {
        std::fs::write(dir.join(name), bytes).unwrap();
        ConfigFile::load(&dir.join(name)).unwrap_err().to_string()
    };
    let binary = load("binary", &[0xff, 0xfe]);
    let long = load("long", &vec![b'#'; (1 << 20) + 1]);
    let missing = ConfigFile::load(&dir.join("missing")).unwrap_err().to_string();
    let endless = ConfigFile::load(std::path::Path::new("/dev/zero")).unwrap_err().to_string();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(binary.contains("not UTF-8"), "{binary}");
    assert!(long.contains("longer than 1048576 bytes"), "{long}");
    assert!(missing.contains("No such file"), "{missing}");
    assert!(endless.contains("longer than"), "{endless}");
}

#[test]
fn missing_cgroup_is_named() {
    let error =
        vmcc_port::cgroup_folder("no-such.slice".as_ref(), "class[0].cgroup").unwrap_err().to_string();
    assert!(error.contains("`class[0].cgroup`") && error.contains("/sys/fs/cgroup/no-such.slice"), "{error}");
    // A folder, but no cgroup; and what was meant.
    let error = vmcc_port::cgroup_folder("/usr".as_ref(), "class[0].cgroup").unwrap_err();
    assert!(error.to_string().contains("`/usr` is not a cgroup of version 2"), "{error}");
    assert!(error.help.as_deref().is_some_and(|help| help.contains("leave the first `/` out")), "{error:?}");
}
