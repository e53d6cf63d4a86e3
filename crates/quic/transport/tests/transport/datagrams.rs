//! Datagrams beside more of them than paths carry.

use crate::multipath::{connected, shaped};
use vmcc_transport::Config;
use vmcc_units::time::{Span, Time};

#[test]
fn ping_beside_a_datagram_flood_waits_less_than_100_ms() {
    let (mut net, client, server) = connected(&[shaped(10_000_000, 5); 2], &Config::default());
    let (begin, mut delays, mut bytes) = (net.now, Vec::new(), 0);
    for ms in 0..10_000 {
        let now = net.now;
        let connection = net.connection(0, client);
        // 40 Mbit/s, and a ping each 17 ms at any place among them.
        for i in 0..5 {
            connection.send_datagram(now, &[7; 1000]);
            if ms % 17 == 0 && i == ms / 17 % 5 {
                connection.send_datagram(now, &now.us().to_be_bytes());
            }
        }
        net.run_for(Span::from_ms(1));
        while let Some(datagram) = net.connection(1, server).read_datagram() {
            bytes += datagram.len() as u64;
            if let Ok(sent) = <[u8; 8]>::try_from(&datagram[..]) {
                delays.push(net.now.since(Time::ZERO + Span::from_us(u64::from_be_bytes(sent))));
            }
        }
    }
    delays.sort();
    let median = delays[delays.len() / 2];
    // 5 ms of the link, up to 50 ms of its queue.
    assert!(delays.len() > 150 && median < Span::from_ms(100), "{} pings, {median:?}", delays.len());
    let rate = bytes as f64 * 8.0 / net.now.since(begin).secs_f64();
    assert!(rate > 0.85 * 20e6, "{rate}");
    let dropped = net.connection(0, client).stats().datagrams_dropped;
    assert!(dropped > 10_000, "{dropped}");
}
