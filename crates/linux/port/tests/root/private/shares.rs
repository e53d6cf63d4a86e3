//! Service queues of a port: shares by weight, thresholds that follow who is there, strict order, virtual queues.

use std::thread;
use std::time::{Duration, Instant};
use vmcc_port::Port;
use vmcc_port::PortStats;
use vmcc_testkit::control::tbf_share;
use vmcc_testkit::judge;
use vmcc_testkit::netns::Server;
use vmcc_testkit::port::{Pair, client, config};

/// Classes by TCP port, with their weights; the rest of the port's configuration in front.
fn classes(rest: &str, classes: &[(u16, u32)]) -> String {
    let class = |(port, weight): &(u16, u32)| {
        format!("[[class]]\nname = 'c{port}'\nweight = {weight}\nfilter = [{{ to_port = {port} }}]\n")
    };
    format!("{rest}\n{}", classes.iter().map(class).collect::<String>())
}

fn attach(pair: &Pair, text: &str) -> Port {
    Port::attach_in(&pair.netns(), "p0", &config(text)).unwrap_or_else(|e| panic!("{e}"))
}

/// A transfer to each TCP port for its time (seconds), and what `watch` sees meanwhile.
fn with_traffic<T>(pair: &Pair, transfers: &[(u16, &str)], watch: impl FnOnce() -> T) -> T {
    let _servers: Vec<Server> = transfers.iter().map(|(port, _)| Server::start(&pair.b, *port)).collect();
    thread::scope(|scope| {
        for (port, options) in transfers {
            scope.spawn(move || client(pair, *port, options));
        }
        watch()
    })
}

/// Each class's part of what all sent between two looks, in percent.
fn shares(before: &PortStats, after: &PortStats) -> Vec<f64> {
    let sent = |stats: &PortStats, class: usize| {
        let class = &stats.classes[class];
        // Datagrams carry no offload: dropped ones were of full size, like the others.
        class.bytes - class.backlog_bytes - class.drops_full * class.bytes / class.packets.max(1)
    };
    let each: Vec<f64> =
        (0..before.classes.len()).map(|class| (sent(after, class) - sent(before, class)) as f64).collect();
    let all: f64 = each.iter().sum();
    each.iter().map(|bytes| 100.0 * bytes / all).collect()
}

fn look(port: &Port, seconds: f64) -> (PortStats, PortStats) {
    let before = port.stats().unwrap();
    thread::sleep(Duration::from_secs_f64(seconds));
    (before, port.stats().unwrap())
}

#[track_caller]
fn assert_near(found: &[f64], ideal: &[f64], within: f64) {
    let near = |(found, ideal): (&f64, &f64)| (found / ideal - 1.0).abs() <= within;
    assert!(found.iter().zip(ideal).all(near), "{found:.1?} instead of {ideal:.1?}");
}

/// Medians of the thresholds of every class over some looks: a queue that is empty for a moment, on a busy machine,
/// leaves the others more.
fn thresholds(port: &Port) -> Vec<f64> {
    let looks: Vec<PortStats> = (0..15)
        .map(|_| {
            thread::sleep(Duration::from_millis(30));
            port.stats().unwrap()
        })
        .collect();
    let median = |class: usize| {
        let mut seen: Vec<u64> =
            looks.iter().map(|stats| stats.classes[class].threshold_bytes.unwrap_or(0)).collect();
        seen.sort_unstable();
        seen[seen.len() / 2] as f64
    };
    (0..looks[0].classes.len()).map(median).collect()
}

const RATE_70: &str = "rate = '70mbit'\nqueue = 'drr'\nbackend = 'htb'\n";

/// Share of 70 Mbit/s that plain TCP fills now by as many connections.
fn control() -> f64 {
    tbf_share(70, Duration::ZERO, 8)
}

/// Counters around a stretch of time.
type Look = (PortStats, PortStats);

