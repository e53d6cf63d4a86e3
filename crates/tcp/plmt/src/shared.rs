//! State that a session's driver, its connection and its streams share.

use crate::socket::{CarrierSocket, NewSocket};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;
use vmcc_tcp::{CarrierError, CarrierId, Event, Session, SessionError, StreamError};
use vmcc_units::time::{Span, Time};

/// Ends of carriers that nobody has waited for are kept up to this number.
const MAX_ENDED: usize = 64;

#[derive(Debug)]
pub(crate) struct Shared(Mutex<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) session: Session,
    pub(crate) sockets: Vec<CarrierSocket>,
    /// Bytes that arrived before the driver took a socket over.
    pub(crate) early: Vec<(CarrierId, Vec<u8>)>,
    pub(crate) driver: Option<Waker>,
    pub(crate) readers: HashMap<u64, Waker>,
    pub(crate) writers: HashMap<u64, Waker>,
    /// Tasks that wait for anything else.
    pub(crate) waiting: Vec<Waker>,
    /// Streams that the peer has opened.
    pub(crate) opened: VecDeque<u64>,
    /// Streams that are written to, with the end of their data.
    pub(crate) sending: HashMap<u64, Option<SendingEnd>>,
    pub(crate) connected: bool,
    pub(crate) error: Option<SessionError>,
    /// Carriers that have ended, with the reason.
    pub(crate) ended: VecDeque<(CarrierId, CarrierError)>,
    /// The driver has ended: nothing more leaves.
    pub(crate) drained: bool,
    begin: Instant,
}

/// End of a stream's written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendingEnd {
    /// The peer has all of them.
    Acked,
    /// The peer wants no more.
    Stopped,
}

/// Clock of all sessions of a program; its zero is a second ago, so that no time is zero.
pub(crate) fn time_since(begin: Instant) -> Time {
    let ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Time::ZERO + Span::from_secs(1) + Span::from_ns(ns)
}

impl Shared {
    pub(crate) fn new(session: Session, begin: Instant) -> Arc<Shared> {
        Arc::new(Shared(Mutex::new(Inner {
            session,
            sockets: Vec::new(),
            early: Vec::new(),
            driver: None,
            readers: HashMap::new(),
            writers: HashMap::new(),
            waiting: Vec::new(),
            opened: VecDeque::new(),
            sending: HashMap::new(),
            connected: false,
            error: None,
            ended: VecDeque::new(),
            drained: false,
            begin,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // State is whole between calls, also after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    pub(crate) fn now(&self) -> Time {
        time_since(self.begin)
    }

    pub(crate) fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    /// Gives a connection to the carrier that the session has made for it.
    pub(crate) fn add_socket(&mut self, id: CarrierId, new: NewSocket) {
        let NewSocket { pipe, secured } = new;
        self.session.set_backup(id, pipe.is_backup());
        self.sockets.push(CarrierSocket::new(id, pipe, secured.tls));
        self.early.push((id, secured.early));
        self.wake_driver();
    }

    /// Hands events out to the tasks that wait for them.
    pub(crate) fn dispatch(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::StreamReadable { stream } => wake(self.readers.remove(&stream)),
                Event::StreamWritable { stream } => wake(self.writers.remove(&stream)),
                Event::StreamFinished { stream } => self.end_sending(stream, SendingEnd::Acked),
                Event::StreamStopped { stream, .. } => self.end_sending(stream, SendingEnd::Stopped),
                Event::StreamOpened { stream } => {
                    self.opened.push_back(stream);
                    self.wake_waiting();
                }
                Event::CarrierClosed { carrier, reason } => {
                    self.sockets.retain(|socket| socket.id != carrier);
                    self.ended.push_back((carrier, reason));
                    self.ended.drain(..self.ended.len().saturating_sub(MAX_ENDED));
                    self.wake_waiting();
                }
                Event::Connected => {
                    self.connected = true;
                    self.wake_waiting();
                }
                Event::Closed(error) => {
                    self.error = Some(error);
                    self.readers.drain().chain(self.writers.drain()).for_each(|(_, waker)| waker.wake());
                    self.wake_waiting();
                }
                _ => self.wake_waiting(),
            }
        }
    }

    fn end_sending(&mut self, stream: u64, end: SendingEnd) {
        if let Some(sending) = self.sending.get_mut(&stream) {
            sending.get_or_insert(end);
        }
        wake(self.writers.remove(&stream));
        self.wake_waiting();
    }

    pub(crate) fn wake_waiting(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// The session's end as an error of streams.
    pub(crate) fn broken(&self) -> io::Error {
        let error = self.error.clone().unwrap_or(SessionError::LocallyClosed);
        let kind = match error {
            SessionError::TimedOut => io::ErrorKind::TimedOut,
            SessionError::Lost => io::ErrorKind::ConnectionReset,
            _ => io::ErrorKind::ConnectionAborted,
        };
        io::Error::new(kind, error)
    }

    /// A stream's error, unless the whole session has ended.
    pub(crate) fn explain(&self, error: StreamError) -> io::Error {
        if self.error.is_some() {
            return self.broken();
        }
        let kind = match error {
            StreamError::Reset(_) => io::ErrorKind::ConnectionReset,
            StreamError::Stopped(_) => io::ErrorKind::BrokenPipe,
            _ => io::ErrorKind::NotConnected,
        };
        io::Error::new(kind, error)
    }
}

fn wake(waker: Option<Waker>) {
    waker.into_iter().for_each(Waker::wake);
}
