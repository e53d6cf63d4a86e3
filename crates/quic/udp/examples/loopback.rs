//! Throughput and cost of the sockets: both ends in one process, over paths of the loopback. `loopback [PATHS] [GIB] [SEGMENTS]`.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use vmcc_quic_testkit::tls;
use vmcc_transport::{Config, Retry, Server};
use vmcc_udp::{Endpoint, Target};

const PIECE: usize = 256 << 10;

fn ips(paths: u8) -> Vec<IpAddr> {
    (1..=paths).map(|last| IpAddr::from([127, 0, 0, last])).collect()
}

fn config(segments: usize) -> Arc<Config> {
    Arc::new(Config { max_segments: segments, ..vmcc_udp::config() })
}

/// Reads everything that the first connection's first stream brings.
async fn receive(server: Endpoint) -> u64 {
    let connection = server.accept().await;
    let mut stream = connection.accept_stream().await.expect("a stream");
    let (mut buffer, mut total) = (vec![0; PIECE], 0);
    loop {
        match stream.read(&mut buffer).await.expect("the stream goes on") {
            0 => break,
            some => total += some as u64,
        }
    }
    stream.write_all(b"!").await.expect("the peer waits");
    stream.shutdown().await.expect("the peer waits");
    connection.closed().await;
    total
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut number = |usual: u64| args.next().map_or(Ok(usual), |text| text.parse());
    let (paths, gib, segments) = (number(2)? as u8, number(4)?, number(44)? as usize);
    let config = config(segments);
    let server =
        Server { tls: tls::server(), config: config.clone(), retry: Retry::Above(8), max_connections: 8 };
    let far = Endpoint::new(Some(server))?;
    let bind = |ip: IpAddr| far.bind(SocketAddr::new(ip, 0));
    let addresses = ips(paths).into_iter().map(bind).collect::<Result<_, _>>()?;
    let received = tokio::spawn(receive(far.clone()));
    let near = Endpoint::new(None)?;
    let target = Target { name: "localhost".into(), addresses, locals: ips(paths), ..Target::default() };
    let connection = near.connect(tls::client(), config, &target).await?;
    // One path for each address, not for each pair.
    let candidates = target.candidates()?;
    let mut opened = vec![connection.paths()[0].route];
    while opened.len() < usize::from(paths) {
        tokio::time::sleep(Duration::from_millis(5)).await;
        for vmcc_udp::Candidate { source, remote, .. } in &candidates {
            let used =
                |route: &vmcc_transport::Route| route.local.ip() == source.ip || route.remote == *remote;
            let route = vmcc_transport::Route { local: near.bind_source(source, 0)?, remote: *remote };
            if !opened.iter().any(used) && connection.open_path(route).is_ok() {
                opened.push(route);
            }
        }
    }
    let mut stream = connection.open_stream().await?;
    let (began, cpu, piece) = (Instant::now(), cpu(), vec![7; PIECE]);
    for _ in 0..(gib << 30) / PIECE as u64 {
        stream.write_all(&piece).await?;
    }
    stream.shutdown().await?;
    stream.read_u8().await?;
    let (seconds, used) = (began.elapsed().as_secs_f64(), self::cpu() - cpu);
    for path in connection.paths() {
        println!(
            "{} to {}: {} bytes, {} lost",
            path.route.local, path.route.remote, path.bytes.1, path.lost_packets
        );
    }
    connection.close(0, "done");
    near.wait_idle().await;
    let bits = received.await? as f64 * 8e-9;
    println!(
        "{:.2} Gbit/s, {used:.2} CPU seconds of both ends: {:.2} Gbit per CPU second",
        bits / seconds,
        bits / used
    );
    Ok(())
}

/// Seconds of processor that this process has used.
fn cpu() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("of itself");
    (usage.user_time() + usage.system_time()).num_microseconds() as f64 * 1e-6
}