/// Datagrams that fill the queues: shares are the scheduler's alone.
#[test]
fn root_port_shares_by_weight_and_lends_unused_rate() {
    let verdict = |(all, two, stats): &(Look, Look, PortStats)| {
        let waiting = |stats: &PortStats| stats.classes.iter().map(|c| c.backlog_packets).collect::<Vec<_>>();
        println!("{:.2?} {:?}", shares(&all.0, &all.1), waiting(&all.1));
        println!("{:.2?} {:?}", shares(&two.0, &two.1), waiting(&two.1));
        assert!(stats.classes.iter().all(|class| class.marked == 0), "{stats:?}");
        assert_near(&shares(&all.0, &all.1), &[400.0 / 7.0, 200.0 / 7.0, 100.0 / 7.0], 0.02);
        assert_near(&shares(&two.0, &two.1)[1..], &[200.0 / 3.0, 100.0 / 3.0], 0.02);
    };
    judge(floods_of_three_classes, verdict, |_| control());
}

/// All three classes, two of them, and the port's counters at the end.
fn floods_of_three_classes() -> (Look, Look, PortStats) {
    let pair = Pair::new();
    let port = attach(&pair, &classes(RATE_70, &[(5751, 4), (5752, 2), (5753, 1)]));
    let flood = |seconds: u32| format!("-u -b 80M -l 1448 -t {seconds}");
    let (short, long) = (flood(4), flood(9));
    let transfers = [(5751, short.as_str()), (5752, long.as_str()), (5753, long.as_str())];
    let (all, two) = with_traffic(&pair, &transfers, || {
        thread::sleep(Duration::from_secs(1));
        let all = look(&port, 2.0);
        // Its queue of 1000 packets takes its time to empty.
        thread::sleep(Duration::from_millis(2500));
        (all, look(&port, 2.0))
    });
    (all, two, port.detach().unwrap())
}

/// TCP that listens to marks.
fn weights(rule: &str, first: u16) {
    let verdict = |(three, two, stats): &(Vec<f64>, Vec<f64>, PortStats)| {
        println!("{rule}: {three:.0?}, without the first {two:.0?}\n{stats:?}");
        assert!(stats.classes.iter().all(|class| class.marked > 0 && class.drops_full == 0), "{stats:?}");
        assert_near(three, &[40_000.0, 20_000.0, 10_000.0], 0.1);
        assert_near(&two[1..], &[46_667.0, 23_333.0], 0.1);
    };
    judge(|| thresholds_of_three_and_two(rule, first), verdict, |_| control());
}

fn thresholds_of_three_and_two(rule: &str, first: u16) -> (Vec<f64>, Vec<f64>, PortStats) {
    let pair = Pair::new();
    // C x RTT = 70,000 bytes.
    let marking = format!("marking = {{ rule = '{rule}', rtt = '8ms', lambda = 1.0 }}");
    let text = classes(&format!("{RATE_70}{marking}"), &[(first, 4), (first + 1, 2), (first + 2, 1)]);
    let port = attach(&pair, &text);
    let transfers = [(first, "-t 4 -P 4"), (first + 1, "-t 7 -P 4"), (first + 2, "-t 7 -P 4")];
    let (three, two) = with_traffic(&pair, &transfers, || {
        thread::sleep(Duration::from_secs(2));
        let three = thresholds(&port);
        thread::sleep(Duration::from_millis(2500));
        (three, thresholds(&port))
    });
    (three, two, port.detach().unwrap())
}

#[test]
fn root_port_thresholds_follow_active_classes_by_rounds() {
    weights("mq-ecn", 5701);
}

#[test]
fn root_port_thresholds_follow_active_classes_by_sojourn() {
    weights("tcn", 5711);
}

