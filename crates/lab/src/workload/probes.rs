//! Probes: small datagrams at a steady pace, which the far end sends back at once; both ends are threads of ours.
//!
//! A request carries its number, and so does its answer; times are of the clock of the client. What either thread waits for its
//! processor counts as the path's: on a busy host some tenths of a millisecond.

use super::in_process::{InProcess, exit_with};
use super::{ClientSetup, End, Report, ReportError, Request, Workload};
use crate::process::Ended;
use crate::registry::Record;
use crate::rng::Rng;
use crate::spec::{Flow, NUMBER_BYTES, Probing, UDP_HEADERS_BYTES, dscp};
use crate::{Error, Netns};
use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vmcc_units::Bytes;

/// Interval of the checks for the end, if nothing arrives.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A flow's two ends.
pub(super) struct Probes<'a> {
    pub(super) flow: &'a Flow,
    pub(super) probing: &'a Probing,
}

impl Workload for Probes<'_> {
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    fn serve(&self, at: &Netns, port: u16, _record: &mut Record) -> Result<End, Error> {
        let (reply, tos) = (payload(self.probing.reply), self.tos());
        let socket = at.run(move || bound((Ipv4Addr::UNSPECIFIED, port), tos));
        let socket = socket.map_err(|e| Error::kernel("binding a socket in", at.name(), e))?;
        InProcess::spawn(at, "answerer of probes", move |end| echo(&socket, reply, end))
    }

    fn send(&self, setup: ClientSetup<'_>) -> Result<End, Error> {
        let ClientSetup { at, to: (to, port), lasts, .. } = setup;
        let tos = self.tos();
        let socket = at.run(move || {
            let socket = bound((Ipv4Addr::UNSPECIFIED, 0), tos)?;
            socket.connect(SocketAddr::from((to, port)))?;
            Ok(socket)
        });
        let socket = socket.map_err(|e: io::Error| Error::kernel("connecting a socket in", at.name(), e))?;
        let probing = Probing { seed: self.probing.seed ^ u64::from(port), ..self.probing.clone() };
        InProcess::spawn(at, "sender of probes", move |end| ask(&socket, &probing, lasts, end))
    }

    fn report(&self, client: &Ended, _server: &End) -> Result<Report, ReportError> {
        if !client.stderr.is_empty() {
            return Err(ReportError::Transfer(client.stderr.clone()));
        }
        let said = String::from_utf8_lossy(&client.stdout);
        let requests = said.lines().map(request).collect::<Result<_, _>>()?;
        Ok(Report { requests, ..Report::default() })
    }
}

impl Probes<'_> {
    fn tos(&self) -> u32 {
        u32::from(dscp(self.flow.class)) << 2
    }
}

fn payload(packet: Bytes) -> usize {
    usize::try_from(packet.get().saturating_sub(UDP_HEADERS_BYTES)).unwrap_or(usize::MAX).max(NUMBER_BYTES)
}

fn bound(address: (Ipv4Addr, u16), tos: u32) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket2::SockRef::from(&socket).set_tos_v4(tos)?;
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    Ok(socket)
}

/// Sends back what comes, in packets of this much payload, until it shall end.
fn echo(socket: &UdpSocket, reply: usize, end: &AtomicBool) -> Ended {
    let mut packet = vec![0; 1 << 16];
    while !end.load(Ordering::Relaxed) {
        match socket.recv_from(&mut packet) {
            Ok((length, from)) if length >= NUMBER_BYTES => {
                // What the network does not take is lost, as on the way.
                let _ = socket.send_to(&packet[..reply], from);
            }
            Ok(_) => {}
            Err(e) if is_nothing(&e) => {}
            Err(e) => return exit_with(String::new(), Some(e)),
        }
    }
    exit_with(String::new(), None)
}

