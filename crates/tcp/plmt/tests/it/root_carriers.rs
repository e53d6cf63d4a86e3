//! Sessions over two shaped paths between network namespaces: aggregation, silent cuts, resets. Needs root.

use crate::pair::{BOUND, security, wait_carriers};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::timeout;
use vmcc_plmt::{Config, Connection, Listener, Route, connect};
use vmcc_testkit::judge;
use vmcc_testkit::netns::{Namespace, join};

/// Rate of each path, as the shaper counts it.
const PATH_MBPS: f64 = 20.0;
/// Goodput of that: 1448 bytes of every 1514.
const NOMINAL_MBPS: f64 = PATH_MBPS * 1448.0 / 1514.0;
const PORT: u16 = 4433;

/// A client and a server with two shaped paths between them.
struct Paths {
    client: Namespace,
    server: Namespace,
}

impl Paths {
    fn new() -> Paths {
        let paths = Paths { client: Namespace::new("c"), server: Namespace::new("s") };
        let (client, server) = (&paths.client, &paths.server);
        for i in 0..2 {
            join(client, server, &format!("p{i}"), &format!("10.80.{i}"));
            for end in [client, server] {
                end.run(&format!(
                    "tc qdisc add dev p{i} root tbf rate {PATH_MBPS}mbit burst 16kb latency 50ms"
                ));
            }
        }
        paths
    }

    fn address(path: usize) -> SocketAddr {
        SocketAddr::new([10, 80, path as u8, 2].into(), PORT)
    }

    fn filter(&self, action: &str, path: usize, target: &str) {
        for end in [&self.client, &self.server] {
            end.run(&format!("iptables -{action} INPUT -i p{path} -p tcp -j {target}"));
        }
    }

    /// Runs a server and a client, each on a runtime in its namespace; the client's result.
    fn run<T: Send, C, S>(&self, client: C, server: S) -> T
    where
        C: AsyncFnOnce() -> T + Send,
        S: AsyncFnOnce() + Send,
    {
        thread::scope(|scope| {
            let server = scope.spawn(|| self.server.within(|| block_on(server())));
            let result = self.client.within(|| block_on(client()));
            server.join().unwrap();
            result
        })
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(2 * BOUND, work).await.expect("it ends") })
}

fn byte(i: u64) -> u8 {
    (i ^ i >> 8 ^ i >> 16).wrapping_mul(31) as u8
}

/// Progress of a receiver: bytes, and the time of each read.
type Progress = Arc<Mutex<Vec<(Instant, u64)>>>;

fn received(progress: &Progress) -> u64 {
    progress.lock().unwrap().last().map_or(0, |(_, bytes)| *bytes)
}

/// Accepts a session and checks one stream of it, to its end.
async fn receive(listening: oneshot::Sender<()>, security: vmcc_plmt::ServerSecurity, progress: Progress) {
    let addresses = [0, 1].map(Paths::address);
    let mut listener = Listener::bind(&addresses, Config::default(), security, false).await.unwrap();
    listening.send(()).unwrap();
    let connection = listener.accept().await.unwrap();
    let (mut send, mut stream) = connection.accept_stream().await.unwrap().into_split();
    let (mut buffer, mut read) = (vec![0; 1 << 16], 0_u64);
    loop {
        let len = stream.read(&mut buffer).await.unwrap();
        assert!(buffer[..len].iter().enumerate().all(|(i, &got)| got == byte(read + i as u64)), "at {read}");
        read += len as u64;
        progress.lock().unwrap().push((Instant::now(), read));
        if len == 0 {
            send.shutdown().await.unwrap();
            send.wait_acked().await.unwrap();
            // The client closes the session.
            connection.closed().await;
            return;
        }
    }
}

/// A client's session with two carriers.
async fn open(listening: oneshot::Receiver<()>, security: vmcc_plmt::ClientSecurity) -> Connection {
    listening.await.unwrap();
    let connection = connect(Config::default(), security, [0, 1].map(route).to_vec(), None).await.unwrap().0;
    wait_carriers(&connection, 2).await;
    connection
}

async fn send(connection: &Connection, size: u64) {
    let mut stream = connection.open_stream().await.unwrap();
    let mut at = 0;
    while at < size {
        let len = (size - at).min(1 << 16);
        let data: Vec<u8> = (at..at + len).map(byte).collect();
        stream.write_all(&data).await.unwrap();
        at += len;
    }
    stream.shutdown().await.unwrap();
    // The receiver's end says that it has read everything.
    assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap(), 0);
}

