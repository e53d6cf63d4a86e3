//! Previous state of a port, and ports that move or whose namespace ends.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use vmcc_port::{
    Port, PortConfig, PortError, Serving, attached, forget_gone, peek, settings, unused_budgets,
};
use vmcc_testkit::netns::{Namespace, run};
use vmcc_testkit::port::{Pair, config};

const RECORDS: &str = "/run/vmcc/ports";
const RATED: &str = "rate = '100mbit'";

fn attach(namespace: &Namespace, text: &str) -> Result<Port, PortError> {
    Port::attach_in(&namespace.file(), "p0", &config(text))
}

fn inode(namespace: &Namespace) -> u64 {
    fs::metadata(namespace.file()).unwrap().ino()
}

/// Number of records of ports of a namespace; other tests have some of theirs.
fn records(inode: u64) -> usize {
    let names = fs::read_dir(RECORDS).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().starts_with(&format!("{inode}-"))).count()
}

fn queues(namespace: &Namespace) -> String {
    run(&format!("tc -n {namespace} qdisc show dev p0"))
}

/// A namespace with a port that nobody uses.
fn with_port() -> Namespace {
    add_port(Namespace::new("n"))
}

fn add_port(namespace: Namespace) -> Namespace {
    run(&format!("ip -n {namespace} link add p0 type veth peer name p1"));
    run(&format!("ip -n {namespace} link set p0 up"));
    namespace
}

/// A namespace with a port that nobody serves, whose numbers are those of a deleted one that was served, and its inode.
fn successor() -> (Namespace, u64) {
    let began = Instant::now();
    // The kernel gives the lowest free number, also to namespaces of others.
    while began.elapsed() < Duration::from_secs(120) {
        let served: Vec<Namespace> = (0..4).map(|_| with_port()).collect();
        let inodes: Vec<u64> = served.iter().map(inode).collect();
        for namespace in &served {
            run(&format!("tc -n {namespace} qdisc add dev p0 root handle 7: bfifo limit 77777"));
            attach(namespace, RATED).unwrap_or_else(|e| panic!("{e}")).keep();
        }
        drop(served);
        let mut others = Vec::new();
        for _ in 0..20 {
            let next = Namespace::new("n");
            let its = inode(&next);
            if inodes.contains(&its) {
                return (add_port(next), its);
            }
            others.push(next);
        }
    }
    panic!("no namespace got the inode of a deleted one");
}

#[test]
fn root_port_record_of_a_deleted_namespace_is_not_its_successors() {
    let (next, inode) = successor();
    let before = queues(&next);
    next.within(|| {
        assert_eq!(attached().unwrap(), Vec::<String>::new());
        assert!(matches!(peek("p0"), Err(PortError::NotAttached { .. })));
    });
    let port = attach(&next, RATED).unwrap_or_else(|e| panic!("{e}"));
    port.detach().unwrap();
    assert_eq!(queues(&next), before);
    // The old record goes when somebody cleans up, and is of a port that is gone.
    assert_eq!(records(inode), 1);
    assert!(next.within(forget_gone).unwrap().contains(&"p0".to_owned()));
    assert_eq!(records(inode), 0);
}

#[test]
fn root_port_restores_the_packet_sizes_of_its_queue() {
    let pair = Pair::new();
    let tc = |command: &str| run(&format!("tc -n {} {command}", pair.a));
    let sizes = || {
        let shown: serde_json::Value = serde_json::from_str(&tc("-j -d qdisc show dev p0")).unwrap();
        shown[0].clone()
    };
    let tbf = "tbf rate 10mbit burst 32kb limit 150kb";
    tc(&format!("qdisc add dev p0 root handle 7: stab overhead 24 linklayer ethernet {tbf}"));
    let before = sizes();
    assert!(before.to_string().contains("overhead"), "{before}");
    attach(&pair.a, RATED).unwrap_or_else(|e| panic!("{e}")).detach().unwrap();
    assert_eq!(sizes(), before);
    // A table of sizes cannot be read back.
    tc(&format!("qdisc replace dev p0 root handle 8: stab overhead 24 mpu 64 mtu 2048 tsize 128 {tbf}"));
    let before = sizes();
    let error = attach(&pair.a, RATED).err().expect("a refusal").to_string();
    assert!(error.contains("`stab`") && error.contains("tc qdisc del dev p0 root"), "{error}");
    assert_eq!(sizes(), before);
}

