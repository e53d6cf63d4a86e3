//! The session: streams over carriers.
//!
//! | module | |
//! |---|---|
//! | `greeting` | carriers that begin: HELLO, JOIN and their answers |
//! | `receive` | records received, acknowledgments among them |
//! | `send` | records to send: which, and on which carrier |
//! | `liveness` | silent carriers, ends of carriers and sessions, timers |
//! | `late` | carriers whose data would arrive sooner on others |

mod greeting;
mod late;
mod liveness;
mod receive;
mod send;

use crate::carrier::{Carrier, CarrierInfo, Control, State};
use crate::config::Config;
use crate::error::SessionError;
use crate::event::{CarrierId, Event};
use crate::keys::{Nonce, Role, SessionKey, Token};
use crate::wire;
use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use vmcc_multipath::{ReinjectionBudget, Selector};
use vmcc_streams::ranges::Ranges;
use vmcc_streams::{Dir, StreamError, Streams};
use vmcc_units::time::{Span, Time};

/// State of a carrier for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CarrierStats {
    /// Its number.
    pub carrier: CarrierId,
    /// It can carry data.
    pub open: bool,
    /// It is silent while others work.
    pub suspect: bool,
    /// It is late while another is on time: it carries probes only.
    pub late: bool,
    /// It carries data only while no other one can.
    pub backup: bool,
    /// Smoothed RTT at session level.
    pub srtt: Span,
    /// Records that the peer has not acknowledged.
    pub outstanding: usize,
    /// Bytes of records that were handed out.
    pub bytes_out: u64,
    /// Bytes of records that were received.
    pub bytes_in: u64,
}

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes of streams that returned from a silent, late or ended carrier.
    pub returned_bytes: u64,
    /// Bytes of streams that were sent again early on a faster carrier, or on several at once.
    pub repeated_bytes: u64,
    /// Carriers that became suspect.
    pub suspicions: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A client's, before WELCOME.
    Connecting,
    Open,
    Closed,
}

/// Streams striped over carriers. See the [crate](crate) for how it is driven.
#[derive(Debug)]
pub struct Session {
    config: Config,
    role: Role,
    phase: Phase,
    nonce: Nonce,
    token: Token,
    /// Known once the session is open.
    key: Option<SessionKey>,
    streams: Streams,
    carriers: Vec<Carrier>,
    selector: Selector,
    reinjection: ReinjectionBudget,
    /// Number of a client's next carrier.
    next_number: CarrierId,
    /// Numbers of a server's carriers that were used.
    used: Ranges,
    /// Control frames in order, each once.
    controls: VecDeque<Control>,
    queued: HashSet<Control>,
    /// Counts of carriers that have ended, for one last acknowledgment.
    final_acks: Vec<(CarrierId, u64)>,
    /// The time since which there is no carrier.
    orphaned_at: Option<Time>,
    events: VecDeque<Event>,
    stats: Stats,
}

impl Session {
    fn new(config: Config, role: Role, nonce: Nonce, token: Token) -> Session {
        let side = match role {
            Role::Client => vmcc_streams::Side::Client,
            Role::Server => vmcc_streams::Side::Server,
        };
        Session {
            role,
            phase: Phase::Connecting,
            nonce,
            token,
            key: None,
            streams: Streams::new(side, config.limits()),
            carriers: Vec::new(),
            selector: Selector::new(config.scheduler),
            reinjection: ReinjectionBudget::default(),
            next_number: 0,
            used: Ranges::default(),
            controls: VecDeque::new(),
            queued: HashSet::new(),
            final_acks: Vec::new(),
            orphaned_at: None,
            events: VecDeque::new(),
            stats: Stats::default(),
            config,
        }
    }

    /// The session's public name, which its further carriers show.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns true at the end that connects.
    pub fn is_client(&self) -> bool {
        self.role == Role::Client
    }

