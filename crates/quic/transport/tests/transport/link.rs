//! Both ends are ours; the network is simulated.

use crate::net::{Link, Net, Transfer};
use vmcc_transport::{Config, ConnectionError, Dir, Event, Retry};
use vmcc_units::time::Span;

const NO_RETRY: Retry = Retry::Above(usize::MAX);

fn pair(links: &[Link], config: &Config) -> (Net, vmcc_transport::Handle, vmcc_transport::Handle) {
    let mut net = Net::new(links, config.clone(), NO_RETRY);
    let client = net.connect(config.clone());
    let server = net.handshake(client);
    (net, client, server)
}

#[test]
fn handshake_and_bulk_transfer() {
    let (mut net, client, server) = pair(&[Link::default()], &Config::default());
    assert_eq!(net.connection(0, client).alpn(), Some(&b"vmcc-test"[..]));
    assert_eq!(net.connection(0, client).peer_certificates().len(), 1);
    let mut transfer = Transfer::up(&mut net, client, server, 5_000_000);
    transfer.run(&mut net, Span::from_secs(20));
    net.run_for(Span::from_ms(100));
    assert!(net.events[0].iter().any(|(_, _, event)| matches!(event, Event::StreamFinished { .. })));
}

#[test]
fn bulk_transfer_fills_the_link_and_its_queue() {
    let link = Link { rate: 20_000_000, queue: 100_000, ..Link::default() };
    let (mut net, client, server) = pair(&[link], &Config::default());
    let took = Transfer::up(&mut net, client, server, 10_000_000).run(&mut net, Span::from_secs(20));
    // 4 s at the link's rate, less the headers.
    assert!(took < Span::from_ms(4700), "{took:?}");
}

#[test]
fn lost_packets_are_retransmitted() {
    for loss in [10, 100] {
        let link = Link { loss, ..Link::default() };
        let (mut net, client, server) = pair(&[link], &Config::default());
        Transfer::up(&mut net, client, server, 500_000).run(&mut net, Span::from_secs(60));
        let lost: u64 = net.connection(0, client).paths().map(|path| path.lost_packets).sum();
        assert!(lost > 0);
    }
}

#[test]
fn streams_go_both_ways_and_end() {
    let (mut net, client, server) = pair(&[Link::default()], &Config::default());
    let stream = net.connection(0, client).open_stream(Dir::Bi).unwrap();
    net.connection(0, client).write(stream, b"question").unwrap();
    net.connection(0, client).finish(stream).unwrap();
    net.until(Span::from_secs(1), |net| net.happened(1, &Event::StreamReadable { stream }).is_some());
    let mut buffer = [0; 100];
    assert_eq!(net.connection(1, server).read(stream, &mut buffer), Ok(Some(8)));
    assert_eq!(net.connection(1, server).read(stream, &mut buffer), Ok(None));
    net.connection(1, server).write(stream, b"answer").unwrap();
    net.connection(1, server).finish(stream).unwrap();
    net.until(Span::from_secs(1), |net| net.happened(0, &Event::StreamReadable { stream }).is_some());
    assert_eq!(net.connection(0, client).read(stream, &mut buffer), Ok(Some(6)));
    assert_eq!(&buffer[..6], b"answer");
    assert_eq!(net.connection(0, client).read(stream, &mut buffer), Ok(None));
}

#[test]
fn close_reaches_the_peer_and_frees_all_state() {
    let (mut net, client, _) = pair(&[Link::default()], &Config::default());
    let now = net.now;
    net.connection(0, client).close(now, 7, b"enough");
    net.run_for(Span::from_secs(5));
    let error = ConnectionError::ApplicationClosed { code: 7, reason: "enough".to_owned() };
    assert!(net.happened(1, &Event::Closed(error)).is_some());
    assert!(net.ends[0].is_idle() && net.ends[1].is_idle());
}

#[test]
fn idle_timeout_ends_a_connection_to_a_vanished_peer() {
    let config = Config { idle_timeout: Span::from_secs(3), ..Config::default() };
    let (mut net, _, _) = pair(&[Link::default()], &config);
    net.links.clear();
    let begin = net.now;
    net.run_for(Span::from_secs(60));
    for end in 0..2 {
        let at = net.happened(end, &Event::Closed(ConnectionError::TimedOut)).unwrap();
        assert!(
            at.since(begin) > Span::from_ms(2500) && at.since(begin) < Span::from_secs(5),
            "{end} {at:?}"
        );
    }
    assert!(net.ends[0].is_idle() && net.ends[1].is_idle());
}