#[test]
fn root_port_with_an_ingress_queue_is_refused_with_cause_and_remedy() {
    let pair = Pair::new();
    run(&format!("tc -n {} qdisc add dev p0 ingress", pair.a));
    let before = queues(&pair.a);
    for text in [RATED, "vm = { name = 'vm0', rate = '100mbit', share = 'shared' }"] {
        let error = attach(&pair.a, text).err().expect("a refusal");
        assert!(matches!(error, PortError::Ingress { .. }), "{error}");
        assert!(error.to_string().contains("tc qdisc add dev p0 clsact"), "{error}");
    }
    assert_eq!(queues(&pair.a), before);
    assert_eq!(records(inode(&pair.a)), 0);
}

/// A port moves without its queues and programs.
fn move_to(pair: &Pair, to: &Namespace) {
    run(&format!("ip -n {} link set p0 netns {to}", pair.a));
    run(&format!("ip -n {to} link set p0 up"));
}

fn assert_nothing_left(pair: &Pair, moved: &Namespace) {
    for namespace in [&pair.a, moved] {
        namespace.within(|| {
            assert_eq!(attached().unwrap(), Vec::<String>::new(), "{namespace}");
            assert_eq!(unused_budgets().unwrap(), Vec::<String>::new(), "{namespace}");
        });
    }
    let shown = queues(moved);
    assert!(!shown.contains("c0de:") && !shown.contains("clsact"), "{shown}");
    assert_eq!((records(inode(&pair.a)), records(inode(moved))), (0, 0));
}

#[test]
fn root_port_moved_to_another_namespace_leaves_nothing() {
    let shared = "vm = { name = 'vm0', rate = '100mbit', share = 'shared' }";
    for (text, kept) in [(RATED, true), (RATED, false), (shared, true), (shared, false)] {
        let (pair, elsewhere) = (Pair::new(), Namespace::new("c"));
        let port = attach(&pair.a, text).unwrap_or_else(|e| panic!("{e}"));
        if kept {
            port.keep();
            move_to(&pair, &elsewhere);
            pair.a.within(|| assert!(matches!(peek("p0"), Err(PortError::NoSuchPort { .. }))));
            assert!(pair.a.within(forget_gone).unwrap().contains(&"p0".to_owned()), "{text}");
        } else {
            move_to(&pair, &elsewhere);
            let ended = port.detach();
            assert!(matches!(ended, Ok(_) | Err(PortError::Gone { .. })), "{text}: {ended:?}");
        }
        assert_nothing_left(&pair, &elsewhere);
        assert_eq!(elsewhere.within(|| settings("p0")).unwrap(), Serving::Nothing);
        attach(&elsewhere, text).unwrap_or_else(|e| panic!("{e}")).detach().unwrap();
    }
}

/// Back at its place it is known, and not served until somebody repairs it.
#[test]
fn root_port_moved_and_back_reports_missing_parts() {
    let (pair, elsewhere) = (Pair::new(), Namespace::new("c"));
    attach(&pair.a, RATED).unwrap_or_else(|e| panic!("{e}")).keep();
    move_to(&pair, &elsewhere);
    run(&format!("ip -n {elsewhere} link set p0 netns {}", pair.a));
    run(&format!("ip -n {} link set p0 up", pair.a));
    pair.a.within(|| {
        let seen = peek("p0").unwrap();
        assert!(seen.differences[0].contains("its program is gone"), "{seen:?}");
        let port = Port::repair("p0").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(port.stats().unwrap().differences, Vec::<String>::new());
        port.detach().unwrap();
    });
    assert_nothing_left(&pair, &pair.a);
}

#[test]
fn root_port_reports_the_chosen_rule() {
    let pair = Pair::new();
    let config: PortConfig = toml::from_str(RATED).unwrap();
    let port = Port::attach_in(&pair.netns(), "p0", &config).unwrap_or_else(|e| panic!("{e}"));
    let said = toml::to_string(&port.with_defaults(&config).unwrap()).unwrap();
    port.detach().unwrap();
    assert!(said.contains("rule = \"mq-ecn\"") && said.contains("queue = \"fifo\""), "{said}");
}
