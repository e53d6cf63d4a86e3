//! Thresholds beside others: a class at its ceiling, a near host, an RTT that no buffer holds.

mod ports;

use ports::{Pair, Server, client, config};
use std::thread;
use std::time::Duration;
use vmcc_host::port::Port;
use vmcc_port::PortStats;

const RTT: Duration = Duration::from_millis(10);

fn attach(pair: &Pair, text: &str) -> Port {
    Port::attach_in(&pair.netns(), "p0", &config(text)).unwrap_or_else(|e| panic!("{e}"))
}

/// What one ECN Reno over 10 ms gets in four seconds while `meanwhile` runs, in Mbit/s.
fn far_flow(pair: &Pair, number: u16, meanwhile: impl FnOnce() + Send) -> f64 {
    let _server = Server::start(&pair.b, number);
    thread::scope(|scope| {
        scope.spawn(meanwhile);
        client(pair, number, "-t 4 -O 1") / 1e6
    })
}

/// A class of 5 Mbit/s that always has something waiting, and one flow beside it.
fn beside_a_full_class(queue: &str, rule: &str, first: u16) -> (f64, PortStats) {
    let pair = Pair::delayed(RTT);
    let port = attach(
        &pair,
        &format!(
            "rate = '50mbit'\nqueue = '{queue}'\nmarking = {{ rule = '{rule}', rtt = '10ms' }}\n\
             [[class]]\nname = 'full'\nceiling = '5mbit'\nmarking = {{ rule = 'none' }}\n\
             filter = [{{ to_port = {first} }}]\n[[class]]\nname = 'rest'\n"
        ),
    );
    let flood = || assert!(ports::iperf(&pair, first, "-u -b 10M -l 1448 -t 6") > 0.0);
    let rate = far_flow(&pair, first + 1, flood);
    (rate, port.detach().unwrap())
}

#[test]
fn root_port_a_class_at_its_ceiling_leaves_the_others_their_thresholds() {
    for (queue, rule, number) in [("drr", "mq-ecn", 5901), ("drr", "tcn", 5903), ("priority", "tcn", 5905)] {
        let (rate, stats) = beside_a_full_class(queue, rule, number);
        println!("{queue} {rule}: {rate:.1} Mbit/s, {:?}", stats.classes[1]);
        // 45 Mbit/s are left; a threshold for half of the port costs more than half of them.
        assert!(rate > 36.0, "{queue} {rule}: {rate}");
    }
}

#[test]
fn root_port_marks_before_the_buffer_is_full_whatever_the_rtt() {
    let pair = Pair::delayed(RTT);
    // C x RTT is 62 kB, the buffer 38 kB.
    let port = attach(&pair, "rate = '50mbit'\nbuffer = '25pkt'\nmarking = { rule = 'mq-ecn' }");
    let rate = far_flow(&pair, 5911, || ());
    let stats = port.detach().unwrap();
    let class = &stats.classes[0];
    println!("{rate:.1} Mbit/s, {class:?}");
    assert!(class.marked > 0 && class.threshold_bytes.is_some_and(|bytes| bytes < 25 * 1514), "{class:?}");
}
