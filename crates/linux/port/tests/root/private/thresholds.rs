//! Thresholds beside others: a class at its ceiling, a near host, an RTT that no buffer holds.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;
use vmcc_port::Port;
use vmcc_port::PortStats;
use vmcc_testkit::control::tbf_share;
use vmcc_testkit::judge;
use vmcc_testkit::netns::{Namespace, Server, join, run};
use vmcc_testkit::port::{Pair, client, config, iperf};

const RTT: Duration = Duration::from_millis(10);

/// Share of 50 Mbit/s that plain TCP fills now over the same round trip.
fn control() -> f64 {
    tbf_share(50, RTT, 1)
}

fn attach(pair: &Pair, text: &str) -> Port {
    Port::attach_in(&pair.netns(), "p0", &config(text)).unwrap_or_else(|e| panic!("{e}"))
}

/// Throughput of one ECN Reno flow over 10 ms in four seconds while `meanwhile` runs, in Mbit/s.
fn far_flow(pair: &Pair, number: u16, meanwhile: impl FnOnce() + Send) -> f64 {
    let _server = Server::start(&pair.b, number);
    thread::scope(|scope| {
        scope.spawn(meanwhile);
        client(pair, number, "-t 4 -O 1") / 1e6
    })
}

/// A class of 5 Mbit/s that always has something waiting, and one ECN Reno beside it: what that gets, in Mbit/s, and its
/// threshold meanwhile. By turns four of five would be the full class's.
fn beside_a_full_class(queue: &str, rule: &str, first: u16) -> (f64, u64) {
    let pair = Pair::delayed(RTT);
    let port = attach(
        &pair,
        &format!(
            "rate = '50mbit'\nqueue = '{queue}'\nmarking = {{ rule = '{rule}', rtt = '10ms' }}\n\
             [[class]]\nname = 'full'\nweight = 4\nceiling = '5mbit'\nmarking = {{ rule = 'none' }}\n\
             filter = [{{ protocol = 17, to_port = {first} }}]\n[[class]]\nname = 'rest'\n"
        ),
    );
    let neighbour = tenant(&pair);
    let _servers = [first, first + 1].map(|number| Server::start(&pair.b, number));
    let found = thread::scope(|scope| {
        scope.spawn(|| neighbour.iperf(&format!("-c 10.78.0.2 -p {first} -u -b 10M -l 1400 -t 6")));
        let flow = scope.spawn(|| client(&pair, first + 1, "-t 4 -O 1") / 1e6);
        thread::sleep(Duration::from_secs(3));
        let class = port.stats().unwrap().classes.remove(1);
        println!("{queue} {rule}: {class:?}");
        (flow.join().unwrap(), class.threshold_bytes.expect("a threshold"))
    });
    port.detach().unwrap();
    found
}

#[test]
fn root_port_class_at_its_ceiling_does_not_shrink_other_thresholds() {
    for (queue, rule, number) in [("drr", "mq-ecn", 5901), ("drr", "tcn", 5903), ("priority", "tcn", 5905)] {
        let verdict = |(rate, threshold): &(f64, u64)| {
            println!("{queue} {rule}: {rate:.1} Mbit/s, {threshold} bytes");
            // 45 Mbit/s are left, for 10 ms 56 kB: not the 13 kB of one turn in five, nor nothing behind who comes first.
            assert!(*threshold > 50_000, "{queue} {rule}: {threshold}");
            assert!(*rate > 36.0, "{queue} {rule}: {rate}");
        };
        judge(|| beside_a_full_class(queue, rule, number), verdict, |_| control());
    }
}

#[test]
fn root_port_marks_before_the_buffer_is_full_at_any_rtt() {
    let pair = Pair::delayed(RTT);
    // C x RTT is 62 kB, the buffer 38 kB.
    let port = attach(&pair, "rate = '50mbit'\nbuffer = '25pkt'\nmarking = { rule = 'mq-ecn' }");
    let rate = far_flow(&pair, 5911, || ());
    let stats = port.detach().unwrap();
    let class = &stats.classes[0];
    println!("{rate:.1} Mbit/s, {class:?}");
    assert!(class.marked > 0 && class.threshold_bytes.is_some_and(|bytes| bytes < 25 * 1514), "{class:?}");
}

