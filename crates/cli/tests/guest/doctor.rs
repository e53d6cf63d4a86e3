//! `vmcc doctor` on kernels that differ in what serves a port.

use crate::inside;
/// `vmcc doctor` in a guest, as JSON.
const WHOLE: &str = r#""$VMCC" doctor --json"#;
/// And as text, with a kernel that lacks modules too.
const LACKING: &str = r#"
"$VMCC" doctor --json
echo "== text"
mkdir -p /etc/modprobe.d
printf 'install ifb /bin/false\ninstall act_mirred /bin/false\n' >/etc/modprobe.d/none.conf
rmmod ifb act_mirred 2>/dev/null
"$VMCC" doctor
"#;

/// The JSON document, and the text that follows, if any.
fn doctor(series: &str, script: &str) -> (serde_json::Value, String) {
    let done = inside::output(series, script);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let (document, text) = text.split_once("== text").unwrap_or((&text, ""));
    (serde_json::from_str(document).unwrap_or_else(|e| panic!("{e}: {document} {done:?}")), text.to_owned())
}

/// `check: ok` for each of the checks about a port's optional parts, in the order of the document.
fn answers(document: &serde_json::Value) -> Vec<(&str, bool)> {
    let checks = document["checks"].as_array().expect("checks").iter();
    let all = checks.map(|check| (check["name"].as_str().expect("a name"), check["ok"] == true));
    all.filter(|(name, _)| ["qdisc-bpf", "ifb", "mirred", "tcx"].contains(name)).collect()
}

fn keeps_bytes_at_joins(document: &serde_json::Value) -> Option<bool> {
    let checks = document["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["name"] == "mptcp-joins")?["ok"].as_bool()
}

#[test]
fn timeless_doctor_names_port_features_missing_from_an_old_kernel() {
    let (document, text) = doctor("6.1", LACKING);
    assert_eq!(keeps_bytes_at_joins(&document), Some(true));
    let expected = [("qdisc-bpf", false), ("ifb", true), ("mirred", true), ("tcx", false)];
    assert_eq!(answers(&document), expected, "{document}");
    for says in [
        "qdisc-bpf           NO  scheduling the queues of a port in BPF",
        "ifb                 NO  one budget for several ports of a VM",
        "\nqdisc-bpf: it takes Linux 6.16",
        "\nifb: this kernel has no IFB devices",
        "CONFIG_IFB: boot a distribution kernel",
        "\nmirred: this kernel has no filter action mirred",
        "CONFIG_NET_ACT_MIRRED: boot a distribution kernel",
        "\ntcx: no links of programs to a port",
        "boot Linux 6.6 or newer",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[test]
fn timeless_doctor_finds_every_port_feature_on_a_new_kernel() {
    let (document, _) = doctor("6.18", WHOLE);
    assert_eq!(keeps_bytes_at_joins(&document), Some(false));
    let expected = [("qdisc-bpf", true), ("ifb", true), ("mirred", true), ("tcx", true)];
    assert_eq!(answers(&document), expected, "{document}");
}

#[test]
#[ignore = "a guest more; the other answer is part of a test that runs always"]
fn timeless_doctor_finds_mptcp_joins_safe_with_a_receive_backlog() {
    let (document, _) = doctor("7", WHOLE);
    assert_eq!(keeps_bytes_at_joins(&document), Some(true));
}
