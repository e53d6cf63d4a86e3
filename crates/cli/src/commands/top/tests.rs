//! Tests of the screen, drawn on a terminal in memory.

use super::live;
use super::model::Model;
use super::screen::{Screen, Wish};
use crate::args::SortKey;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::sync::mpsc::channel;
use std::time::Duration;
use vmcc_agent::{ClosedPath, Connection, EcnFeedback, Finding, Path, Sibling, Verdict};
use vmcc_testkit::terminal;

fn path(connection: u32, index: u8, bytes_acked: u64) -> Path {
    let at = |net: u8, host: u32| format!("10.{net}.{}.{}:5201", host >> 8, host & 255).parse().unwrap();
    let verdict = if index == 0 { Verdict::Apart } else { Verdict::Shares };
    Path {
        cookie: u64::from(connection * 2 + u32::from(index)).to_ne_bytes(),
        local: at(index, connection),
        remote: "10.9.0.2:5201".parse().unwrap(),
        device: Some(format!("eth{index}")),
        backup: false,
        silent: false,
        cwnd_pkt: 10 + connection,
        srtt_us: 1000 * (connection % 7 + 1),
        ecn_feedback: Some(EcnFeedback::Rfc3168),
        alpha: Some(0.25),
        ece_share: Some(0.034),
        delivered_pkt: (bytes_acked / 1250) as u32,
        delivered_ce_pkt: (bytes_acked / 12_500) as u32,
        bytes_acked,
        bytes_received: 0,
        delivery_rate_bps: 0,
        uncoupled: None,
        siblings: vec![Sibling {
            local: at(1 - index, connection),
            remote: "10.9.0.2:5201".parse().unwrap(),
            finding: Finding { verdict, evidence: 1.0 },
        }],
    }
}

/// This many, each faster than the one before, after `seconds`.
fn connections(count: u32, seconds: u64) -> Vec<Connection> {
    let of = |number: u32| Connection {
        token: Some(number),
        program: None,
        algorithm: "mp_vmcc".to_owned(),
        received_bytes: None,
        retransmitted_bytes: None,
        paths: (0..2).map(|index| path(number, index, seconds * u64::from(number) * 62_500)).collect(),
        closed: Vec::new(),
    };
    (0..count).map(of).collect()
}

fn seen(count: u32) -> Screen {
    let mut model = Model::new(SortKey::Goodput, "");
    (0..3).for_each(|second| {
        model.update(connections(count, second), Duration::from_secs(second));
    });
    Screen::new(model, "1s".to_owned(), false)
}

fn drawn(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

fn press(screen: &mut Screen, keys: &[KeyCode]) {
    keys.iter().for_each(|code| {
        assert_eq!(screen.key(KeyEvent::new(*code, KeyModifiers::NONE)), Wish::Nothing);
    });
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn eighty_columns_fit_every_field_of_the_fastest() {
    let shown = drawn(&mut seen(3), 80, 24);
    assert_eq!(shown[0], "vmcc top: 3 connections, 6 paths, 3.0 Mbit/s;");
    assert_eq!(words(&shown[3])[..4], ["CONNECTION", "/", "PATH", "DEVICE"]);
    assert_eq!(words(&shown[4])[..2], ["00000002", "mp_vmcc"]);
    assert_eq!(words(&shown[4])[3..], ["24", "3.00", "0.250", "10.0", "2.0"], "{shown:#?}");
    assert!(shown[4].contains("██"), "what it carried at both looks: {shown:#?}");
    let fast =
        ["10.0.0.2:5201", "->", "10.9.0.2:5201", "eth0", "12", "3.00", "0.250", "10.0", "1.0", "apart"];
    assert_eq!(words(&shown[5]), fast);
    assert_eq!(words(&shown[6]).last(), Some(&"shares"));
    assert!(shown[18].starts_with("--- 00000002 ---"), "{shown:#?}");
    assert_eq!(shown[19], "10.0.0.2:5201 eth0: apart from 10.1.0.2:5201");
    assert!(shown[23].starts_with("q quit"), "{shown:#?}");
}

#[test]
fn keys_sort_filter_and_select() {
    let mut screen = seen(300);
    let first = |screen: &mut Screen| words(&drawn(screen, 80, 24)[4])[0].to_owned();
    assert_eq!(first(&mut screen), "0000012b");
    press(&mut screen, &[KeyCode::Char('c')]);
    assert_eq!(first(&mut screen), "00000000");
    press(&mut screen, &[KeyCode::Char('R')]);
    assert_eq!(first(&mut screen), "0000012b");
    press(&mut screen, &[KeyCode::End]);
    let last = drawn(&mut screen, 80, 24);
    assert!(last[4..18].iter().any(|line| line.starts_with("00000000")), "{last:#?}");
    assert!(last[18].starts_with("--- 00000000"), "{last:#?}");
    // What is selected stays so, wherever it is now.
    press(&mut screen, &[KeyCode::Char('R')]);
    assert!(drawn(&mut screen, 80, 24)[18].starts_with("--- 00000000"));
    press(&mut screen, &[KeyCode::Char('/')]);
    press(&mut screen, &"10.1.0.77:".chars().map(KeyCode::Char).collect::<Vec<_>>());
    assert!(drawn(&mut screen, 80, 24)[23].starts_with("filter: 10.1.0.77:_"));
    press(&mut screen, &[KeyCode::Enter]);
    assert_eq!((first(&mut screen), screen.model.len()), ("0000004d".to_owned(), 1));
    press(&mut screen, &[KeyCode::Esc]);
    assert_eq!((first(&mut screen), screen.model.len()), ("00000000".to_owned(), 300));
    assert_eq!(screen.key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE)), Wish::Quit);
    assert_eq!(screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Wish::Interrupt);
}