    /// Returns true once the session is over. What [`poll_transmit`](Self::poll_transmit) still gives is to be written.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        // `Closed` is the last event of all.
        let is_closed = matches!(self.events.front(), Some(Event::Closed(_)) | None);
        let stream = if is_closed { self.streams.poll_event() } else { None };
        stream.map(Event::from).or_else(|| self.events.pop_front())
    }

    /// Takes a snapshot of a carrier's TCP. Due before [`poll_transmit`](Self::poll_transmit) whenever the carrier was written to or
    /// has become writable.
    pub fn set_info(&mut self, now: Time, carrier: CarrierId, info: CarrierInfo) {
        let Some(slot) = self.slot_of(carrier) else { return };
        self.carriers[slot].set_info(now, info);
        if self.carriers[slot].tcp_timed_out() {
            self.suspect_if_silent(now, slot);
        }
    }

    /// Makes a carrier a backup: it carries data only while no other carrier can. Each end decides for its own direction.
    pub fn set_backup(&mut self, carrier: CarrierId, backup: bool) {
        if let Some(slot) = self.slot_of(carrier) {
            self.carriers[slot].backup = backup;
            self.refresh(slot);
        }
    }

    /// Opens a stream; none if the peer allows no more now.
    pub fn open_stream(&mut self, dir: Dir) -> Option<u64> {
        if self.phase == Phase::Open { self.streams.open(dir) } else { None }
    }

    /// Takes as much of `data` as there is room for.
    ///
    /// # Errors
    /// The stream is not open for writing.
    pub fn write(&mut self, stream: u64, data: &[u8]) -> Result<usize, StreamError> {
        self.streams.write(stream, data)
    }

    /// Ends the sending half of a stream.
    ///
    /// # Errors
    /// The stream is not open for writing.
    pub fn finish(&mut self, stream: u64) -> Result<(), StreamError> {
        self.streams.finish(stream)
    }

    /// Ends the sending half of a stream with what has been sent: what was never sent is dropped.
    ///
    /// # Errors
    /// The stream is not open for writing.
    pub fn truncate(&mut self, stream: u64) -> Result<(), StreamError> {
        self.streams.truncate(stream)
    }

    /// Bytes of a stream that were written and not sent.
    pub fn unsent(&self, stream: u64) -> u64 {
        self.streams.unsent(stream)
    }

    /// Gives up the sending half of a stream, with a code for the peer's application.
    ///
    /// # Errors
    /// The stream is not open for writing.
    pub fn reset(&mut self, stream: u64, code: u64) -> Result<(), StreamError> {
        self.streams.reset(stream, code)
    }

    /// Reads bytes in order: their number, or none at the end of the stream.
    ///
    /// # Errors
    /// The stream is not open for reading, or was reset.
    pub fn read(&mut self, stream: u64, out: &mut [u8]) -> Result<Option<usize>, StreamError> {
        self.streams.read(stream, out)
    }

    /// Gives up the receiving half of a stream.
    ///
    /// # Errors
    /// The stream is not open for reading.
    pub fn stop(&mut self, stream: u64, code: u64) -> Result<(), StreamError> {
        self.streams.stop(stream, code)
    }

    /// Tells the peer of an address at which this end can be reached, or cannot any more.
    pub fn announce(&mut self, address: SocketAddr, reachable: bool) {
        self.queue(Control::Address { added: reachable, address });
    }

    /// Ends the session. Unsent data are dropped: finish the streams first.
    pub fn close(&mut self, code: u64, reason: &str) {
        if self.phase == Phase::Closed {
            return;
        }
        // What has arrived is acknowledged with it: the peer may wait for that.
        let counts = self.take_acks();
        let record = wire::record(|out| {
            if !counts.is_empty() {
                wire::put_ack(out, &counts);
            }
            wire::put_close(out, code, reason);
        });
        for carrier in self.carriers.iter_mut().filter(|carrier| carrier.is_open()) {
            carrier.urgent.extend_from_slice(&record);
        }
        self.end(SessionError::LocallyClosed);
    }

    fn end(&mut self, error: SessionError) {
        if self.phase != Phase::Closed {
            self.phase = Phase::Closed;
            self.events.push_back(Event::Closed(error));
        }
    }

    /// State of every carrier.
    pub fn carriers(&self) -> impl Iterator<Item = CarrierStats> {
        self.carriers.iter().filter(|carrier| carrier.state != State::Closed).map(|carrier| CarrierStats {
            carrier: carrier.number,
            open: carrier.is_open(),
            suspect: carrier.is_suspect(),
            late: carrier.withheld,
            backup: carrier.backup,
            srtt: carrier.rtt.srtt(),
            outstanding: carrier.outstanding.len(),
            bytes_out: carrier.bytes_out,
            bytes_in: carrier.bytes_in,
        })
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    fn slot_of(&self, carrier: CarrierId) -> Option<usize> {
        self.carriers.iter().position(|own| own.number == carrier && own.state != State::Closed)
    }

    fn queue(&mut self, control: Control) {
        if self.queued.insert(control) {
            self.controls.push_back(control);
        }
    }
}
