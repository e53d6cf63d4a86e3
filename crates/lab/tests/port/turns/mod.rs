//! Departures of a port's classes when the heaviest one suddenly has nothing more to send, packet by packet.
#![allow(dead_code, unreachable_pub, reason = "each program uses its part")]

mod departures;

use departures::{Capture, Departure};
use std::fmt;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;
use vmcc_port::Port;
use vmcc_testkit::netns::run;
use vmcc_testkit::port::{Pair, config};

pub const RATE_BPS: f64 = 100e6;
const WEIGHTS: [u32; 3] = [4, 2, 1];
const CONNECTIONS: usize = 2;
/// A packet more or less is 2 % of two round trips.
const FULL: f64 = 0.97;
const FIRST_PORT: u16 = 5801;
/// Slow start is over, and queues are as long as they stay.
const WARMUP: Duration = Duration::from_millis(500);
const AFTERWARDS: Duration = Duration::from_millis(120);

/// One end of the heaviest class.
#[derive(Debug)]
pub struct Stop {
    /// Median over the other classes' connections, before.
    pub rtt_ns: f64,
    /// Of the other classes, from the heaviest one's last packet on (time 0).
    pub after: Vec<Departure>,
}

/// Traffic of the other classes in a stretch of time.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// The second class's part of it; 2/3 is its weight's.
    pub second: f64,
    /// Of the port's rate.
    pub used: f64,
}

impl Stop {
    /// Departures in the `length_ns` from `from_ns` on.
    pub fn window(&self, from_ns: f64, length_ns: f64) -> Window {
        let inside = |d: &&Departure| (from_ns..from_ns + length_ns).contains(&(d.at_ns as f64));
        Window::of(self.after.iter().filter(inside), length_ns)
    }

    /// The first of what left, up to this many bytes.
    pub fn first_bytes(&self, bytes: f64) -> Window {
        let mut sum = 0.0;
        let inside = self.after.iter().take_while(|d| {
            sum += d.bytes as f64;
            sum <= bytes
        });
        Window::of(inside, f64::INFINITY)
    }

    /// From how many round trips on the two round trips that follow show shares within 5 % of 2:1 and a port that is
    /// full; infinite if none does.
    pub fn settled_rtts(&self) -> f64 {
        let settled = |tenth: &f64| {
            let Window { second, used } = self.window(tenth / 10.0 * self.rtt_ns, 2.0 * self.rtt_ns);
            let near = |share: f64, ideal: f64| (share / ideal - 1.0).abs() <= 0.05;
            near(second, 2.0 / 3.0) && near(1.0 - second, 1.0 / 3.0) && used >= FULL
        };
        (0..100).map(f64::from).find(settled).map_or(f64::INFINITY, |tenth| tenth / 10.0)
    }

    /// A round trip's bytes at the port's rate.
    pub fn rtt_bytes(&self) -> f64 {
        RATE_BPS / 8e9 * self.rtt_ns
    }
}

impl Window {
    fn of<'a>(packets: impl Iterator<Item = &'a Departure>, length_ns: f64) -> Self {
        let mut sent = [0.0; 2];
        for packet in packets {
            sent[usize::from(packet.port - FIRST_PORT - 1)] += packet.bytes as f64;
        }
        let all: f64 = sent.iter().sum();
        Self { second: sent[0] / all, used: all * 8e9 / (RATE_BPS * length_ns) }
    }
}

/// A port of three classes by TCP port with weights 4:2:1.
pub fn port(backend: &str, capped: bool) -> String {
    let class = |(port, weight): (u16, u32)| {
        let cap =
            if capped { format!("ceiling = '{}bit'\n", RATE_BPS as u32 / 7 * weight) } else { String::new() };
        format!("[[class]]\nname = 'c{port}'\nweight = {weight}\nfilter = [{{ to_port = {port} }}]\n{cap}")
    };
    let classes: String = (FIRST_PORT..).zip(WEIGHTS).map(class).collect();
    format!(
        "rate = '100mbit'\nqueue = 'drr'\nbackend = '{backend}'\n\
         marking = {{ rule = 'mq-ecn', rtt = '4ms', lambda = 1.0 }}\n{classes}"
    )
}