#[test]
fn closed_path_is_shown_with_its_reason() {
    let mut all = connections(1, 1);
    all[0].closed.push(ClosedPath {
        local: "10.1.0.9:1".parse().unwrap(),
        remote: "10.9.0.2:5201".parse().unwrap(),
        seconds_ago: 12.0,
        reason: "shares a bottleneck with 10.0.0.0:5201 -> 10.9.0.2:5201".to_owned(),
    });
    let mut model = Model::new(SortKey::Goodput, "closed");
    model.update(all, Duration::ZERO);
    let shown = drawn(&mut Screen::new(model, "1s".to_owned(), true), 80, 24);
    assert!(shown[7].starts_with(" 10.1.0.9 -> 10.9.0.2 closed 12 s ago: shares a bottleneck"), "{shown:#?}");
}

#[test]
fn selection_is_visible_at_any_terminal_size() {
    let mut screen = seen(50);
    for (width, height) in [(1, 1), (20, 4), (40, 6), (79, 17), (80, 18), (300, 100), (80, 24)] {
        for key in [KeyCode::End, KeyCode::PageUp, KeyCode::Up, KeyCode::Home, KeyCode::Down] {
            press(&mut screen, &[key]);
            let shown = drawn(&mut screen, width, height);
            assert_eq!(shown.len(), usize::from(height));
            if key == KeyCode::End && height > 16 {
                assert!(
                    shown.iter().any(|line| line.starts_with("00000000")),
                    "{width}x{height}: {shown:#?}"
                );
            }
        }
    }
}

/// Bits per second of the only connection and of each of its paths.
fn rates(model: &Model) -> (Option<f64>, Vec<Option<f64>>) {
    let row = model.get(0).unwrap();
    (row.goodput_bps, row.path_goodput_bps.clone())
}

fn update(model: &mut Model, second: u64, paths: &[Path]) {
    let mut all = connections(1, 0);
    all[0].paths = paths.to_vec();
    model.update(all, Duration::from_secs(second));
}

#[test]
fn rate_of_a_path_is_never_that_of_another() {
    let mut model = Model::new(SortKey::Goodput, "");
    let old = |bytes| path(0, 0, bytes);
    update(&mut model, 1, &[old(1_000), path(0, 1, 9_000_000)]);
    assert_eq!(rates(&model), (None, vec![None, None]), "seen once");
    // The second closed, and another one has its ends: with more bytes than it had, or fewer.
    for (second, bytes) in [(2, 10_000_000), (3, 7)] {
        let joined = Path { cookie: [second as u8; 8], ..path(0, 1, bytes) };
        update(&mut model, second, &[old(1_000 * second), joined]);
        assert_eq!(rates(&model), (Some(8_000.0), vec![Some(8_000.0), None]));
    }
    let stays = Path { cookie: [3; 8], ..path(0, 1, 1_007) };
    update(&mut model, 4, &[stays.clone(), old(4_000)]);
    assert_eq!(rates(&model), (Some(16_000.0), vec![Some(8_000.0), Some(8_000.0)]), "in another order");
    update(&mut model, 5, &[old(5_000)]);
    assert_eq!(rates(&model), (Some(8_000.0), vec![Some(8_000.0)]), "closed");
    update(&mut model, 6, &[]);
    assert_eq!(rates(&model), (None, vec![]));
    update(&mut model, 7, &[old(50_000), stays]);
    assert_eq!(rates(&model), (None, vec![None, None]), "not seen at the look before");
    update(&mut model, 7, &[old(60_000)]);
    assert_eq!(rates(&model), (None, vec![None]), "no time has passed");
}

#[test]
fn reused_tcp_ports_are_another_socket() {
    let plain = |cookie: u8, bytes| {
        let mut all = connections(1, 0);
        (all[0].token, all[0].paths) = (None, vec![Path { cookie: [cookie; 8], ..path(0, 0, bytes) }]);
        all
    };
    let mut model = Model::new(SortKey::Goodput, "");
    for (second, cookie, bytes, rate) in
        [(1, 1, 10, None), (2, 1, 1_010, Some(8_000.0)), (3, 2, 9_000, None), (4, 2, 9_001, Some(8.0))]
    {
        model.update(plain(cookie, bytes), Duration::from_secs(second));
        assert_eq!(model.get(0).unwrap().goodput_bps, rate, "second {second}");
    }
    assert_eq!(model.history(model.get(0).unwrap()), [8.0]);
}

