use super::*;
use std::time::Duration;

fn refused(text: &str) -> Diagnostic {
    *Config::parse("vmcc.toml", text).expect_err(text)
}

const ALL: &str = r#"
[agent]
interval = "2s"
[algorithm.vmcc]
theta = 5
[algorithm.lia]
[host]
congestion_control = "mp_vmcc"
notsent_lowat = "16384B"
sysctl = { "net.ipv4.tcp_rmem" = "4096  131072 6291456", "net/ipv4/conf/all/arp_ignore" = 1 }
[host.mptcp]
subflows = 2
accept = 3
[[host.mptcp.endpoint]]
nic = "eth*"
flags = ["signal", "backup"]
family = "ipv4"
[[namespace]]
name = "web-*"
congestion_control = "cubic"
[port.tap0]
rate = "600mbit"
[guard]
enabled = true
[metrics]
"#;

#[test]
fn cgroup_paths_are_below_the_mount_and_algorithms_are_up() {
    let of = |path: &str, name: &str| {
        format!("[algorithm.lia]\n[[cgroup]]\npath = '{path}'\ncongestion_control = '{name}'\n")
    };
    let rule = Config::parse("test", &of("/a.slice/*.scope", "mp_lia")).unwrap().cgroups.remove(0);
    assert_eq!(
        (rule.path.as_str(), rule.congestion_control.as_deref()),
        ("/a.slice/*.scope", Some("mp_lia"))
    );
    for path in ["", "/", "a//b", "../a", "a/./b"] {
        assert!(refused(&of(path, "mp_lia")).to_string().contains("path of a cgroup"), "{path}");
    }
    let missing = refused(&of("a", "mp_vmcc")).to_string();
    assert!(missing.contains("mp_vmcc") && missing.contains("4"), "{missing}");
    let nothing = refused("[[cgroup]]\npath = 'a'\n[[cgroup]]\npath = 'b'\nupgrade = true\n").to_string();
    assert!(nothing.contains("vmcc.toml:1") && nothing.contains("`upgrade = true`"), "{nothing}");
    let unknown = refused("[[cgroup]]\npath = 'a'\ncongestion_contol = 'cubic'\n").to_string();
    assert!(unknown.contains("congestion_control") && unknown.contains("vmcc.toml:3"), "{unknown}");
}

#[test]
fn live_requires_a_congestion_control() {
    let of =
        |table: &str| Config::parse("test", &format!("{table}congestion_control = 'cubic'\nlive = true\n"));
    assert!(of("[host]\n").unwrap().host.live);
    assert!(of("[[namespace]]\nname = 'a'\n").unwrap().namespaces[0].settings().live);
    assert!(refused("[host]\nlive = true\n").to_string().contains("congestion_control"));
}

#[test]
fn ineffective_settings_are_reported() {
    let of = |text: &str| Config::parse("test", text).unwrap().unheeded;
    assert_eq!(
        of("[guard]\nclose_failed = true\nretry = '9s'"),
        ["[guard] close_failed, retry: no effect without `enabled = true`"]
    );
    assert_eq!(of("[guard]\nmin_paths = 2"), ["[guard] min_paths: no effect without `enabled = true`"]);
    assert!(of("[algorithm.vmcc]\n[guard]\nenabled = true\nclose_failed = true").is_empty());
    assert!(of("[guard]\nenabled = false").is_empty());
    assert_eq!(of("[algorithm.vmcc]\ntheta = 5").len(), 1, "a parameter of another detector");
}