#[test]
fn root_port_strict_priority_marks_the_second_by_the_remaining_rate() {
    let verdict = |(both, alone): &(Look, Look)| {
        let [busy, free] = [shares(&both.0, &both.1), shares(&alone.0, &alone.1)];
        println!("{busy:.2?} {free:.2?} {both:?} {alone:?}");
        // The second has its guarantee, a tenth.
        assert!(busy[0] > 85.0 && busy[1] > 8.0 && free[1] > 99.0, "{busy:?} {free:?}");
        assert_eq!(alone.1.classes[1].threshold_bytes, Some(70_000));
    };
    judge(strict_order, verdict, |_| control());
}

/// Two classes in strict order, and the second one alone.
fn strict_order() -> (Look, Look) {
    let pair = Pair::new();
    let marking = "marking = { rule = 'tcn', rtt = '8ms', lambda = 1.0 }";
    let text = format!(
        "rate = '70mbit'\nqueue = 'priority'\nbackend = 'htb'\n{marking}\n\
         [[class]]\nname = 'first'\nfilter = [{{ to_port = 5721 }}]\n\
         [[class]]\nname = 'second'\nguarantee = '7mbit'\n"
    );
    let port = attach(&pair, &text);
    let looks = with_traffic(&pair, &[(5721, "-t 3 -P 4"), (5722, "-t 6 -P 4")], || {
        thread::sleep(Duration::from_secs(1));
        let both = look(&port, 1.5);
        thread::sleep(Duration::from_secs(1));
        (both, look(&port, 1.5))
    });
    port.detach().unwrap();
    looks
}

#[test]
fn root_port_virtual_queues_mark_before_real_queues_build_up() {
    let pair = Pair::new();
    let measure = |phantom: &str, first: u16| {
        let rest = format!(
            "rate = '100mbit'\nqueue = 'drr'\nbackend = 'htb'\n{phantom}\nmarking = {{ rule = 'threshold', at = '30kB' }}"
        );
        let port = attach(&pair, &classes(&rest, &[(first, 2), (first + 1, 1)]));
        let (seen, longest) = with_traffic(&pair, &[(first, "-t 4 -P 2"), (first + 1, "-t 4 -P 2")], || {
            thread::sleep(Duration::from_secs(1));
            let (before, begin) = (port.stats().unwrap(), Instant::now());
            let mut backlogs = Vec::new();
            for _ in 0..100 {
                thread::sleep(Duration::from_millis(15));
                let stats = port.stats().unwrap();
                backlogs.push(stats.classes.iter().map(|class| class.backlog_bytes).sum::<u64>());
            }
            backlogs.sort_unstable();
            // A busy machine sleeps longer than requested.
            ((before, port.stats().unwrap(), begin.elapsed()), backlogs[50])
        });
        let stats = port.detach().unwrap();
        let sent: u64 = seen.1.classes.iter().zip(&seen.0.classes).map(|(b, a)| b.bytes - a.bytes).sum();
        let rate = sent as f64 / seen.2.as_secs_f64();
        println!(
            "{phantom}: median backlog {longest}, {rate} bytes/s, {:?} {stats:?}",
            shares(&seen.0, &seen.1)
        );
        assert!(stats.classes.iter().all(|class| class.marked > 0), "{stats:?}");
        (longest, rate, shares(&seen.0, &seen.1))
    };
    let both = || [measure("", 5731), measure("phantom = 0.9", 5741)];
    let verdict = |[real, phantom]: &[(u64, f64, Vec<f64>); 2]| {
        assert!(2 * phantom.0 < real.0, "{} {}", phantom.0, real.0);
        // 100 Mbit/s; four windows of two packets are more than the virtual queues want.
        assert!(
            (11.5e6..12.6e6).contains(&real.1) && (0.85..1.02).contains(&(phantom.1 / real.1)),
            "{} {}",
            phantom.1,
            real.1
        );
        assert_near(&phantom.2, &[200.0 / 3.0, 100.0 / 3.0], 0.25);
    };
    judge(both, verdict, |_| tbf_share(100, Duration::ZERO, 4));
}
