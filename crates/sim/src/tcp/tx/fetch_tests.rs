//! Objects that are asked for on a connection that stays open.

use crate::packet::Packet;
use crate::tcp::record::Response;
use crate::tcp::testing::{Lab, Setup, clean, lose};
use crate::time::{Span, Time};
use crate::traffic::{App, Object};

const MSS: u64 = 1448;

fn ms(n: u64) -> Time {
    Time::ZERO + Span::from_ms(n)
}

/// Objects by the millisecond in which somebody wants them, and their bytes.
fn fetches(objects: &[(u64, u64)]) -> App {
    let objects = objects.iter().map(|&(at, bytes)| Object { at: ms(at), bytes }).collect();
    App::Fetches { request_bytes: 15, objects }
}

fn took(response: &Response) -> Span {
    response.answered.since(response.asked)
}

/// Round trips of 20 ms, on links that take no time: what fits into the first window is there after one.
#[test]
fn idle_connection_answers_after_one_round_trip() {
    let objects = [(5, 1), (100, 5 * MSS), (200, 10 * MSS), (300, 1), (400, 11 * MSS)];
    let mut lab = Lab::new(Setup { app: fetches(&objects), ..Setup::default() }, clean());
    lab.run_ms(2_000);
    let responses = lab.hosts.tcp.responses();
    let bytes: Vec<u64> = responses.iter().map(|response| response.bytes).collect();
    assert_eq!(bytes, objects.map(|(_, bytes)| bytes));
    let took: Vec<Span> = responses.iter().map(took).collect();
    // The first waits for the handshake; the window has grown by the time of the last.
    assert_eq!(took, [35, 20, 20, 20, 20].map(Span::from_ms));
    assert_eq!(lab.directory.flow(lab.conn, &[&lab.hosts]).established, ms(20));
}

#[test]
fn idle_connection_restarts_from_the_initial_window() {
    let mut lab = Lab::new(Setup { app: fetches(&[(100, 11 * MSS)]), ..Setup::default() }, clean());
    lab.run_ms(1_000);
    assert_eq!(took(&lab.hosts.tcp.responses()[0]), Span::from_ms(40));
}

/// Three are wanted at once, and one while they are on their way: each is asked for when the one before it has come.
#[test]
fn objects_are_served_in_order() {
    let objects = [(100, 3_000), (100, 2 * MSS), (100, 1), (150, 7)];
    let mut lab = Lab::new(Setup { app: fetches(&objects), ..Setup::default() }, clean());
    lab.run_ms(1_000);
    let responses = lab.hosts.tcp.responses();
    let answered: Vec<Time> = responses.iter().map(|response| response.answered).collect();
    assert_eq!(answered, [120, 140, 160, 180].map(ms));
    assert_eq!(responses.iter().map(took).collect::<Vec<_>>(), [20, 40, 60, 30].map(Span::from_ms));
    let asked: Vec<Time> = lab.data(0).into_iter().map(|(at, ..)| at).collect();
    assert_eq!(asked, [100, 120, 140, 160].map(ms), "one request at a time");
}

#[test]
fn all_bytes_arrive_despite_losses() {
    let objects: Vec<(u64, u64)> = (0..40).map(|i| (100 + 3 * i, 1 + 977 * i)).collect();
    let all: u64 = objects.iter().map(|(_, bytes)| bytes).sum();
    for (lost, paths) in [(lose(&[0, 7, 21]), 1), (clean(), 2)] {
        let paths = vec![(Span::from_ms(10), Span::ZERO); paths];
        let multipath = paths.len() > 1;
        let setup = Setup { app: fetches(&objects), algorithm: "lia", paths, ..Setup::default() };
        let mut dropped = 0;
        let mut lost = lost;
        // Answers are lost as well: the third packet of each hundred on their route.
        let script = Box::new(move |p: &mut Packet, now| {
            let answer = p.has(Packet::DATA) && p.tag == 0 && p.route.0 == 1;
            dropped += u32::from(answer);
            if answer && dropped % 100 == 3 { None } else { lost(p, now) }
        });
        let mut lab = Lab::new(setup, script);
        lab.run_ms(60_000);
        let responses = lab.hosts.tcp.responses();
        assert_eq!(responses.len(), 40, "{multipath}");
        let answers = crate::tcp::ConnId(lab.conn.0 + 1);
        let flow = lab.directory.flow(answers, &[&lab.hosts]);
        assert_eq!((flow.delivered_bytes, flow.responses), (all, 40), "{multipath}");
        assert!(flow.subflows.iter().all(|subflow| subflow.receiver.bytes > 0), "{multipath}");
        assert!(flow.retransmits() > 0, "{multipath}");
    }
}

/// RTTs that a client reports are those of its objects. A client without objects only opens its connection.
#[test]
fn requests_give_no_rtt_samples() {
    let mut lab =
        Lab::new(Setup { app: fetches(&[(100, 1), (200, 1), (300, 1)]), ..Setup::default() }, clean());
    lab.run_ms(1_000);
    assert_eq!(lab.hosts.tcp.rtts().group(0).map(|rtts| rtts.len()), Some(3));
    let mut lab = Lab::new(Setup { app: fetches(&[]), ..Setup::default() }, clean());
    lab.run_ms(1_000);
    assert_eq!(lab.flow().established, ms(20));
    assert!(lab.hosts.tcp.responses().is_empty() && lab.data(0).is_empty());
}
