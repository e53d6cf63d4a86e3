//! Sessions whose carriers run TLS 1.3: bindings are exporters.

use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;
use vmcc_tcp::tls::Tls;
use vmcc_tcp::{Acceptor, Config, Dir, Greeting, Secrets, Session};
use vmcc_units::time::{Span, Time};

fn configs(name: &str) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let own = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = &[&rustls::version::TLS13];
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key.into())
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(client), Arc::new(server))
}

/// A pair of TLS ends after their handshake.
fn handshake(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Result<[Tls; 2], rustls::Error> {
    let name = ServerName::try_from("peer.test").unwrap();
    let mut ends = [Tls::client(client.clone(), name)?, Tls::server(server.clone())?];
    for _ in 0..4 {
        for from in [0, 1] {
            let (mut wire, mut plain) = (Vec::new(), Vec::new());
            ends[from].write(&[], &mut wire)?;
            ends[1 - from].read(&wire, &mut plain)?;
            assert!(plain.is_empty());
        }
    }
    Ok(ends)
}

#[test]
fn session_over_two_tls_carriers_moves_bytes() {
    let (client_config, server_config) = configs("peer.test");
    let mut links = [(); 2].map(|()| handshake(&client_config, &server_config).unwrap());
    let mut now = Time::ZERO;
    let mut client = Session::connect(now, Config::default(), Secrets([1; 32]));
    let mut server: Option<Session> = None;
    let mut ids = [None; 2];
    let (mut stream, mut written, mut received) = (None, 0, Vec::new());
    let data: Vec<u8> = (0..500_000_u32).map(|i| (i % 251) as u8).collect();
    for _ in 0..2_000 {
        now += Span::from_ms(1);
        for i in 0..2 {
            if ids[i].is_none() && (i == 0 || stream.is_some()) {
                ids[i] = client.add_carrier(now, links[i][0].binding().unwrap().unwrap());
            }
        }
        stream = stream.or_else(|| client.open_stream(Dir::Uni));
        if let Some(stream) = stream {
            written += client.write(stream, &data[written..]).unwrap();
        }
        let mut out = Vec::new();
        while let Some(id) = client.poll_transmit(now, &mut out) {
            let link = ids.iter().position(|own| *own == Some(id)).unwrap();
            let (mut wire, mut plain) = (Vec::new(), Vec::new());
            links[link][0].write(&out, &mut wire).unwrap();
            assert!(out.len() < 64 || !wire.windows(64).any(|part| part == &out[..64]), "it is encrypted");
            out.clear();
            links[link][1].read(&wire, &mut plain).unwrap();
            let binding = links[link][1].binding().unwrap().unwrap();
            let mut rest = &plain[..];
            if server.as_ref().is_none_or(|server| !server.carrier_ids().any(|own| own == id)) {
                match Acceptor::default().read(&mut rest).unwrap().unwrap() {
                    Greeting::Hello(hello) => {
                        server =
                            Some(Session::accept(now, Config::default(), Secrets([2; 32]), &hello, binding));
                    }
                    Greeting::Join(join) => {
                        assert_eq!(server.as_mut().unwrap().join(now, &join, binding), Ok(id))
                    }
                }
            }
            server.as_mut().unwrap().handle_bytes(now, id, rest);
        }
        let Some(server) = &mut server else { continue };
        while let Some(id) = server.poll_transmit(now, &mut out) {
            let link = ids.iter().position(|own| *own == Some(id)).unwrap();
            let (mut wire, mut plain) = (Vec::new(), Vec::new());
            links[link][1].write(&out, &mut wire).unwrap();
            out.clear();
            links[link][0].read(&wire, &mut plain).unwrap();
            client.handle_bytes(now, id, &plain);
        }
        let mut buffer = [0; 20_000];
        while let Some(stream) = stream
            && let Ok(Some(len @ 1..)) = server.read(stream, &mut buffer)
        {
            received.extend_from_slice(&buffer[..len]);
        }
        for id in client.carrier_ids().collect::<Vec<_>>() {
            client.set_info(now, id, Default::default());
        }
        client.handle_timeout(now);
        server.handle_timeout(now);
        if received.len() == data.len() {
            break;
        }
    }
    assert!(received == data, "{} of {} bytes", received.len(), data.len());
    assert_eq!(client.carriers().filter(|own| own.open).count(), 2);
    assert!(
        client.carriers().all(|own| own.bytes_out > 50_000),
        "both carry: {:?}",
        client.carriers().collect::<Vec<_>>()
    );
}

#[test]
fn untrusted_server_is_refused() {
    let (client, _) = configs("peer.test");
    let (_, server) = configs("peer.test");
    assert!(handshake(&client, &server).is_err());
}

#[test]
fn bindings_agree_at_both_ends_and_differ_between_connections() {
    let (client, server) = configs("peer.test");
    let [a, b] = [(); 2].map(|()| handshake(&client, &server).unwrap());
    let binding = |tls: &Tls| tls.binding().unwrap().unwrap();
    assert!(binding(&a[0]) == binding(&a[1]) && binding(&a[0]) != binding(&b[0]));
    let early = Tls::server(server).unwrap();
    assert_eq!(early.binding().unwrap(), None);
}
