//! Congestion generator: datagrams at random rates for random times, on each interface by draws of its own. Both ends are threads of ours.
//!
//! The receiver reports the payload that has come in datagrams of its own, as a sum, so that a lost report loses nothing.

use super::in_process::{InProcess, exit_with};
use super::probes::is_nothing;
use super::{ClientSetup, Connection, End, Interval, Report, ReportError, Workload};
use crate::process::Ended;
use crate::registry::Record;
use crate::rng::Rng;
use crate::spec::{Flow, Generating, SUM_BYTES, UDP_HEADERS_BYTES, dscp};
use crate::{Error, Netns};
use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_units::Bytes;

/// Between two reports of the receiver.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Between two looks at what is due.
const TICK: Duration = Duration::from_micros(500);

/// Period in which the rate is constant; 0 if it is silent.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Period {
    from_s: f64,
    to_s: f64,
    rate_bps: f64,
}

impl Generating {
    /// Periods of an interface until `end_s`, drawn as the simulator draws them: length, rate, busy or not.
    fn periods(&self, interface: usize, end_s: f64) -> Vec<Period> {
        let mut rng = Rng::new(self.seed, if self.independent { 1 + interface } else { 0 });
        let between = |low: u64, high: u64, u: f64| low as f64 + high.saturating_sub(low) as f64 * u;
        let (mut at, mut all) = (0.0, Vec::new());
        while at < end_s {
            let lasts = between(self.durations.0.get(), self.durations.1.get(), rng.uniform()) / 1e9;
            let rate_bps = between(self.rates.0.get(), self.rates.1.get(), rng.uniform());
            let busy = rng.uniform() < self.busy;
            let to_s = (at + lasts.max(1e-3)).min(end_s);
            all.push(Period { from_s: at, to_s, rate_bps: if busy { rate_bps } else { 0.0 } });
            at = to_s;
        }
        all
    }
}

/// A flow's two ends.
pub(super) struct Generator<'a> {
    pub(super) flow: &'a Flow,
    pub(super) generating: &'a Generating,
}

impl Workload for Generator<'_> {
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    fn serve(&self, at: &Netns, port: u16, _record: &mut Record) -> Result<End, Error> {
        let socket = at.run(move || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
            socket.set_read_timeout(Some(REPORT_INTERVAL))?;
            Ok(socket)
        });
        let socket = socket.map_err(|e: io::Error| Error::kernel("binding a socket in", at.name(), e))?;
        InProcess::spawn(at, "receiver of generated datagrams", move |end| count(&socket, end))
    }

    fn send(&self, setup: ClientSetup<'_>) -> Result<End, Error> {
        let ClientSetup { at, to, lasts, .. } = setup;
        let tos = u32::from(dscp(self.flow.class)) << 2;
        let socket = at.run(move || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket2::SockRef::from(&socket).set_tos_v4(tos)?;
            socket.connect(SocketAddr::from(to))?;
            // A full queue drops, as a router's does.
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        let socket = socket.map_err(|e: io::Error| Error::kernel("connecting a socket in", at.name(), e))?;
        let interface = (self.flow.from << 8) + self.flow.first_subnet();
        let periods = self.generating.periods(interface, lasts.as_secs_f64());
        let packet = self.generating.packet;
        InProcess::spawn(at, "congestion generator", move |end| generate(&socket, &periods, packet, end))
    }

    fn report(&self, client: &Ended, _server: &End) -> Result<Report, ReportError> {
        if !client.stderr.is_empty() {
            return Err(ReportError::Transfer(client.stderr.clone()));
        }
        let text = String::from_utf8_lossy(&client.stdout);
        let connection = Connection { read: intervals(&text)?, ..Connection::transfer(0, 0.0, None, 0) };
        Ok(Report { connections: vec![connection], ..Report::default() })
    }
}

/// Counts payload until it shall end, and reports the sum to its sender.
fn count(socket: &UdpSocket, end: &AtomicBool) -> Ended {
    let (mut packet, mut sum) = (vec![0; 1 << 16], 0_u64);
    let (mut sender, mut reported) = (None, Instant::now());
    while !end.load(Ordering::Relaxed) {
        match socket.recv_from(&mut packet) {
            Ok((length, from)) => {
                sum += length as u64;
                sender = Some(from);
            }
            Err(e) if is_nothing(&e) => {}
            Err(e) => return exit_with(String::new(), Some(e)),
        }
        if let Some(sender) = sender.filter(|_| reported.elapsed() >= REPORT_INTERVAL) {
            // A lost report is made up for by the next.
            let _ = socket.send_to(&sum.to_le_bytes(), sender);
            reported = Instant::now();
        }
    }
    exit_with(String::new(), None)
}

