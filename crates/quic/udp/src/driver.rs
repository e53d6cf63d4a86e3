//! Driver task: moves datagrams between engine and sockets, and runs the engine's timers.

use crate::relay::RelaySocket;
use crate::shared::{Inner, Shared};
use crate::socket::{Buffers, Refusal};
use crate::tx_batch::TxBatch;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use vmcc_units::time::Time;

/// Rounds of one poll before other tasks run.
const MAX_ROUNDS: usize = 8;
/// Bytes received in one poll before their readers run: later they are no longer in the processor's cache.
const RECEIVE_BUDGET: usize = 384 << 10;
/// Transmit batches of one round, so that sending does not delay receiving.
const MAX_TX_BATCHES: usize = 32;

pub(crate) struct Driver {
    shared: Arc<Shared>,
    buffers: Buffers,
    tx_batch: TxBatch,
    sleep: Pin<Box<Sleep>>,
    /// Time for which `sleep` waits.
    due: Option<Time>,
    /// Bytes that came since others had their turn.
    received: usize,
}

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>) -> Driver {
        let sleep = Box::pin(sleep_until(Instant::now()));
        Driver {
            shared,
            buffers: Buffers::new(),
            tx_batch: TxBatch::default(),
            sleep,
            due: None,
            received: 0,
        }
    }

    /// Runs one round; true if there is more to do at once.
    fn round(&mut self, inner: &mut Inner, cx: &mut Context<'_>) -> bool {
        let mut more = self.receive(inner, cx);
        let now = inner.now();
        let late = inner.engine.poll_timeout().is_some_and(|at| at <= now);
        inner.poll_icmp_errors(now, late);
        if late {
            inner.engine.handle_timeout(now);
        }
        more |= self.transmit(inner);
        more |= drive_relays(inner, cx);
        let mut refusals = Vec::new();
        inner.sockets.iter_mut().for_each(|socket| socket.poll_flush(cx, &mut refusals));
        more |= refused(inner, &refusals);
        inner.dispatch();
        more
    }

    fn receive(&mut self, inner: &mut Inner, cx: &mut Context<'_>) -> bool {
        let now = inner.now();
        let Inner { sockets, relays, engine, .. } = inner;
        let mut any = false;
        let mut take = |route, ecn, data: &mut [u8]| engine.handle_datagram(now, route, ecn, data);
        // An error of receiving is one of sending that came back (ICMP), and has its own way here.
        let mut came = |came: Poll<io::Result<usize>>| {
            any |= came.is_ready();
            self.received += match came {
                Poll::Ready(Ok(bytes)) => bytes,
                _ => 0,
            };
        };
        for socket in sockets.iter() {
            came(socket.poll_receive(cx, &mut self.buffers, &mut take));
        }
        for relay in relays.iter_mut() {
            came(relay.poll_receive(now, cx, &mut self.buffers, &mut take));
        }
        any
    }

    /// Sends what there is; whether there may be more.
    fn transmit(&mut self, inner: &mut Inner) -> bool {
        let mut more = true;
        for _ in 0..MAX_TX_BATCHES {
            more = self.tx_batch.gather(inner);
            let mut refusals = Vec::new();
            self.tx_batch.send(inner, &mut refusals);
            refused(inner, &refusals);
            if !more {
                break;
            }
        }
        more
    }

    /// Has this task woken when the engine wants to.
    fn set_timer(&mut self, inner: &mut Inner, cx: &mut Context<'_>) -> bool {
        let relays = inner.relays.iter().filter_map(RelaySocket::poll_timeout);
        let due = relays.chain(inner.engine.poll_timeout()).chain(inner.next_icmp_poll()).min();
        let Some(at) = due else { return false };
        if self.due != due {
            self.due = due;
            let wait = Duration::from_nanos(at.since(inner.now()).ns());
            self.sleep.as_mut().reset(Instant::now() + wait);
        }
        let over = self.sleep.as_mut().poll(cx).is_ready();
        if over {
            self.due = None;
        }
        over
    }
}

/// Drives the relay sessions and reports their changes. Returns true if a path died.
fn drive_relays(inner: &mut Inner, cx: &mut Context<'_>) -> bool {
    let now = inner.now();
    let (mut dead, mut has_changed) = (Vec::new(), false);
    for at in 0..inner.relays.len() {
        let is_own_address = inner.is_own_address(at);
        let relay = &mut inner.relays[at];
        if is_own_address {
            relay.reject();
        }
        relay.poll_flush(cx, &mut dead);
        let changed = relay.drive(now);
        has_changed |= changed;
        if let Some(failure) = relay.failure().filter(|_| changed) {
            relay.refuse(&io::Error::new(io::ErrorKind::NotConnected, failure), &mut dead);
        }
    }
    inner.relays.retain(|relay| !relay.is_done());
    if has_changed {
        inner.relay_changes += 1;
        inner.relay_wakers.drain(..).for_each(std::task::Waker::wake);
    }
    refused(inner, &dead)
}

/// Tells of routes that the system refuses, but not of one that it may refuse only for now; whether there were any.
fn refused(inner: &mut Inner, refusals: &[Refusal]) -> bool {
    let passing = [io::ErrorKind::Interrupted, io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionRefused];
    for (route, error) in refusals {
        let no_room = error.raw_os_error() == Some(nix::libc::ENOBUFS);
        if !passing.contains(&error.kind()) && !no_room {
            inner.on_refusal(*route, error);
        }
    }
    !refusals.is_empty()
}

/// Returns true if nobody holds the endpoint any more, and every handle was notified.
fn is_over(inner: &mut Inner) -> bool {
    if inner.abandoned && inner.engine.is_idle() && !inner.relays.is_empty() {
        inner.close_relays(|_| true);
    }
    inner.abandoned && inner.engine.is_idle() && inner.relays.is_empty()
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let shared = this.shared.clone();
        let mut inner = shared.lock();
        inner.driver = Some(cx.waker().clone());
        this.received = 0;
        for _ in 0..MAX_ROUNDS {
            let more = this.round(&mut inner, cx);
            if !more && !this.set_timer(&mut inner, cx) {
                inner.rounds += 1;
                inner.idle_wakers.drain(..).for_each(std::task::Waker::wake);
                return if is_over(&mut inner) { Poll::Ready(()) } else { Poll::Pending };
            }
            if this.received >= RECEIVE_BUDGET {
                break;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