#[test]
fn every_setting_is_parsed() {
    let config = Config::parse("vmcc.toml", ALL).unwrap();
    assert_eq!(config.interval, std::time::Duration::from_secs(2));
    let names: Vec<_> = config.algorithms.iter().map(|p| p.algorithm().name()).collect();
    assert_eq!((names, config.algorithms[1].get("theta")), (vec!["lia", "vmcc"], Some(5.0)));
    let sysctls: Vec<_> =
        config.host.sysctls().into_iter().map(|(n, v)| format!("{}={v}", n.as_str())).collect();
    assert_eq!(
        sysctls,
        [
            "net/ipv4/conf/all/arp_ignore=1",
            "net/ipv4/tcp_congestion_control=mp_vmcc",
            "net/ipv4/tcp_notsent_lowat=16384",
            "net/ipv4/tcp_rmem=4096 131072 6291456"
        ]
    );
    assert_eq!((config.host.mptcp.subflows, config.host.mptcp.accept), (Some(2), Some(3)));
    assert_eq!(config.host.mptcp.endpoints[0].flags, [EndpointFlag::Signal, EndpointFlag::Backup]);
    assert_eq!(config.namespaces[0].settings().congestion_control.as_deref(), Some("cubic"));
    assert!(config.guard == Some(Policy::default()) && config.ports.contains_key("tap0"));
    assert_eq!(config.metrics, Some("127.0.0.1:9464".parse().unwrap()));
    let nothing = Config::parse("vmcc.toml", "").unwrap();
    assert!(
        nothing.algorithms.is_empty()
            && nothing.guard.is_none()
            && nothing.metrics.is_none()
            && nothing.host.sysctls().is_empty()
    );
}

#[test]
fn diagnostics_name_line_and_suggestion() {
    for (text, line, says) in [
        ("\n[host]\nnotsent_lowatt = '16kB'", 3, "did you mean `notsent_lowat`?"),
        ("[host]\nnotsent_lowat = '16ms'", 2, "16ms"),
        ("[host]\nnotsent_lowat = '9GB'", 2, "4294967295B"),
        ("[algorithm.vmc]", 1, "vmcc"),
        ("[algorithm.vmcc]\n\nthet = 5", 3, "did you mean theta?"),
        ("[algorithm.vmcc]\ntheta = 5000", 2, "1000"),
        ("[host]\ncongestion_control = 'mp_vmcc'", 2, "[algorithm.vmcc]"),
        ("[algorithm.vmcc]\n[host]\ncongestion_control = 'vmcc'", 3, "mp_vmcc"),
        ("[host]\ncongestion_control = 'a b'", 2, "such a name"),
        ("[host.sysctl]\n'kernel.panic' = 1", 2, "not of the network"),
        ("[host.sysctl]\n'net/../kernel' = 1", 2, "no name"),
        ("[host.sysctl]\n'net.ipv4.tcp_notsent_lowat' = 1", 2, "a key of its own"),
        ("[host.sysctl]\n'net.ipv4.tcp_ecn' = 1.5", 2, "whole number"),
        ("[host.sysctl]\n'net.ipv4.ip_forward' = 1", 2, "would not come back"),
        ("[host.sysctl]\n'net/ipv6/conf/eth0.1/disable_ipv6' = 1", 2, "would not come back"),
        ("[host.sysctl]\n'net.ipv4.tcp_ecn' = 1\n'net/ipv4/tcp_ecn' = 2", 3, "twice"),
        ("[host.mptcp]\nsubflows = 256", 2, "more than 255"),
        ("[[host.mptcp.endpoint]]\nnic = 'e'\nflags = ['signl']", 3, "did you mean `signal`?"),
        ("[[host.mptcp.endpoint]]\nnic = 'e'\nflags = []", 3, "what it is for"),
        ("[[host.mptcp.endpoint]]\nnic = 'e'\nflags = ['signal', 'fullmesh']", 3, "only apart"),
        (
            "[[host.mptcp.endpoint]]\nnic = 'e'\nport = 5201\nflags = ['signal', 'subflow']",
            4,
            "only without a `port`",
        ),
        (
            "[[host.mptcp.endpoint]]\nnic = 'eth*'\nflags = ['signal']\n[[host.mptcp.endpoint]]\nnic = 'eth1'\nflags = ['subflow']",
            5,
            "never applies: rule 1",
        ),
        ("[[namespace]]\nname = 'a'\n[[namespace]]\nname = 'b/c'", 4, "/run/netns"),
        ("[[namespace]]\nname = 'a'\ncongestion_control = 'mp_lia'", 3, "[algorithm.lia]"),
        ("[port.tap0]\nrate = '1Mb'", 2, "1Mb"),
        ("[port.tap0]\nphantom = 0.1", 2, "0.5 to 1"),
        ("[agent]\ninterval = '10ms'", 2, "1s"),
        ("[guard]\nenabled = true", 2, "[algorithm.vmcc]"),
        ("[metrics]\nlisten = 'localhost'", 2, "socket address"),
        ("[guard]\nchi = 3", 2, "close_failed = true"),
        ("[guard]\nsuppress_useless = true\nomega = 0.5", 3, "0.5 is not from 1 to 1000"),
        ("[guard]\ndrain = '120s'", 2, "the longest is a minute"),
        ("[guard]\nmin_paths = 0", 2, "0 is not from 1 to 32"),
        ("[guard]\nmin_paths = 33", 2, "33 is not from 1 to 32"),
        ("[guard]\nretry = '10ms'", 2, "the shortest is a second"),
        ("[guard]\ndry-run = true", 2, "did you mean `dry_run`?"),
        ("[gard]\nenabled = true", 1, "did you mean `guard`?"),
    ] {
        let found = refused(text);
        let shown = found.to_string();
        assert_eq!(found.place.as_ref().map(|p| p.line), Some(line), "{text}: {shown}");
        assert!(shown.starts_with("vmcc.toml:") && shown.contains(says), "{text}: {shown}");
    }
}

