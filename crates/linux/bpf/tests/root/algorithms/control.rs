//! Parameters at run time, several processes at once, what a killed process leaves, paths closed on request.
//! Needs root: without it these tests fail, they do not skip.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vmcc_bpf::close_requests::CloseRequests;
use vmcc_bpf::{ControlError, LoadError, Loaded, clean, list, set_params, take_down};
use vmcc_cc::{Algorithm, Params};
use vmcc_port::Port;
use vmcc_system::diag::Diag;
use vmcc_testkit::netns::Namespace;
use vmcc_testkit::paths::{Net, Over, Shape, alone, transfer};

const HOLD: &str = "VMCC_TEST_HOLD";

fn algorithm(name: &str) -> Algorithm {
    Algorithm::by_name(name).unwrap()
}

fn load(name: &str) -> Result<Loaded, LoadError> {
    Loaded::load(algorithm(name), &Params::defaults(algorithm(name)))
}

fn registered(kernel_name: &str) -> bool {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    text.split_whitespace().any(|name| name == kernel_name)
}

/// Unregistering ends when the kernel has closed a dead process's files, a moment after its death.
fn gone(kernel_name: &str) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    while registered(kernel_name) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    !registered(kernel_name)
}

/// Not a test of its own: a second process that holds an algorithm until it is killed.
#[test]
fn root_helper_holds_an_algorithm() {
    let Ok(name) = std::env::var(HOLD) else { return };
    let _loaded = load(&name).unwrap_or_else(|e| panic!("{e}"));
    println!("\nholding");
    std::thread::sleep(Duration::from_secs(60));
}

/// Another process that holds `name`.
struct Holder(Child);

impl Holder {
    fn start(name: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "root::algorithms::control::root_helper_holds_an_algorithm", "--nocapture"])
            .env(HOLD, name)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            lines.map_while(Result::ok).any(|line| line == "holding"),
            "the other process did not load {name}"
        );
        Self(child)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn root_second_process_shares_the_registration_or_gets_a_reason() {
    let _alone = alone();
    let holder = Holder::start("lia");
    match load("lia") {
        Ok(shared) => {
            assert!(shared.is_shared());
            holder.kill();
            assert!(registered("mp_lia"), "it lasts until the last user is gone");
            drop(shared);
        }
        // Before Linux 6.4 a registration belongs to one process.
        Err(error @ LoadError::AlreadyRegistered { .. }) => {
            assert!(error.to_string().contains("process"), "{error}");
            holder.kill();
            assert_eq!(clean().unwrap(), ["mp_lia"]);
        }
        Err(other) => panic!("{other}"),
    }
    assert!(gone("mp_lia"));
}

#[test]
fn root_clean_removes_leftovers_of_a_killed_process() {
    let _alone = alone();
    Holder::start("reno").kill();
    clean().unwrap();
    assert!(gone("mp_reno"));
    assert_eq!(list().unwrap(), []);
    drop(load("reno").unwrap());
}

#[test]
fn root_other_parameters_are_refused_while_another_process_runs() {
    let _alone = alone();
    let holder = Holder::start("ewtcp");
    let mut params = Params::defaults(algorithm("ewtcp"));
    params.set("weight", 0.5).unwrap();
    let refused = Loaded::load(algorithm("ewtcp"), &params).err().expect("refused");
    assert!(
        matches!(refused, LoadError::OtherParameters { .. } | LoadError::AlreadyRegistered { .. }),
        "{refused}"
    );
    holder.kill();
    clean().unwrap();
    assert!(gone("mp_ewtcp"));
}

#[test]
fn root_persistent_algorithms_are_listed_reconfigured_and_removed() {
    let _alone = alone();
    load("vmcc").unwrap().keep().unwrap();
    assert!(registered("mp_vmcc"));
    let all = list().unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].kernel_name == "mp_vmcc" && all[0].owner_pid.is_none() && all[0].same_build);
    let mut params = Params::defaults(algorithm("vmcc"));
    params.set("theta", 5.0).unwrap();
    set_params(&params).unwrap();
    let refused = load("vmcc").err().expect("it runs with other parameters").to_string();
    assert!(refused.contains("`vmcc up`") && refused.contains("`vmcc down`"), "{refused}");
    assert!(params.set("theta", 5000.0).unwrap_err().to_string().contains("1000"), "the range is named");
    assert!(clean().unwrap().is_empty(), "what is kept on purpose is no leftover");
    assert_eq!(take_down().unwrap(), ["mp_vmcc"]);
    assert!(gone("mp_vmcc"));
    assert!(matches!(set_params(&params), Err(ControlError::NotLoaded { .. })));
}

#[test]
fn root_parameters_of_another_algorithm_are_refused() {
    let _alone = alone();
    let loaded = load("reno").unwrap();
    let wrong = loaded.set_params(&Params::defaults(algorithm("vmcc")));
    assert!(matches!(wrong, Err(ControlError::WrongAlgorithm { .. })), "{wrong:?}");
}

#[test]
fn root_requests_before_a_reader_began_are_dropped() {
    let _alone = alone();
    let vmcc = algorithm("vmcc");
    let mut params = Params::defaults(vmcc);
    for (name, value) in
        [("detector", 1.0), ("theta", 1000.0), ("phi", 1.0), ("trigger", 10.0), ("early", 86_400_000.0)]
    {
        params.set(name, value).unwrap();
    }
    let loaded = Loaded::load(vmcc, &params).unwrap_or_else(|e| panic!("{e}"));
    let net = Net::new(2, Some(Shape { rate_mbit: 30, buffer_kb: 150 }));
    net.select(loaded.kernel_name());
    let marking = toml::from_str("marking = { rule = 'threshold', at = '4kB' }").unwrap();
    let _ports: Vec<Port> =
        ["p0", "p1"].map(|port| Port::attach_in(&net.client.file(), port, &marking).unwrap()).into();
    let deadline = Instant::now() + Duration::from_secs(20);
    let (mut ignored, mut read, mut left) = (0, Vec::new(), 0);
    transfer(&net, Over::Mptcp, 5302, |_| {
        // Each new reader takes what is waiting; a path requests once.
        let requests = CloseRequests::open(&loaded).unwrap().expect("vMCC requests to close paths");
        ignored += requests.ignored();
        if ignored == 0 {
            return Instant::now() > deadline;
        }
        read = requests.poll(Duration::from_millis(500)).unwrap();
        let all = Diag::open().unwrap().subflows().unwrap();
        left = all.iter().filter(|s| s.remote.port() == 5302 && s.established).count();
        true
    });
    assert_ne!(ignored, 0, "no path asked to be closed within the test's time");
    assert_eq!((read, left), (Vec::new(), 2), "nobody is closed for an earlier request");
}

/// Linux's rule for its own DCTCP: the flag decides who may choose it, and whether another namespace may have it.
#[test]
fn root_restricted_algorithm_is_refused_as_default() {
    let _alone = alone();
    let _loaded = load("reno").unwrap();
    let select = || {
        let namespace = Namespace::new("r");
        namespace.within(|| std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "mp_reno"))
    };
    select().expect("anybody may, unless the operator says otherwise");
    vmcc_bpf::restrict(&["mp_reno"]).unwrap();
    let refused = select().expect_err("restricted").kind();
    assert_eq!(refused, std::io::ErrorKind::PermissionDenied);
    assert!(registered("mp_reno"));
}