#[test]
fn restarted_counters_give_no_absurd_share() {
    let shown = |from: (u32, u32), to: (u32, u32)| {
        let with =
            |(delivered_pkt, delivered_ce_pkt)| Path { delivered_pkt, delivered_ce_pkt, ..path(0, 0, 0) };
        let mut model = Model::new(SortKey::Marked, "");
        update(&mut model, 1, &[with(from)]);
        update(&mut model, 2, &[with(to)]);
        let row = model.get(0).unwrap();
        (row.path_marked_share[0], row.marked_share())
    };
    let same = |share| (share, share);
    assert_eq!(shown((100, 10), (200, 60)), same(Some(0.5)));
    assert_eq!(shown((u32::MAX - 49, 10), (50, 60)), same(Some(0.5)));
    assert_eq!(shown((u32::MAX - 49, u32::MAX), (50, 24)), same(Some(0.25)));
    assert_eq!(shown((7, 7), (7, 7)), same(None), "nothing was delivered");
    assert_eq!(shown((7, 0), (8, 9)), same(None), "no such share");
}

#[test]
fn selection_moves_to_the_next_when_a_connection_ends() {
    let mut screen = seen(10);
    press(&mut screen, &[KeyCode::Char('c'), KeyCode::Down, KeyCode::Down, KeyCode::Down]);
    let stands_on = |screen: &mut Screen, name: &str| {
        let shown = drawn(screen, 80, 24);
        assert!(shown[18].starts_with(&format!("--- {name} ")), "{name}: {shown:#?}");
    };
    stands_on(&mut screen, "00000003");
    let mut fewer = connections(10, 4);
    fewer.remove(3);
    screen.model.update(fewer, Duration::from_secs(4));
    stands_on(&mut screen, "00000004");
    press(&mut screen, &[KeyCode::Char('R')]);
    stands_on(&mut screen, "00000004");
    screen.model.update(connections(2, 5), Duration::from_secs(5));
    stands_on(&mut screen, "00000000");
}

#[test]
fn mapped_ipv4_addresses_are_shown_as_ipv4() {
    let mapped = |net: u8| format!("[::ffff:10.{net}.0.1]:5201").parse().unwrap();
    let mut model = Model::new(SortKey::Goodput, "10.3.0.1:5201");
    let long = "[2001:db8:12:567::9]:443".parse().unwrap();
    update(
        &mut model,
        1,
        &[
            Path { local: mapped(3), remote: mapped(4), ..path(0, 0, 0) },
            Path { remote: long, ..path(0, 1, 0) },
        ],
    );
    let shown = drawn(&mut Screen::new(model, "1s".to_owned(), false), 80, 24);
    assert!(shown[5].starts_with(" 10.3.0.1:5201 -> 10.4.0.1:5201 "), "{shown:#?}");
    assert!(shown[6].starts_with(" 10.1.0.0 -> 2001:db8:12:567::9"), "{shown:#?}");
}

#[test]
fn silent_agent_is_reported() {
    let mut screen = seen(1);
    screen.above.agent = "agent 7, guard on".to_owned();
    for (milliseconds, said) in [(1_900, "agent 7, guard on"), (3_900, "agent does not answer since 3 s")] {
        screen.above.silent = Some(Duration::from_millis(milliseconds));
        assert_eq!(
            drawn(&mut screen, 100, 24)[0],
            format!("vmcc top: 1 connections, 2 paths, 0.0 Mbit/s; {said}")
        );
    }
}

const ON_TERMINAL: &str = "VMCC_TEST_ON_TERMINAL";

/// Runs itself once more on a terminal, and panics there.
#[test]
fn panic_restores_the_terminal() {
    if std::env::var_os(ON_TERMINAL).is_some() {
        let mut screen = Screen::new(Model::new(SortKey::Goodput, ""), "1s".to_owned(), false);
        let ask = || panic!("as this test wants it");
        let _ = live::run(&mut screen, Duration::from_millis(500), &ask, &|_, _| {}, channel());
        return;
    }
    let mut itself = std::process::Command::new(std::env::current_exe().unwrap());
    itself.args(["--exact", "commands::top::tests::panic_restores_the_terminal", "--nocapture"]);
    let mut terminal =
        terminal::Terminal::start(itself.env(ON_TERMINAL, "1").env("RUST_BACKTRACE", "0"), 24, 80);
    terminal.shows("its screen", |lines| lines[0].starts_with("vmcc top: 0 connections"));
    assert!(!terminal.ends().success());
    assert!(terminal.is_as_before());
    terminal.shows("why", |lines| lines.iter().any(|line| line.contains("as this test wants it")));
}