#[test]
fn endpoint_rules_apply_where_an_earlier_one_does_not() {
    let accepted = |rules: [(&str, &str); 2]| {
        let text = rules.map(|(nic, family)| {
            format!("[[host.mptcp.endpoint]]\nnic = '{nic}'\nfamily = '{family}'\nflags = ['subflow']\n")
        });
        Config::parse("test", &text.concat()).is_ok()
    };
    assert!(accepted([("eth1", "any"), ("eth*", "any")]));
    assert!(accepted([("eth1", "ipv4"), ("eth1", "ipv6")]));
    assert!(accepted([("eth1", "ipv4"), ("eth1", "any")]));
    assert!(accepted([("eth?", "any"), ("eth*", "any")]), "eth10");
    assert!(!accepted([("eth1", "ipv4"), ("eth1", "ipv4")]));
    assert!(!accepted([("*", "any"), ("wl*", "ipv6")]));
}

#[test]
fn every_example_in_the_guide_parses() {
    for guide in [
        include_str!("../../../../../docs/how-to/agent.md"),
        include_str!("../../../../../docs/reference/agent.md"),
    ] {
        let blocks: Vec<&str> =
            guide.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        assert!(blocks.len() >= 2);
        for block in blocks {
            let config = Config::parse("guide", block).unwrap_or_else(|e| panic!("{e}"));
            assert!(!config.algorithms.is_empty(), "{block}");
        }
    }
}

#[test]
fn packaged_config_is_empty_and_its_examples_parse() {
    let text = include_str!("../../../../../dist/vmcc.toml");
    let config = Config::parse("vmcc.toml", text).unwrap();
    assert!(config.algorithms.is_empty() && config.guard.is_none() && config.metrics.is_none());
    let example =
        |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned();
    let used = text.lines().map(example).collect::<Vec<_>>().join("\n");
    let config = Config::parse("vmcc.toml", &used).unwrap_or_else(|e| panic!("{e}: {used}"));
    assert!(config.algorithms.len() == 1 && config.guard.is_some() && config.metrics.is_some());
}

#[test]
fn guard_policies_are_parsed() {
    let text = "[algorithm.vmcc]\n[guard]\nenabled = true\ndry_run = true\ndrain = '2s'\nclose_failed = true\nchi = 3\n\
                suppress_useless = true\nretry = '60s'\nmin_paths = 2";
    let policy = Policy {
        dry_run: true,
        drain: Duration::from_secs(2),
        min_paths: 2,
        failed: Some(3.0),
        useless: Some(10.0),
        retry: Some(Duration::from_secs(60)),
    };
    assert_eq!(Config::parse("x", text).unwrap().guard, Some(policy));
}
