//! One flow of the machine's: its program, from when it starts to what it leaves.

use super::exchange::Left;
use crate::Error;
use crate::registry::Record;
use crate::run::micros;
use crate::sampler::Track;
use crate::spec::Flow;
use crate::topology::Topology;
use crate::workload::{self, End, Programs};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;
use vmcc_units::Nanos;

/// How long a program may take until it sends, and from how many bytes on it does: more than it asks the other end with.
pub(super) const GOING_LIMIT: Duration = Duration::from_secs(20);
const GOING_BYTES: u64 = 20_000;
/// How much longer than its flow a program is to send that starts before the run begins: more than it has sent by then. Its
/// receiver ends with the run, and ends it, or it is ended so long after its time.
const AHEAD: Nanos = Nanos::from_secs(30);
const LATE: Duration = Duration::from_secs(1);
pub(super) const LOOK_AT: &str = "run the same command by hand, and see whether the machine is overloaded";

/// A flow of this host.
pub(super) struct Sending<'a> {
    pub(super) number: usize,
    pub(super) flow: &'a Flow,
    pub(super) data: Option<PathBuf>,
    pub(super) client: Option<End>,
    pub(super) sent: Duration,
    /// Whether it was told to end.
    pub(super) told: bool,
    pub(super) left: Option<Left>,
}

impl Sending<'_> {
    /// Whether nothing more is to be waited for.
    pub(super) fn goes(&self, tracks: &[Track]) -> bool {
        let mut own = tracks.iter().filter(|track| track.flow == self.number);
        self.left.is_some()
            || own.any(|track| track.points.last().is_some_and(|point| point.bytes_acked > GOING_BYTES))
    }

    pub(super) fn sends_nothing(&self) -> Error {
        Error::Measurement {
            what: format!("traffic {}", self.flow.label),
            cause: format!("nothing of it has arrived {} s after its start", GOING_LIMIT.as_secs()),
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
                let to = (topology.server_of(self.number, self.flow), workload::port_of(self.number));
                let at = topology.ends(self.number).0;
                let asked = self.asked();
                let workload = workload::of(&asked, programs);
                let lasts = asked.stop.to_duration().saturating_sub(asked.start.to_duration());
                self.client = Some(workload.send(at, to, lasts, self.data.as_deref(), record)?);
                self.sent = elapsed;
            }
            return Ok(());
        };
        if self.flow.begins_the_run() && !self.told && elapsed >= self.flow.stop.to_duration() + LATE {
            self.told = true;
            client.end()?;
        }
        if self.left.is_none()
            && let Some(ended) = client.output()?
        {
            self.left = Some(Left {
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

    /// Whether its receiver ends, and then it.
    pub(super) fn is_over(&self, elapsed: Duration) -> bool {
        self.left.is_some() || self.flow.begins_the_run() && elapsed >= self.flow.stop.to_duration()
    }

    /// What its program is asked for.
    fn asked(&self) -> Flow {
        let ahead = if self.flow.begins_the_run() { AHEAD } else { Nanos::default() };
        Flow { stop: Nanos::new(self.flow.stop.get().saturating_add(ahead.get())), ..self.flow.clone() }
    }

    /// Whether its sockets may close any moment.
    pub(super) fn is_closing(&self, elapsed: Duration) -> bool {
        self.left.is_none()
            && (self.flow.job.is_file() && self.client.is_some() || elapsed >= self.flow.stop.to_duration())
    }
}
