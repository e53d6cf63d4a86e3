//! Frames that wait while nothing passes.

use crate::multipath::shaped;
use crate::net::{Link, Net, client_address};
use vmcc_transport::{Config, Dir, Retry, StreamError};
use vmcc_units::time::Span;

#[test]
fn connection_survives_resets_of_all_streams_during_a_cut() {
    for streams in [900, 4000] {
        let config =
            Config { max_streams_bidi: streams, keep_alive: Span::from_secs(5), ..Config::default() };
        let links = [Link { queue: 1 << 20, ..shaped(20_000_000, 20) }; 2];
        let mut net = Net::new(&links, config.clone(), Retry::Above(usize::MAX));
        let client = net.connect(config);
        let server = net.handshake(client);
        net.open_path(client, 1);
        let ids: Vec<u64> =
            (0..streams).map(|_| net.connection(0, client).open_stream(Dir::Bi).unwrap()).collect();
        for id in &ids {
            net.connection(0, client).write(*id, b"request").unwrap();
        }
        net.run_for(Span::from_secs(1));
        let mut buffer = [0; 16];
        for id in &ids {
            assert_eq!(net.connection(1, server).read(*id, &mut buffer), Ok(Some(7)));
            net.connection(1, server).write(*id, b"answer").unwrap();
        }
        net.run_for(Span::from_secs(1));
        let until = net.now + Span::from_secs(4);
        for path in 0..2 {
            net.links.get_mut(&client_address(path)).unwrap().cut = (net.now, until);
        }
        for (i, id) in ids.iter().enumerate() {
            net.connection(0, client).reset(*id, 7).unwrap();
            net.connection(0, client).stop(*id, 7).unwrap();
            // The peer does the same without knowing.
            net.connection(1, server).stop(*id, 8).unwrap();
            if i % 10 == 0 {
                net.run_for(Span::from_ms(1));
            }
        }
        net.run_for(Span::from_secs(8));
        assert!(net.connection(0, client).error().is_none() && net.connection(1, server).error().is_none());
        for id in &ids {
            let read = net.connection(0, client).read(*id, &mut buffer);
            assert!(matches!(read, Err(StreamError::Unknown)), "{id}: {read:?}");
        }
        assert!(net.connection(0, client).open_stream(Dir::Bi).is_some(), "there is room for new streams");
    }
}
