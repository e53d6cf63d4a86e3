//! The scoreboard against a list of segments, and RACK by hand.

use super::{Delivery, Rack, Scoreboard, Segment};
use crate::time::{Span, Time};
use proptest::prelude::*;

fn us(n: u64) -> Time {
    Time::ZERO + Span::from_us(n)
}

fn board(sent_us: impl IntoIterator<Item = u64>) -> Scoreboard {
    let mut board = Scoreboard::default();
    board.allocate();
    for (i, t) in sent_us.into_iter().enumerate() {
        board.push(Segment { sent: us(t), data_seq: i as u32, len_bytes: 1448 });
    }
    board
}

fn sack(board: &mut Scoreboard, rack: &mut Rack, now_us: u64, range: (u32, u32)) -> Delivery {
    let mut got = Delivery::default();
    board.sack(range, us(now_us), Span::ZERO, rack, &mut got);
    got
}

#[test]
fn rack_waits_for_the_reordering_window() {
    let mut board = board([0, 1, 2, 3, 4]);
    let mut rack = Rack::default();
    let got = sack(&mut board, &mut rack, 102, (2, 3));
    assert_eq!((got.delivered, rack.rtt, rack.seq), (1, Span::from_us(100), 2));
    // Segment 0 is 102 us old, limit 100 + 25; segment 1 is due a microsecond later; 3 and 4 were sent after.
    assert_eq!(board.rack_mark_lost(us(102), &rack, Span::from_us(25)), (0, Span::from_us(24)));
    assert_eq!(board.rack_mark_lost(us(125), &rack, Span::from_us(25)), (1, Span::from_us(1)));
    assert_eq!(board.rack_mark_lost(us(126), &rack, Span::from_us(25)), (1, Span::ZERO));
    assert_eq!((board.lost_out(), board.in_flight()), (2, 2));
}

#[test]
fn rack_detects_lost_retransmission() {
    let mut board = board([0, 0, 0, 0, 50]);
    let mut rack = Rack::default();
    sack(&mut board, &mut rack, 100, (1, 4));
    assert_eq!(board.rack_mark_lost(us(100), &rack, Span::ZERO).0, 1);
    assert_eq!(board.next_lost(), Some(0));
    board.retransmit(0, us(100));
    assert_eq!((board.again_out(), board.in_flight(), board.next_lost()), (1, 2, None));
    // Segment 4 was sent before the retransmission: it says nothing about it.
    sack(&mut board, &mut rack, 150, (4, 5));
    assert_eq!(board.rack_mark_lost(us(150), &rack, Span::ZERO).0, 0);
    board.push(Segment { sent: us(110), data_seq: 5, len_bytes: 1448 });
    sack(&mut board, &mut rack, 210, (5, 6));
    assert_eq!(board.rack_mark_lost(us(210), &rack, Span::ZERO).0, 1);
    assert_eq!(board.next_lost(), Some(0));
}

#[test]
fn early_ack_of_a_retransmission_belongs_to_the_original() {
    let mut rack = Rack::default();
    rack.advance(us(105), us(100), 3, true, Span::from_us(50));
    assert!(!rack.advanced, "5 us is below the minimum RTT: the original was answered");
    rack.advance(us(160), us(100), 3, true, Span::from_us(50));
    assert!(rack.advanced);
}

#[test]
fn timeout_keeps_segments_sent_within_a_round_trip() {
    let mut board = board([0, 10, 300, 390]);
    board.mark_timed_out(us(400), Span::from_us(50));
    assert_eq!((board.lost_out(), board.in_flight()), (3, 1));
    let mut young = self::board([390, 395]);
    young.mark_timed_out(us(400), Span::from_us(50));
    assert_eq!((young.lost_out(), young.next_lost()), (1, Some(0)), "the oldest is lost in any case");
    assert!(board.is_consistent() && young.is_consistent());
}