/// Sends what is due in each period, and notes the receiver's reports: a line each with time and sum.
fn generate(socket: &UdpSocket, periods: &[Period], packet: Bytes, end: &AtomicBool) -> Ended {
    let size = packet.get() as f64 * 8.0;
    let payload = vec![0; packet.get().saturating_sub(UDP_HEADERS_BYTES) as usize];
    let (begun, mut lines) = (Instant::now(), String::new());
    for period in periods {
        let mut sent = 0_u64;
        loop {
            let now = begun.elapsed().as_secs_f64();
            let due = ((now.min(period.to_s) - period.from_s).max(0.0) * period.rate_bps / size) as u64;
            for _ in sent..due {
                // What a queue does not take is lost, as on the way.
                let _ = socket.send(&payload);
            }
            sent = due.max(sent);
            note(socket, begun, &mut lines);
            if now >= period.to_s || end.load(Ordering::Relaxed) {
                break;
            }
            let wait = if period.rate_bps > 0.0 { TICK } else { 10 * TICK };
            thread::sleep(wait.min(Duration::from_secs_f64(period.to_s - now)));
        }
    }
    // The last report is on its way.
    thread::sleep(2 * REPORT_INTERVAL);
    note(socket, begun, &mut lines);
    exit_with(lines, None)
}

fn note(socket: &UdpSocket, begun: Instant, lines: &mut String) {
    let mut sum = [0; SUM_BYTES];
    while let Ok(SUM_BYTES) = socket.recv(&mut sum) {
        let _ = writeln!(lines, "{} {}", begun.elapsed().as_secs_f64(), u64::from_le_bytes(sum));
    }
}

fn intervals(text: &str) -> Result<Vec<Interval>, ReportError> {
    let (mut before, mut all) = ((0.0, 0_u64), Vec::new());
    for line in text.lines() {
        let read: Option<(f64, u64)> =
            line.split_once(' ').and_then(|(at, sum)| Some((at.parse().ok()?, sum.parse().ok()?)));
        let (end_s, sum) = read.ok_or_else(|| ReportError::Line(line.to_owned()))?;
        let bytes = sum.saturating_sub(before.1) as f64;
        all.push(Interval { start_s: before.0, end_s, bytes });
        before = (end_s, sum.max(before.1));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmcc_units::{BitsPerSec, Nanos};

    fn generating() -> Generating {
        Generating {
            rates: (BitsPerSec::new(1_000_000), BitsPerSec::new(9_000_000)),
            durations: (Nanos::from_millis(100), Nanos::from_secs(2)),
            busy: 0.5,
            packet: Bytes::new(1_000),
            seed: 7,
            independent: true,
        }
    }

    #[test]
    fn periods_follow_the_seed_and_the_interface() {
        let of = |generating: &Generating, interface| generating.periods(interface, 900.0);
        let all = of(&generating(), 0);
        assert_eq!(all, of(&generating(), 0));
        assert_ne!(all, of(&generating(), 1), "interfaces are independent");
        assert_ne!(all, of(&Generating { seed: 8, ..generating() }, 0));
        let together = Generating { independent: false, ..generating() };
        assert_eq!(of(&together, 0), of(&together, 1));
        assert!(all.windows(2).all(|pair| pair[0].to_s == pair[1].from_s), "without gaps");
        assert_eq!(all.last().unwrap().to_s, 900.0);
        let busy: Vec<&Period> = all.iter().filter(|period| period.rate_bps > 0.0).collect();
        assert!(busy.iter().all(|period| (1e6..=9e6).contains(&period.rate_bps)));
        // 850 periods on average: half of them, with a deviation of 2 %.
        let share = busy.len() as f64 / all.len() as f64;
        assert!((0.4..0.6).contains(&share), "{share}");
    }

    #[test]
    fn both_ends_follow_the_periods() {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        receiver.set_read_timeout(Some(REPORT_INTERVAL)).unwrap();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        sender.set_nonblocking(true).unwrap();
        let period = |from_s, to_s, rate_bps| Period { from_s, to_s, rate_bps };
        let periods = [period(0.0, 0.25, 8e6), period(0.25, 0.5, 0.0)];
        let end = AtomicBool::new(false);
        let ended = thread::scope(|scope| {
            scope.spawn(|| count(&receiver, &end));
            let ended = generate(&sender, &periods, Bytes::new(1_000), &AtomicBool::new(false));
            end.store(true, Ordering::Relaxed);
            ended
        });
        let read = intervals(&String::from_utf8_lossy(&ended.stdout)).unwrap();
        let bytes: f64 = read.iter().map(|interval| interval.bytes).sum();
        // 250 packets, however late the thread was.
        assert_eq!(bytes, 250.0 * 972.0, "{read:?}");
    }

    #[test]
    fn late_reports_lose_nothing() {
        let read = intervals("0.1 1000\n0.4 3000\n").unwrap();
        assert_eq!(read[1], Interval { start_s: 0.1, end_s: 0.4, bytes: 2_000.0 });
        assert!(intervals("0.1\n").is_err() && intervals("x 1\n").is_err());
    }
}