/// Asks for so long, and then waits until all is answered or late. A line for each request: when it left, in seconds, and how
/// long its answer took, or `-`.
fn ask(socket: &UdpSocket, probing: &Probing, lasts: Duration, end: &AtomicBool) -> Ended {
    let (mut packet, mut rng) = (vec![0; payload(probing.packet)], Rng::new(probing.seed, 0));
    let (begun, timeout) = (Instant::now(), probing.timeout.to_duration());
    let mut sent: Vec<(Duration, Option<Duration>)> = Vec::new();
    let (mut next, mut missing) = (Duration::ZERO, 0_usize);
    let mut fault = None;
    while !end.load(Ordering::Relaxed) {
        let now = begun.elapsed();
        let over = next >= lasts;
        if over && (missing == 0 || now >= lasts + timeout) {
            break;
        }
        if !over && now >= next {
            let number = u32::try_from(sent.len()).unwrap_or(u32::MAX);
            packet[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
            let now = begun.elapsed();
            // One that the host's queue did not take is lost, too.
            let _ = socket.send(&packet);
            sent.push((now, None));
            missing += 1;
            let gap =
                if probing.random { rng.exponential_ns(probing.interval) } else { probing.interval.get() };
            // One that is late keeps its pace from then.
            next = now + Duration::from_nanos(gap.max(1));
            continue;
        }
        let wait = if over { POLL_INTERVAL } else { next.saturating_sub(now).min(POLL_INTERVAL) };
        match receive(socket, wait) {
            Ok(Some(number)) => {
                let now = begun.elapsed();
                if let Some((at, took @ None)) = sent.get_mut(number as usize) {
                    *took = Some(now.saturating_sub(*at));
                    missing -= 1;
                }
            }
            Ok(None) => {}
            Err(e) => {
                fault = Some(e);
                break;
            }
        }
    }
    let mut lines = String::new();
    for (at, took) in sent {
        let took = took.filter(|took| *took <= timeout);
        let took = took.map_or("-".to_owned(), |took| took.as_secs_f64().to_string());
        let _ = writeln!(lines, "{} {took}", at.as_secs_f64());
    }
    exit_with(lines, fault)
}

/// The number of an answer that comes in time.
fn receive(socket: &UdpSocket, timeout: Duration) -> io::Result<Option<u32>> {
    let mut packet = [0; 1 << 16];
    socket.set_read_timeout(Some(timeout.max(Duration::from_micros(1))))?;
    match socket.recv(&mut packet) {
        Ok(length) if length >= NUMBER_BYTES => {
            Ok(packet.first_chunk().map(|number| u32::from_le_bytes(*number)))
        }
        Ok(_) => Ok(None),
        Err(e) if is_nothing(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// True if nothing arrived or the other end is unreachable: results of a probe, not faults.
pub(super) fn is_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable, TimedOut, WouldBlock,
    };
    [WouldBlock, TimedOut, Interrupted, ConnectionRefused, HostUnreachable, NetworkUnreachable]
        .contains(&error.kind())
}

fn request(line: &str) -> Result<Request, ReportError> {
    let wrong = || ReportError::Line(line.to_owned());
    let (sent, took) = line.split_once(' ').ok_or_else(wrong)?;
    let took_s = if took == "-" { None } else { Some(took.parse().map_err(|_| wrong())?) };
    Ok(Request { sent_s: sent.parse().map_err(|_| wrong())?, took_s })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;
    use vmcc_units::Nanos;

    fn probing(packet: u64, reply: u64) -> Probing {
        let ms = Nanos::from_millis;
        let [packet, reply] = [packet, reply].map(Bytes::new);
        Probing { interval: ms(2), random: true, seed: 1, packet, reply, timeout: ms(500) }
    }

    /// Requests of a sender that probes for 200 ms; `answers` starts the echo.
    fn asked(answers: bool) -> Vec<Request> {
        let there = bound((Ipv4Addr::LOCALHOST, 0), 0).unwrap();
        let here = bound((Ipv4Addr::LOCALHOST, 0), 0).unwrap();
        here.connect(there.local_addr().unwrap()).unwrap();
        let end = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&end);
        let echoing = answers.then(|| thread::spawn(move || echo(&there, payload(Bytes::new(200)), &flag)));
        let probing = Probing { timeout: Nanos::from_millis(50), ..probing(64, 200) };
        let left = ask(&here, &probing, Duration::from_millis(200), &AtomicBool::new(false));
        end.store(true, Ordering::Relaxed);
        echoing.map(|thread| thread.join().unwrap());
        String::from_utf8(left.stdout).unwrap().lines().map(|line| request(line).unwrap()).collect()
    }

    #[test]
    fn responder_answers_each_probe() {
        let requests = asked(true);
        assert!(requests.len() > 5 && requests.iter().any(|one| one.took_s.is_some()), "{requests:?}");
        assert!(requests.is_sorted_by(|a, b| a.sent_s < b.sent_s));
    }

    #[test]
    fn probes_without_a_responder_are_lost() {
        let requests = asked(false);
        assert!(requests.len() > 5 && requests.iter().all(|one| one.took_s.is_none()), "{requests:?}");
    }

    #[test]
    fn probe_sizes_include_headers() {
        assert_eq!((payload(Bytes::new(64)), payload(Bytes::new(20))), (36, 4));
    }

    #[test]
    fn malformed_probe_line_is_named() {
        for line in ["", "1", "1 x", "x 1"] {
            assert!(request(line).is_err_and(|e| e.to_string().contains(line)), "{line}");
        }
    }
}