#[test]
fn rtt_samples_use_segments_sent_once() {
    let mut board = board([10, 20, 30]);
    let mut rack = Rack::default();
    board.mark_timed_out(Time::ZERO, Span::ZERO);
    board.retransmit(0, us(500));
    let mut got = Delivery::default();
    board.ack(1, us(600), Span::ZERO, &mut rack, &mut got);
    assert!(got.retransmitted && got.first_sent == Time::NEVER);
    let mut got = Delivery::default();
    board.ack(3, us(700), Span::ZERO, &mut rack, &mut got);
    assert_eq!((got.first_sent, got.last_sent, got.delivered), (us(20), us(30), 2));
    assert!(board.is_clean() && board.is_consistent());
}

#[derive(Clone, Copy, Debug, Default)]
struct Plain {
    sacked: bool,
    lost: bool,
    again: bool,
}

#[derive(Clone, Debug)]
enum Op {
    Send(u32),
    Sack(u32, u32),
    Ack(u32),
    Timeout,
    Retransmit,
    MarkBelow,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (1u32..90).prop_map(Op::Send),
        4 => (0u32..300, 1u32..80).prop_map(|(from, len)| Op::Sack(from, len)),
        3 => (1u32..70).prop_map(Op::Ack),
        1 => Just(Op::Timeout),
        4 => Just(Op::Retransmit),
        2 => Just(Op::MarkBelow),
    ];
    prop::collection::vec(op, 1..60)
}

/// The same operations on a plain list; index 0 is the oldest segment in flight.
fn apply(list: &mut Vec<Plain>, op: &Op) {
    match *op {
        Op::Send(n) => list.extend((0..n).map(|_| Plain::default())),
        Op::Sack(from, len) => {
            for s in list.iter_mut().skip(from as usize).take(len as usize) {
                *s = Plain { sacked: true, ..Plain::default() };
            }
        }
        Op::Ack(n) => {
            list.drain(..(n as usize).min(list.len()));
        }
        Op::Timeout => list.iter_mut().filter(|s| !s.sacked).for_each(|s| (s.lost, s.again) = (true, false)),
        Op::Retransmit => {
            if let Some(s) = list.iter_mut().find(|s| s.lost && !s.again) {
                s.again = true;
            }
        }
        Op::MarkBelow => {
            for i in 0..list.len() {
                let above = list[i..].iter().filter(|s| s.sacked).count();
                if !list[i].sacked && !list[i].again && above >= 3 {
                    list[i].lost = true;
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn scoreboard_matches_a_list(ops in ops()) {
        let mut board = board([]);
        let mut list: Vec<Plain> = Vec::new();
        let mut rack = Rack::default();
        for (i, op) in ops.iter().enumerate() {
            let now = us(i as u64);
            let una = board.una();
            let mut got = Delivery::default();
            match *op {
                Op::Send(n) => (0..n).for_each(|_| {
                    board.push(Segment { sent: now, ..Segment::default() });
                }),
                Op::Sack(from, len) => {
                    board.sack((una + from, una + from + len), now, Span::ZERO, &mut rack, &mut got);
                }
                Op::Ack(n) => {
                    let ack = (una + n).min(board.nxt());
                    board.ack(ack, now, Span::ZERO, &mut rack, &mut got);
                }
                Op::Timeout => board.mark_timed_out(Time::ZERO, Span::ZERO),
                Op::Retransmit => {
                    if let Some(seq) = board.next_lost() {
                        board.retransmit(seq, now);
                    }
                }
                Op::MarkBelow => {
                    board.mark_lost_below(3);
                }
            }
            apply(&mut list, op);
            let count = |f: fn(&Plain) -> bool| list.iter().filter(|s| f(s)).count() as u32;
            prop_assert_eq!(board.out() as usize, list.len());
            prop_assert_eq!(board.sacked_out(), count(|s| s.sacked));
            prop_assert_eq!(board.lost_out(), count(|s| s.lost));
            prop_assert_eq!(board.again_out(), count(|s| s.again));
            let next = list.iter().position(|s| s.lost && !s.again).map(|i| board.una() + i as u32);
            prop_assert_eq!(board.next_lost(), next);
            let last = list.iter().rposition(|s| !s.sacked).map(|i| board.una() + i as u32);
            prop_assert_eq!(board.highest_unsacked(), last);
            prop_assert!(board.is_consistent());
        }
    }
}