/// Ends the heaviest class this many times; `delay` is netem's on the way back.
pub fn stops(text: &str, delay: Option<&str>, repetitions: usize) -> Vec<Stop> {
    let pair = Pair::new();
    run(&format!("ip -n {} link set p0 gso_max_segs 1", pair.a));
    if let Some(delay) = delay {
        run(&format!("tc -n {} qdisc add dev p0 root netem delay {delay} limit 10000", pair.b));
    }
    let port = Port::attach_in(&pair.netns(), "p0", &config(text)).unwrap_or_else(|e| panic!("{e}"));
    let mut threads: Vec<_> = (1..3).flat_map(|class| connect(&pair, FIRST_PORT + class)).collect();
    let mut stops = Vec::new();
    for _ in 0..repetitions {
        threads.extend(connect(&pair, FIRST_PORT));
        thread::sleep(WARMUP);
        let capture = Capture::start(&pair.b);
        let rtt_ns = rtt_ns(&pair);
        end(&pair, FIRST_PORT);
        thread::sleep(AFTERWARDS);
        stops.push(stop(capture.stop(), rtt_ns));
    }
    (0..3).for_each(|class| end(&pair, FIRST_PORT + class));
    for thread in threads {
        thread.join().expect("a connection ends without a panic");
    }
    let stats = port.detach().unwrap_or_else(|e| panic!("{e}"));
    // A sender on the port's own host keeps its packets back at times before they fill the queue up to its threshold.
    let (marked, kept) =
        (stats.classes.iter().any(|c| c.marked > 0), stats.classes.iter().all(|c| c.drops_full == 0));
    assert!(marked && kept, "{stats:?}");
    stops
}

/// Connections that send as fast as they may until they are ended.
fn connect(pair: &Pair, port: u16) -> Vec<thread::JoinHandle<()>> {
    let listener = pair.b.within(|| TcpListener::bind(("10.78.0.2", port))).expect("a free port");
    let mut threads = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = pair.a.within(|| TcpStream::connect(("10.78.0.2", port))).expect("a connection");
        let (mut server, _) = listener.accept().expect("a connection");
        threads.push(thread::spawn(move || while client.write_all(&[0; 1 << 16]).is_ok() {}));
        threads.push(thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while matches!(server.read(&mut buffer), Ok(1..)) {}
        }));
    }
    threads
}

/// Takes the connections away with all that they had still to send; what waits at the port leaves.
fn end(pair: &Pair, port: u16) {
    pair.a.run(&format!("ss -K dport = :{port}"));
}

fn rtt_ns(pair: &Pair) -> f64 {
    let (second, third) = (FIRST_PORT + 1, FIRST_PORT + 2);
    let text = pair.a.run(&format!("ss -Htin state established ( dport = :{second} or dport = :{third} )"));
    let rtts =
        text.split_whitespace().filter_map(|word| word.strip_prefix("rtt:")?.split('/').next()?.parse().ok());
    median(rtts.collect()) * 1e6
}

fn stop(seen: Vec<Departure>, rtt_ns: f64) -> Stop {
    let last = seen.iter().rposition(|d| d.port == FIRST_PORT).expect("the heaviest class was there");
    let from = seen[last].at_ns;
    let after = seen[last + 1..].iter().map(|d| Departure { at_ns: d.at_ns.saturating_sub(from), ..*d });
    Stop { rtt_ns, after: after.collect() }
}

/// Median, least and most.
pub struct Spread(f64, f64, f64);

impl Spread {
    pub fn median(&self) -> f64 {
        self.0
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ({:.3} to {:.3})", self.0, self.1, self.2)
    }
}

/// Of at least one repetition.
pub fn spread(stops: &[Stop], value: impl Fn(&Stop) -> f64) -> Spread {
    let values: Vec<f64> = stops.iter().map(value).collect();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Spread(median(values), least, most)
}

/// Prints a line of the table in docs/evidence/marking.md.
pub fn show(name: &str, stops: &[Stop]) {
    let second = |number: f64| spread(stops, |s| s.window(number * 2.0 * s.rtt_ns, 2.0 * s.rtt_ns).second);
    let used = |number: f64| spread(stops, |s| s.window(number * 2.0 * s.rtt_ns, 2.0 * s.rtt_ns).used);
    let rtt_ms = spread(stops, |s| s.rtt_ns / 1e6);
    let settled = spread(stops, Stop::settled_rtts);
    let settled = if settled.median().is_finite() { settled.to_string() } else { "never".to_owned() };
    println!(
        "| {name} | {} | {rtt_ms} | {} | {} | {} | {} | {settled} |",
        stops.len(),
        second(0.0),
        second(1.0),
        used(0.0),
        used(1.0)
    );
}

/// Of at least one value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