/// A small exchange with a host next door, twice a second for five seconds.
fn near_exchanges(pair: &Pair) {
    let listener = pair.b.within(|| TcpListener::bind("[fd78::2]:5922")).expect("a free port");
    thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let mut question = [0; 64];
            while client.read_exact(&mut question).and_then(|()| client.write_all(&question)).is_ok() {
                if question[0] == 0 {
                    return;
                }
            }
        }
    });
    let mut client = pair.a.within(|| TcpStream::connect("[fd78::2]:5922")).expect("a connection");
    for last in [1_u8; 10].into_iter().chain([0]) {
        let mut answer = [0; 64];
        client.write_all(&[last; 64]).and_then(|()| client.read_exact(&mut answer)).expect("an answer");
        thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn root_port_near_host_does_not_shrink_the_threshold_of_others() {
    let measure = || {
        let pair = Pair::delayed(RTT);
        let port = attach(&pair, "rate = '50mbit'\nmarking = { rule = 'mq-ecn' }");
        let rate = far_flow(&pair, 5921, || near_exchanges(&pair));
        (rate, port.detach().unwrap())
    };
    let verdict = |(rate, stats): &(f64, PortStats)| {
        println!("{rate:.1} Mbit/s, {stats:?}");
        // With the near host's RTT half of the rate at most.
        assert!(*rate > 38.0, "{rate}");
        assert!(stats.rtt_ns.is_some_and(|ns| ns > 8_000_000), "{stats:?}");
    };
    judge(measure, verdict, |_| control());
}

/// A sender behind the port's host: one on it keeps its packets back itself when they wait at the port.
fn tenant(pair: &Pair) -> Namespace {
    let tenant = Namespace::new("c");
    join(&tenant, &pair.a, "u0", "10.79.0");
    tenant.within(|| vmcc_netlink::disable_segmentation_offload("u0").unwrap());
    tenant.sysctl("ipv4/tcp_ecn", "1");
    pair.a.sysctl("ipv4/ip_forward", "1");
    run(&format!("ip -n {tenant} route add default via 10.79.0.2"));
    run(&format!("ip -n {} route add 10.79.0.0/24 via 10.78.0.1", pair.b));
    tenant
}

/// Throughputs of ECN Reno and of CUBIC without ECN beside each other, in Mbit/s.
fn with_and_without_ecn(settings: &str, first: u16) -> ([f64; 2], PortStats) {
    let pair = Pair::delayed(RTT);
    let text = format!("rate = '50mbit'\nmarking = {{ rule = 'mq-ecn', rtt = '10ms' }}\n{settings}");
    let port = attach(&pair, &text);
    let sender = tenant(&pair);
    let _servers = [first, first + 1].map(|number| Server::start(&pair.b, number));
    let send = |number, options| sender.iperf(&format!("-c 10.78.0.2 -p {number} {options}"));
    let rates = thread::scope(|scope| {
        let with = scope.spawn(|| send(first, "-t 6 -O 2 -C reno"));
        thread::sleep(Duration::from_millis(500));
        // Connections say whether they have ECN when they begin.
        sender.sysctl("ipv4/tcp_ecn", "0");
        let without = send(first + 1, "-t 5 -O 1 -C cubic");
        [with.join().unwrap(), without].map(|bits| bits / 1e6)
    });
    println!("{settings}: {rates:.1?} Mbit/s, {:?}", port.stats().unwrap().classes);
    (rates, port.detach().unwrap())
}

#[test]
fn root_port_ecn_is_no_disadvantage() {
    type Measured = ([f64; 2], PortStats);
    let judged = |settings: &str, first, verdict: &dyn Fn(&Measured)| {
        judge(|| with_and_without_ecn(settings, first), verdict, |_| control());
    };
    judged("", 5931, &|([with, _], stats)| {
        assert!(*with > 6.0 && stats.classes[0].drops_not_ect > 0, "{with} {stats:?}");
    });
    let apart = "queue = 'drr'\n[[class]]\nname = 'ecn'\necn = 'ect'\n[[class]]\nname = 'rest'";
    judged(apart, 5933, &|([with, without], stats)| {
        assert!(*with > 16.0 && *without > 16.0, "{with} {without} {stats:?}");
    });
    // What it was before there was a choice.
    judged("not_ect = 'queue'\noverload = 1.0", 5935, &|([with, _], stats)| {
        assert!(*with < 6.0 && stats.classes[0].drops_not_ect == 0, "{with} {stats:?}");
    });
}

#[test]
fn root_port_unresponsive_flood_is_dropped_before_the_buffer_is_full() {
    let pair = Pair::delayed(RTT);
    let settings = |more: &str| {
        format!("rate = '50mbit'\nbuffer = '400kB'\nmarking = {{ rule = 'mq-ecn', rtt = '10ms' }}\n{more}")
    };
    // TOS 2 is ECT(0).
    // Of several sockets: each may have only so much in the queue.
    let flood = |number| iperf(&pair, number, "-u -P 8 -b 9M -l 1448 -t 3 -S 2");
    let port = attach(&pair, &settings(""));
    flood(5941);
    let class = port.detach().unwrap().classes.remove(0);
    println!("{class:?}");
    assert!(class.drops_overload > 100 && class.drops_full == 0, "{class:?}");
    let port = attach(&pair, &settings("overload = 1.0\nnot_ect = 'queue'"));
    flood(5942);
    let class = port.detach().unwrap().classes.remove(0);
    println!("{class:?}");
    assert!(class.drops_overload == 0 && class.drops_full > 100, "{class:?}");
}

/// Throughputs of one ECN Reno flow and of an unresponsive ECN-capable flood of 60 Mbit/s beside it, in Mbit/s.
fn beside_a_flood(settings: &str, first: u16) -> ([f64; 2], PortStats) {
    let pair = Pair::delayed(RTT);
    let text = format!("rate = '50mbit'\nmarking = {{ rule = 'mq-ecn', rtt = '10ms' }}\n{settings}");
    let port = attach(&pair, &text);
    let sender = tenant(&pair);
    let _servers = [first, first + 1].map(|number| Server::start(&pair.b, number));
    let send = |number, options| sender.iperf(&format!("-c 10.78.0.2 -p {number} {options}")) / 1e6;
    let rates = thread::scope(|scope| {
        let flow = scope.spawn(|| send(first, "-t 4 -O 2 -C reno"));
        thread::sleep(Duration::from_millis(500));
        // TOS 2 is ECT(0). Longer than the other: that is measured beside it to the end.
        let flood = send(first + 1, "-u -P 4 -b 15M -l 1448 -t 7 -S 2");
        [flow.join().unwrap(), flood]
    });
    println!("{settings}: {rates:.2?} Mbit/s, {:?}", port.stats().unwrap().classes);
    (rates, port.detach().unwrap())
}

/// In one queue a flood of several flows keeps most of the rate, though not all; a class of its own keeps it from others.
#[test]
fn root_port_flood_in_its_own_class_does_not_harm_others() {
    type Measured = ([f64; 2], PortStats);
    let judged = |settings: &str, first, verdict: &dyn Fn(&Measured)| {
        judge(|| beside_a_flood(settings, first), verdict, |_| control());
    };
    judged("", 5951, &|([flow, flood], stats)| {
        let overload = stats.classes[0].drops_overload;
        assert!(*flow > 3.0 && *flood > 30.0 && overload > 100, "{flow} {flood} {stats:?}");
    });
    let class = |ceiling: &str| {
        format!(
            "queue = 'drr'\n[[class]]\nname = 'flood'\nfilter = [{{ protocol = 17 }}]\n{ceiling}\n[[class]]\nname = 'rest'"
        )
    };
    judged(&class(""), 5953, &|([flow, flood], stats)| {
        assert!(*flow > 12.0 && *flood < 38.0, "{flow} {flood} {stats:?}");
    });
    judged(&class("ceiling = '10mbit'"), 5955, &|([flow, flood], stats)| {
        assert!(*flow > 24.0 && *flood < 10.5, "{flow} {flood} {stats:?}");
    });
}