/// One stream over both paths; `fault` runs beside it. Its progress, and the carriers at its end.
fn transfer(paths: &Paths, size: u64, fault: impl FnOnce(&Progress) + Send) -> (Vec<(Instant, u64)>, usize) {
    let (client_security, server_security) = security();
    let (listening, is_listening) = oneshot::channel();
    let progress = Progress::default();
    let ours = progress.clone();
    let carriers = thread::scope(|scope| {
        let faults = scope.spawn(|| fault(&ours));
        let carriers = paths.run(
            async || {
                let connection = open(is_listening, client_security).await;
                send(&connection, size).await;
                let carriers = connection.carriers();
                println!("{:?} {carriers:?}", connection.stats());
                connection.close(0, "");
                connection.drained().await;
                carriers.iter().filter(|carrier| carrier.open && !carrier.suspect).count()
            },
            async || receive(listening, server_security, progress.clone()).await,
        );
        faults.join().unwrap();
        carriers
    });
    let all = ours.lock().unwrap().clone();
    assert_eq!(all.last().unwrap().1, size);
    (all, carriers)
}

fn goodput_mbps(progress: &[(Instant, u64)]) -> f64 {
    let (first, last) = (progress[0], progress[progress.len() - 1]);
    (last.1 - first.1) as f64 * 8.0 / 1e6 / last.0.duration_since(first.0).as_secs_f64()
}

fn route(path: usize) -> Route {
    Route { local: None, device: Some(format!("p{path}")), remote: Paths::address(path), proxy: None }
}

/// The control: one session per path, both at once; the sum of their goodputs.
fn separate_sum_mbps(paths: &Paths, size: u64) -> f64 {
    let (client_security, server_security) = security();
    let (listening, is_listening) = oneshot::channel();
    let one = |path: usize| {
        let security = client_security.clone();
        async move {
            let connection = connect(Config::default(), security, vec![route(path)], None).await.unwrap().0;
            let begin = Instant::now();
            send(&connection, size).await;
            let rate = size as f64 * 8.0 / 1e6 / begin.elapsed().as_secs_f64();
            connection.close(0, "");
            connection.drained().await;
            rate
        }
    };
    paths.run(
        async || {
            is_listening.await.unwrap();
            let (a, b) = tokio::join!(one(0), one(1));
            a + b
        },
        async || {
            let addresses = [0, 1].map(Paths::address);
            let mut listener =
                Listener::bind(&addresses, Config::default(), server_security, false).await.unwrap();
            listening.send(()).unwrap();
            let drain = |connection: Connection| async move {
                let mut stream = connection.accept_stream().await.unwrap();
                tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.unwrap();
                stream.shutdown().await.unwrap();
                connection.closed().await;
            };
            let (first, second) = (listener.accept().await.unwrap(), listener.accept().await.unwrap());
            tokio::join!(drain(first), drain(second));
        },
    )
}

#[test]
fn root_one_stream_aggregates_two_paths() {
    let paths = Paths::new();
    let size = 15_000_000;
    judge(
        || {
            let before = separate_sum_mbps(&paths, size / 4);
            let session = goodput_mbps(&transfer(&paths, size, |_| {}).0);
            let after = separate_sum_mbps(&paths, size / 4);
            println!(
                "a session per path {before:.2}, one over both {session:.2}, a session per path {after:.2} Mbit/s"
            );
            (before, session, after)
        },
        |(before, session, after)| {
            let sum = before.max(*after);
            assert!(*session >= 0.95 * sum, "{session:.2} of {sum:.2} Mbit/s");
            assert!(*session > 1.5 * NOMINAL_MBPS, "more than one path carries");
        },
        |(before, _, after)| before.min(*after) / (2.0 * NOMINAL_MBPS),
    );
}

fn wait_received(progress: &Progress, bytes: u64) {
    let begin = Instant::now();
    while received(progress) < bytes {
        assert!(begin.elapsed() < BOUND, "{} of {bytes} bytes", received(progress));
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn root_silent_cut_of_either_path_loses_nothing() {
    let paths = Paths::new();
    for cut in 0..2 {
        judge(
            || {
                let (progress, _) = transfer(&paths, 10_000_000, |progress| {
                    wait_received(progress, 3_000_000);
                    paths.filter("A", cut, "DROP");
                });
                paths.filter("D", cut, "DROP");
                let gaps = progress.windows(2).map(|pair| pair[1].0.duration_since(pair[0].0));
                let stall = gaps.max().unwrap();
                println!("path {cut} cut: stall {stall:?}");
                stall
            },
            |stall| assert!(*stall <= Duration::from_secs(2), "{stall:?}"),
            |_| separate_sum_mbps(&paths, 3_000_000) / (2.0 * NOMINAL_MBPS),
        );
    }
}

#[test]
fn root_reset_path_is_redialled() {
    let paths = Paths::new();
    let (_, carriers) = transfer(&paths, 20_000_000, |progress| {
        wait_received(progress, 3_000_000);
        paths.filter("A", 1, "REJECT --reject-with tcp-reset");
        wait_received(progress, 6_000_000);
        paths.filter("D", 1, "REJECT --reject-with tcp-reset");
    });
    assert_eq!(carriers, 2, "the carrier has joined again");
}
