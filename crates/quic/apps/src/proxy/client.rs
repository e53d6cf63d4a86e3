//! The side of the programs: SOCKS5, and fixed forwards.

use super::datagrams::Associations;
use super::link::{EventHandler, Link};
use super::owner::user_of;
use super::relay::{Keepalive, Progress, relay};
use super::slots::{Slot, Slots};
use super::socks::{self, Request};
use super::{ClientJob, Event, MAX_MESSAGE, Open, ProxyError, Reply, start_exporters};
use crate::endpoint_addr::EndpointAddr;
use crate::relays;
use crate::run::{block_on, run_until, stop_requested};
use crate::session::{Carrier, Stream};
use crate::wire;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// Programs' connections at a time; others wait in the listener's queue. Fewer than [`super::MAX_STREAMS`], so that each has a stream.
const MAX_PROGRAMS: usize = 1000;
/// UDP associations of programs at a time.
const MAX_ASSOCIATIONS: usize = 256;
/// Idle time after which a program gives way to a new one of its user, if all places are taken.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a program to say what it wants.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Until an error of `accept` may have passed, such as too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Service of a listener.
#[derive(Clone)]
enum Service {
    Socks,
    Forward(EndpointAddr),
}

/// Serves programs until `stop`.
///
/// # Errors
/// It cannot begin: nobody is trusted, an address is taken, or the server is not reached.
pub fn client(job: &ClientJob, tell: EventHandler, stop: &AtomicBool) -> Result<(), ProxyError> {
    if job.peers.is_empty() {
        return Err(ProxyError::NoPeer);
    }
    if job.carrier != Carrier::Udp && !job.relays.is_empty() {
        return Err(ProxyError::NotOverTcp("--relay", "relays pass on UDP alone"));
    }
    if job.carrier == Carrier::Tcp && job.metrics.is_some() {
        return Err(ProxyError::NotOverTcp(
            "--metrics",
            "its figures are those of QUIC; `vmcc status` has those of TCP",
        ));
    }
    if job.carrier == Carrier::Udp && job.http_proxy.is_some() {
        return Err(ProxyError::NeedsTcp);
    }
    let socks = job.socks.map(|address| (address, Service::Socks));
    let forwards = job.forwards.iter();
    let forwards = forwards.map(|f| (f.listen, Service::Forward(f.to.clone())));
    let services: Vec<_> = socks.into_iter().chain(forwards).collect();
    if let Some((open, _)) = services.iter().find(|(address, _)| !address.ip().is_loopback()) {
        return Err(ProxyError::Open(*open));
    }
    // Each program takes two.
    vmcc_config::allow_open_files();
    block_on(async {
        let mut listeners = Vec::new();
        for (address, service) in services {
            let listener = TcpListener::bind(address).await;
            let listener = listener.map_err(|source| ProxyError::Listen { address, source })?;
            listeners.push((listener, service));
        }
        // Once: later, nobody may answer for the name.
        let relays = run_until(stop_requested(stop), relays::resolve(&job.relays)).await;
        let link = Link::new(job, relays.ok_or(ProxyError::Interrupted)??, tell.clone())?;
        let link = Arc::new(link);
        let _exporters = start_exporters(&link.client.registry, job.metrics, &tell)?;
        run_until(stop_requested(stop), link.accepted()).await.ok_or(ProxyError::Interrupted)??;
        let context = ClientContext {
            link: link.clone(),
            slots: Slots::new(MAX_PROGRAMS, IDLE_TIMEOUT),
            tell: tell.clone(),
            association_slots: Slots::new(MAX_ASSOCIATIONS, IDLE_TIMEOUT),
            associations: Associations::new(link.clone()),
        };
        for (listener, service) in listeners {
            let what = if matches!(service, Service::Socks) { "SOCKS5" } else { "a forward" };
            tell(Event::Listening(what, listener.local_addr()?));
            tokio::spawn(listen(context.clone(), listener, service));
        }
        stop_requested(stop).await;
        let _ = timeout(CLOSE_TIMEOUT, link.client.registry.close(0, "the proxy ends")).await;
        Ok(())
    })?
}

#[derive(Clone)]
struct ClientContext {
    link: Arc<Link>,
    slots: Arc<Slots>,
    tell: EventHandler,
    association_slots: Arc<Slots>,
    associations: Associations,
}

async fn listen(context: ClientContext, listener: TcpListener, service: Service) {
    loop {
        match listener.accept().await {
            Ok((tcp, from)) => {
                let owner = tcp.local_addr().ok().and_then(|here| user_of(from, here));
                let slot = context.slots.acquire(owner, |size| (context.tell)(Event::Full(size))).await;
                let (context, service) = (context.clone(), service.clone());
                tokio::spawn(async move {
                    // An error of one program's connection ends that connection, with a SOCKS5 reply.
                    let _ = run_until(slot.evicted(), serve(&context, tcp, service, owner, &slot)).await;
                });
            }
            Err(_) => sleep(ACCEPT_RETRY_DELAY).await,
        }
    }
}

async fn serve(
    context: &ClientContext,
    mut tcp: TcpStream,
    service: Service,
    owner: Option<u32>,
    slot: &Slot,
) -> io::Result<()> {
    let request = match service {
        Service::Forward(EndpointAddr { host, port }) => {
            slot.keep();
            return match context.connect(&host, port).await {
                Ok(stream) => {
                    carry(tcp, stream, slot).await;
                    Ok(())
                }
                // A program that is not answered is to see it as such.
                Err(_) => tcp.set_zero_linger(),
            };
        }
        Service::Socks => timeout(GREETING_TIMEOUT, socks::read_request(&mut tcp)).await??,
    };
    slot.keep();
    match request {
        Request::Connect { host, port } => match context.connect(&host, port).await {
            Ok(stream) => {
                socks::grant(&mut tcp, None).await?;
                carry(tcp, stream, slot).await;
                Ok(())
            }
            Err(code) => socks::refuse(&mut tcp, code).await,
        },
        Request::Associate(from) => {
            let place = context.association_slots.acquire(owner, |_| {});
            let Ok(place) = timeout(GREETING_TIMEOUT, place).await else {
                return socks::refuse(&mut tcp, socks::FAILED).await;
            };
            place.keep();
            let carried = || [slot, &place].iter().for_each(|slot| slot.on(Progress::Carried));
            let served = context.associations.serve(tcp, from, &carried);
            run_until(place.evicted(), served).await.unwrap_or(Ok(()))
        }
    }
}

async fn carry(tcp: TcpStream, stream: Stream, slot: &Slot) {
    relay(tcp, stream, Keepalive::LOCAL, |progress| slot.on(progress)).await;
}

impl ClientContext {
    /// A stream that leads there, or the code of SOCKS5 that says why not.
    async fn connect(&self, host: &str, port: u16) -> Result<Stream, u8> {
        let connection = self.link.connection().await.map_err(|_| socks::NETWORK_UNREACHABLE)?;
        let failed = |_: io::Error| socks::FAILED;
        let mut stream = connection.open_stream().await.map_err(|_| socks::FAILED)?;
        wire::write(&mut stream, &Open::Connect { host: host.to_owned(), port }).await.map_err(failed)?;
        let Reply { code } = wire::read_at_most(&mut stream, MAX_MESSAGE).await.map_err(failed)?;
        if code == socks::SUCCEEDED { Ok(stream) } else { Err(code) }
    }
}
