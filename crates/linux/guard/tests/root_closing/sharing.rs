//! Detection of shared bottlenecks on real subflows: of two through one queue one is closed, twins stay two.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vmcc_bpf::Loaded;
use vmcc_bpf::close_requests::{CloseRequest, CloseRequests};
use vmcc_cc::{Algorithm, Params};
use vmcc_guard::{Guard, GuardEvent, GuardState, Policy, RequestReaders};
use vmcc_port::Port;
use vmcc_system::diag::{Diag, Subflow};
use vmcc_testkit::netns::{Namespace, join, run};
use vmcc_testkit::paths::{Net, Over, Shape, alone, shape, transfer};

/// Slow, so that the queue and not a busy machine is what a round trip consists of: some 12 ms.
const SHAPE: Shape = Shape { rate_mbit: 20, buffer_kb: 300 };
const MARKING: &str = "marking = { rule = 'threshold', at = '30kB' }";

/// A client, a switch that forwards, and a server with two addresses: behind ports of the switch of their own, or behind
/// one. The queues are the switch's, as those of a host are for its VMs.
struct Switched {
    net: Net,
    switch: Namespace,
    ports: Vec<&'static str>,
}

impl Switched {
    fn new(ports: Vec<&'static str>) -> Self {
        let (client, server, switch) = (Namespace::new("c"), Namespace::new("s"), Namespace::new("m"));
        join(&client, &switch, "v0", "10.76.0");
        run(&format!("ip -n {client} route add default via 10.76.0.2"));
        switch.sysctl("ipv4/ip_forward", "1");
        for (path, port) in ports.iter().enumerate() {
            join(&switch, &server, port, &format!("10.77.{path}"));
            shape(&switch, port, SHAPE);
        }
        run(&format!("ip -n {server} route add default via 10.77.0.1"));
        if ports.len() == 1 {
            run(&format!("ip -n {server} address add 10.77.1.2/24 dev p0"));
            run(&format!("ip -n {switch} route add 10.77.1.0/24 dev p0"));
        }
        let last = ports[ports.len() - 1];
        run(&format!("ip -n {server} mptcp endpoint add 10.77.1.2 dev {last} signal"));
        for ns in [&client, &server] {
            run(&format!("ip -n {ns} mptcp limits set subflow 8 add_addr_accepted 8"));
            ns.sysctl("mptcp/enabled", "1");
        }
        Self { net: Net { client, server, paths: 0 }, switch, ports }
    }
}

fn guard(loaded: &Loaded) -> Guard {
    Guard::new(RequestReaders::open([loaded]).unwrap(), Policy::default(), GuardState::default())
}

/// Waits for requests and follows them; returns those that closed a path.
fn close_requested(guard: &mut Guard) -> Vec<CloseRequest> {
    let mut closed = Vec::new();
    guard.receive(Duration::from_millis(200), &mut |read| drop(read.unwrap()));
    guard.act(&mut |done| match done.unwrap() {
        GuardEvent::Closed(request) => closed.push(request),
        GuardEvent::Action(action) => panic!("{action}"),
    });
    closed
}

/// A guarded transfer, until a path is closed or the time is over; what was closed, and what is left.
fn guarded(on: &Switched, port: u16, at_most: Duration) -> (Vec<CloseRequest>, Vec<Subflow>) {
    let net = &on.net;
    let vmcc = Algorithm::by_name("vmcc").unwrap();
    let loaded = Loaded::load(vmcc, &Params::defaults(vmcc)).unwrap_or_else(|e| panic!("{e}"));
    net.select(loaded.kernel_name());
    let marking = toml::from_str(MARKING).unwrap();
    let _ports: Vec<Port> =
        on.ports.iter().map(|name| Port::attach_in(&on.switch.file(), name, &marking).unwrap()).collect();
    let mut guard = guard(&loaded);
    let over = AtomicBool::new(false);
    let end = Instant::now() + at_most;
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut left = Vec::new();
            transfer(net, Over::Mptcp, port, |_| {
                let over = over.load(Ordering::SeqCst);
                if over {
                    let all = Diag::open().unwrap().subflows().unwrap();
                    left = all.into_iter().filter(|s| s.remote.port() == port && s.established).collect();
                }
                over
            });
            left
        });
        let mut closed = Vec::new();
        while closed.is_empty() && Instant::now() < end {
            closed = close_requested(&mut guard);
        }
        over.store(true, Ordering::SeqCst);
        (closed, traffic.join().unwrap())
    })
}

#[test]
fn root_twins_are_left_alone() {
    let _alone = alone();
    let on = Switched::new(vec!["p0", "p1"]);
    let (closed, left) = guarded(&on, 5322, Duration::from_secs(20));
    assert_eq!((closed.len(), left.len()), (0, 2), "{closed:?} {left:?}");
    assert!(left.iter().all(|s| s.bytes_acked > 10_000_000), "both carried: {left:?}");
}

#[test]
fn root_one_of_two_paths_through_one_queue_is_closed() {
    let _alone = alone();
    let on = Switched::new(vec!["p0"]);
    let (closed, left) = guarded(&on, 5323, Duration::from_secs(60));
    assert_eq!((closed.len(), left.len()), (1, 1), "{closed:?} {left:?}");
}

#[test]
fn root_parameters_take_effect_at_once_and_the_guard_closes_the_path() {
    let _alone = alone();
    let vmcc = Algorithm::by_name("vmcc").unwrap();
    let mut params = Params::defaults(vmcc);
    params.set("trigger", 0.0).unwrap();
    let loaded = Loaded::load(vmcc, &params).unwrap_or_else(|e| panic!("{e}"));
    let net = Net::new(2, Some(Shape { rate_mbit: 30, buffer_kb: 150 }));
    net.select(loaded.kernel_name());
    let marking = toml::from_str("marking = { rule = 'threshold', at = '4kB' }").unwrap();
    let _ports: Vec<Port> =
        ["p0", "p1"].map(|port| Port::attach_in(&net.client.file(), port, &marking).unwrap()).into();
    let started = Instant::now();
    let end = Duration::from_secs(6);
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut left = Vec::new();
            transfer(&net, Over::Mptcp, 5301, |_| {
                if started.elapsed() > end {
                    let all = Diag::open().unwrap().subflows().unwrap();
                    left = all.into_iter().filter(|s| s.remote.port() == 5301 && s.established).collect();
                }
                started.elapsed() > end
            });
            left
        });
        let requests = CloseRequests::open(&loaded).unwrap().expect("vMCC requests to close paths");
        let before = requests.poll(Duration::from_millis(1500)).unwrap();
        assert_eq!(before, [], "detection is off");
        drop(requests);
        let mut guard = guard(&loaded);
        // Whatever the counts and round-trip times are, they are alike.
        for (name, value) in
            [("detector", 1.0), ("theta", 1000.0), ("phi", 1.0), ("trigger", 10.0), ("early", 86_400_000.0)]
        {
            params.set(name, value).unwrap();
        }
        loaded.set_params(&params).unwrap();
        let mut closed = Vec::new();
        while closed.is_empty() && started.elapsed() < end {
            closed = close_requested(&mut guard);
        }
        println!("closed {closed:?} after {:?}", started.elapsed());
        assert_eq!(closed.len(), 1, "{closed:?}");
        let left = traffic.join().unwrap();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_ne!(left[0].local, closed[0].local);
    });
}
