//! Classes that are removed while packets wait in them: every datagram arrives, or the answer says how many did not.

use crate::wire::Pair;
use serde_json::Value;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const TO: &str = "10.79.0.2:5662";
const DATAGRAMS: u64 = 400;
const PAYLOAD: usize = 1000;
/// DSCPs 46 and 8 as the TOS byte.
const GOLD: i32 = 46 << 2;
const LAST: i32 = 8 << 2;

fn receiver(pair: &Pair) -> UdpSocket {
    let socket = pair.b.within(|| UdpSocket::bind(TO).unwrap());
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &(64 << 20)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

fn sender(pair: &Pair, tos: i32) -> UdpSocket {
    let socket = pair.a.within(|| UdpSocket::bind("10.79.0.1:0").unwrap());
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::SndBuf, &(8 << 20)).unwrap();
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::Ipv4Tos, &tos).unwrap();
    socket
}

/// Sends the datagrams at once; they wait at the port.
fn fill(pair: &Pair) {
    let socket = sender(pair, LAST);
    for _ in 0..DATAGRAMS {
        socket.send_to(&[1; PAYLOAD], TO).unwrap();
    }
}

/// Number of [`fill`]'s datagrams that arrive, until none has for a while.
fn arrived(receiver: &UdpSocket) -> u64 {
    let mut bytes = [0; PAYLOAD];
    let mut count = 0;
    while receiver.recv(&mut bytes).is_ok() {
        count += u64::from(bytes[0]);
    }
    count
}

fn total(stats: &Value, key: &str) -> u64 {
    let classes = stats["classes"].as_array().unwrap().iter().chain(Some(&stats["removed"]));
    classes.map(|class| class[key].as_u64().unwrap_or(0)).sum()
}

#[test]
fn root_mark_removing_a_class_with_a_low_ceiling_loses_nothing() {
    let pair = Pair::new();
    let receiver = receiver(&pair);
    let three = ["mark", "p0", "--rate", "20mbit", "--classes", "a:dscp=46,b,c:1:dscp=8:ceiling=500kbit"];
    // The last class takes what nobody asks for, and the one that goes is the last place.
    assert_eq!(pair.json(&three).0, 0);
    fill(&pair);
    let before = pair.json(&["mark", "p0", "--stats"]).1;
    let (code, said) = pair.json(&["mark", "p0", "--rate", "20mbit", "--classes", "a:dscp=46,b"]);
    assert_eq!((code, &said["dropped_packets"]), (0, &0.into()), "{said}");
    assert_eq!(arrived(&receiver), DATAGRAMS);
    let after = pair.json(&["mark", "p0", "--stats"]).1;
    assert!(total(&after, "packets") >= total(&before, "packets"), "{before} {after}");
    assert!(after["removed"]["packets"].as_u64() >= Some(DATAGRAMS), "{after}");
    assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_removing_a_class_behind_a_busy_one_loses_nothing() {
    let pair = Pair::new();
    let receiver = receiver(&pair);
    let order =
        ["mark", "p0", "--rate", "20mbit", "--queue", "priority", "--classes", "a:dscp=46,b:1:dscp=8"];
    assert_eq!(pair.json(&order).0, 0);
    let ended = AtomicBool::new(false);
    let count = thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let socket = sender(&pair, GOLD);
            while !ended.load(Ordering::Relaxed) {
                // Zeros, which are not counted: twice of what the port may send.
                for _ in 0..10 {
                    let _ = socket.send_to(&[0; PAYLOAD], TO);
                }
                thread::sleep(Duration::from_millis(2));
            }
        });
        thread::sleep(Duration::from_millis(200));
        fill(&pair);
        let (code, said) = pair.json(&["mark", "p0", "--rate", "20mbit"]);
        ended.store(true, Ordering::Relaxed);
        flood.join().unwrap();
        assert_eq!((code, &said["dropped_packets"]), (0, &0.into()), "{said}");
        arrived(&receiver)
    });
    assert_eq!(count, DATAGRAMS);
    assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
    pair.assert_nothing_left();
}

#[test]
fn root_mark_removing_an_undrained_class_reports_the_loss() {
    let pair = Pair::new();
    let receiver = receiver(&pair);
    assert_eq!(pair.json(&["mark", "p0", "--rate", "50kbit", "--classes", "a:dscp=46,b,c:1:dscp=8"]).0, 0);
    fill(&pair);
    let (code, said) = pair.json(&["mark", "p0", "--rate", "50kbit", "--classes", "a:dscp=46,b"]);
    let dropped = said["dropped_packets"].as_u64().unwrap();
    assert_eq!(code, 1, "{said}");
    let arrived = arrived(&receiver);
    // None goes unsaid; some may leave between the last look and the removal.
    assert!((DATAGRAMS..DATAGRAMS + 20).contains(&(arrived + dropped)), "{arrived} and {dropped}");
    let after = pair.json(&["mark", "p0", "--stats"]).1;
    assert_eq!(after["removed"]["drops_other"], dropped, "{after}");
    let again = pair.json(&["mark", "p0", "--rate", "1mbit", "--classes", "a:dscp=46,b,c:1:dscp=8"]).1;
    assert_eq!(again["stats"]["classes"][2]["drops_other"], dropped, "it goes on counting: {again}");
    assert_eq!(pair.json(&["unmark", "p0"]).0, 0);
    pair.assert_nothing_left();
}
