//! Driver task of a session: moves bytes between its engine and its sockets, and runs its timers.

use crate::shared::{Inner, Shared};
use crate::socket::CarrierSocket;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use vmcc_tcp::MAX_RECORD;
use vmcc_units::time::Time;

/// Rounds of one poll before other tasks run.
const MAX_ROUNDS: usize = 8;
/// Bytes of one read.
const READ_SIZE: usize = 64 << 10;
/// Reads of one socket in one round.
const MAX_READS: usize = 4;
/// Bytes of records that are taken before sockets are written to.
const BATCH_SIZE: usize = 16 * MAX_RECORD;
/// Time for the last bytes of a closed session to leave.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Driver {
    shared: Arc<Shared>,
    buffer: Vec<u8>,
    plain: Vec<u8>,
    records: Vec<u8>,
    sleep: Pin<Box<Sleep>>,
    /// Time for which `sleep` waits.
    due: Option<Time>,
    closing: Option<Pin<Box<Sleep>>>,
}

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>) -> Driver {
        Driver {
            shared,
            buffer: vec![0; READ_SIZE],
            plain: Vec::new(),
            records: Vec::new(),
            sleep: Box::pin(sleep_until(Instant::now())),
            due: None,
            closing: None,
        }
    }

    /// Runs one round; true if there is more to do at once.
    fn round(&mut self, inner: &mut Inner, cx: &mut Context<'_>) -> bool {
        let mut more = self.receive(inner, cx);
        let now = inner.now();
        // A carrier that is not blocked any more is to be seen as such.
        Self::flush(inner, cx);
        // What TCP says decides which carriers are silent, and how much they take.
        let Inner { session, sockets, .. } = inner;
        sockets.iter().for_each(|socket| session.set_info(now, socket.id, socket.info()));
        if inner.session.poll_timeout().is_some_and(|at| at <= now) {
            inner.session.handle_timeout(now);
        }
        more |= self.transmit(inner, cx);
        inner.dispatch();
        more
    }

    fn receive(&mut self, inner: &mut Inner, cx: &mut Context<'_>) -> bool {
        let now = inner.now();
        for (id, bytes) in std::mem::take(&mut inner.early) {
            inner.session.handle_bytes(now, id, &bytes);
        }
        let Inner { session, sockets, .. } = inner;
        let mut more = false;
        for socket in sockets.iter_mut() {
            for read in 1..=MAX_READS {
                self.plain.clear();
                match socket.poll_read(cx, &mut self.buffer, &mut self.plain) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(0)) => {
                        session.carrier_closed(now, socket.id, "the peer ended the connection");
                        break;
                    }
                    Poll::Ready(Ok(_)) => session.handle_bytes(now, socket.id, &self.plain),
                    Poll::Ready(Err(error)) => {
                        session.carrier_closed(now, socket.id, &error.to_string());
                        break;
                    }
                }
                more |= read == MAX_READS;
            }
        }
        inner.dispatch();
        more
    }

    /// Sends what there is room for; true if there may be more at once.
    fn transmit(&mut self, inner: &mut Inner, cx: &mut Context<'_>) -> bool {
        let now = inner.now();
        let Inner { session, sockets, .. } = inner;
        let mut taken = 0;
        while taken < BATCH_SIZE {
            self.records.clear();
            let Some(id) = session.poll_transmit(now, &mut self.records) else { break };
            taken += self.records.len();
            let Some(socket) = sockets.iter_mut().find(|socket| socket.id == id) else { continue };
            if let Err(error) = socket.queue(&self.records) {
                session.carrier_closed(now, id, &error.to_string());
            }
        }
        if taken > 0 {
            Self::flush(inner, cx);
        }
        taken > 0
    }

    /// Writes what sockets take. The others wake this task.
    fn flush(inner: &mut Inner, cx: &mut Context<'_>) {
        let now = inner.now();
        let Inner { session, sockets, .. } = inner;
        for socket in sockets.iter_mut() {
            if let Poll::Ready(Err(error)) = socket.poll_flush(cx) {
                session.carrier_closed(now, socket.id, &error.to_string());
            }
        }
    }

    /// Has this task woken when the engine wants to; true if that is now.
    fn set_timer(&mut self, inner: &Inner, cx: &mut Context<'_>) -> bool {
        let due = inner.session.poll_timeout();
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

    /// A closed session ends once its last bytes have left.
    fn poll_close(&mut self, inner: &mut Inner, cx: &mut Context<'_>) -> Poll<()> {
        let closing =
            self.closing.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + CLOSE_TIMEOUT)));
        let is_flushed = inner.sockets.iter().all(|socket| socket.is_flushed());
        if is_flushed || closing.as_mut().poll(cx).is_ready() {
            if is_flushed {
                inner.sockets.iter_mut().for_each(CarrierSocket::end_gracefully);
            }
            inner.sockets.clear();
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let shared = self.shared.clone();
        let mut inner = shared.lock();
        inner.driver = Some(cx.waker().clone());
        for _ in 0..MAX_ROUNDS {
            let more = self.round(&mut inner, cx);
            if inner.session.is_closed() && !more {
                return self.poll_close(&mut inner, cx);
            }
            if !more && !self.set_timer(&inner, cx) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
