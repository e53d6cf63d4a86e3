//! One flow of the machine's: its program, from when it starts to what it leaves.

use super::exchange::ClientExit;
use crate::Error;
use crate::clock::micros;
use crate::registry::Record;
use crate::sampler::Track;
use crate::spec::{Flow, server_port};
use crate::topology::Topology;
use crate::workload::{self, ClientSetup, End, Programs};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;
use vmcc_units::Nanos;

/// Timeout for a program to begin to send: more than `MIN_SENT_BYTES` acknowledged, which its requests to the other end do not reach.
pub(super) const SEND_START_TIMEOUT: Duration = Duration::from_secs(20);
const MIN_SENT_BYTES: u64 = 20_000;
/// Extra duration of a program that starts before the run begins: more than it has sent by then. Its receiver ends with the
/// run and so ends the program; otherwise it is ended `END_DELAY` after its flow.
const EARLY_START: Nanos = Nanos::from_secs(30);
const END_DELAY: Duration = Duration::from_secs(1);
pub(super) const LOOK_AT: &str = "run the same command by hand, and see whether the machine is overloaded";

/// A flow of this host.
pub(super) struct Sending<'a> {
    pub(super) number: usize,
    pub(super) flow: &'a Flow,
    pub(super) data: Option<PathBuf>,
    pub(super) client: Option<End>,
    pub(super) sent: Duration,
    /// True once its end was requested.
    pub(super) told: bool,
    pub(super) left: Option<ClientExit>,
}

impl Sending<'_> {
    /// True if there is nothing to wait for: it sends, or it has ended.
    pub(super) fn has_started(&self, tracks: &[Track]) -> bool {
        let mut own = tracks.iter().filter(|track| track.flow == self.number);
        self.left.is_some()
            || own.any(|track| track.points.last().is_some_and(|point| point.bytes_acked > MIN_SENT_BYTES))
    }

    pub(super) fn sends_nothing(&self) -> Error {
        Error::Measurement {
            what: format!("traffic {}", self.flow.label),
            cause: format!("nothing of it has arrived {} s after its start", SEND_START_TIMEOUT.as_secs()),
            remedy: LOOK_AT.to_owned(),
        }
    }

    /// Starts it when it is due, and takes what it left when it has ended.
    pub(super) fn advance(
        &mut self,
        programs: &Programs,
        topology: &Topology,
        record: &mut Record,
        elapsed: Duration,
    ) -> Result<(), Error> {
        let Some(client) = &mut self.client else {
            if elapsed >= self.flow.start.to_duration() {
                let to = (topology.server_of(self.number, self.flow), server_port(self.number));
                let at = topology.ends(self.number).0;
                let asked = self.asked();
                let workload = workload::of(&asked, programs);
                let lasts = asked.stop.to_duration().saturating_sub(asked.start.to_duration());
                self.client =
                    Some(workload.send(ClientSetup { at, to, lasts, data: self.data.as_deref(), record })?);
                self.sent = elapsed;
            }
            return Ok(());
        };
        if self.flow.begins_the_run() && !self.told && elapsed >= self.flow.stop.to_duration() + END_DELAY {
            self.told = true;
            client.end()?;
        }
        if self.left.is_none()
            && let Some(ended) = client.output()?
        {
            self.left = Some(ClientExit {
                flow: self.number,
                sent_us: micros(self.sent),
                at_end: elapsed >= self.flow.stop.to_duration(),
                status: ended.status.into_raw(),
                stdout: String::from_utf8_lossy(&ended.stdout).into_owned(),
                stderr: ended.stderr,
            });
        }
        Ok(())
    }

    /// True if the flow is over: the program has ended, or its receiver ends and ends it.
    pub(super) fn is_over(&self, elapsed: Duration) -> bool {
        self.left.is_some() || self.flow.begins_the_run() && elapsed >= self.flow.stop.to_duration()
    }

    /// Flow that the program is started with: longer by `EARLY_START` if it starts before the run begins.
    fn asked(&self) -> Flow {
        let ahead = if self.flow.begins_the_run() { EARLY_START } else { Nanos::default() };
        Flow { stop: Nanos::new(self.flow.stop.get().saturating_add(ahead.get())), ..self.flow.clone() }
    }

    /// True if its sockets may close at any moment.
    pub(super) fn is_closing(&self, elapsed: Duration) -> bool {
        self.left.is_none()
            && (self.flow.job.is_file() && self.client.is_some() || elapsed >= self.flow.stop.to_duration())
    }
}
