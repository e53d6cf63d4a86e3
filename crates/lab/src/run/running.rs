//! One flow of a run: the programs at its two ends, and what they report.

use super::LOOK_AT;
use crate::Error;
use crate::process::Ended;
use crate::registry::Record;
use crate::spec::{LabSpec, server_port};
use crate::topology::Topology;
use crate::vm::ClientExit;
use crate::workload::{self, ClientSetup, End, Programs, Report};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// A flow's programs.
pub(super) struct Running {
    pub(super) flow: usize,
    server: End,
    client: Option<End>,
    /// Start of its client, after the run's start.
    pub(super) sent: Duration,
    pub(super) report: Option<Report>,
    /// Of one whose client is in a virtual machine: how far its end is.
    pub(super) elsewhere: Elsewhere,
}

/// Results of both ends of a flow whose client runs in a virtual machine.
#[derive(Default)]
pub(super) struct Elsewhere {
    /// Time at which its server was signalled to end, after the run's start.
    told: Option<Duration>,
    server: Option<Ended>,
    pub(super) client: Option<ClientExit>,
}

/// A program may fail with exit code 0, and its reason is in its report; without a report it is on stderr.
fn report(workload: &dyn workload::Workload, ended: &Ended, server: &End) -> Result<Report, String> {
    workload.report(ended, server).map_err(|cause| said(&cause, ended))
}

fn said(cause: &workload::ReportError, ended: &Ended) -> String {
    match ended.stderr.as_str() {
        "" => format!("{cause} [{}]", ended.status),
        stderr => format!("{cause} ({stderr}) [{}]", ended.status),
    }
}

/// True if the round before a flow's own, if there is one, has arrived completely.
pub(super) fn is_due(spec: &LabSpec, running: &[Running], flow: &Running) -> bool {
    let own = &spec.flows[flow.flow];
    let before = |other: &&Running| {
        let other = &spec.flows[other.flow];
        other.label == own.label && other.round + 1 == own.round
    };
    running.iter().filter(before).all(|other| other.report.as_ref().is_some_and(Report::is_complete))
}

impl Running {
    pub(super) fn new(flow: usize, server: End) -> Self {
        Self {
            flow,
            server,
            client: None,
            sent: Duration::ZERO,
            report: None,
            elsewhere: Elsewhere::default(),
        }
    }

    /// The file that it sends, if it sends one.
    pub(super) fn data(&self, spec: &LabSpec, programs: &Programs) -> Option<PathBuf> {
        if let End::Elsewhere(server) = &self.server {
            return Some(server.held.clone()).filter(|held| held.exists());
        }
        workload::of(&spec.flows[self.flow], programs).data(&self.server)
    }

    /// True if its sockets may close at any moment.
    pub(super) fn is_closing(&self, spec: &LabSpec, elapsed: Duration) -> bool {
        let flow = &spec.flows[self.flow];
        let transfers = flow.job.is_file() && self.client.is_some();
        self.report.is_none() && (transfers || elapsed >= flow.stop.to_duration())
    }

    /// True if its report counts from the run's start, independent of the start of its data.
    pub(super) fn counts_from_start(&self) -> bool {
        self.elsewhere.told.is_some()
    }

    pub(super) fn failed(&self, cause: String) -> Error {
        match &self.client {
            Some(client) => client.failed(cause, LOOK_AT),
            None => self.server.failed(cause, LOOK_AT),
        }
    }

    /// Starts it when it is due, and takes its report when it has ended.
    pub(super) fn advance(
        &mut self,
        spec: &LabSpec,
        programs: &Programs,
        topology: &Topology,
        record: &mut Record,
        (elapsed, is_due): (Duration, bool),
    ) -> Result<(), Error> {
        let described = &spec.flows[self.flow];
        let workload = workload::of(described, programs);
        let Some(client) = &mut self.client else {
            let (start, stop) = (described.start.to_duration(), described.stop.to_duration());
            if described.round > 0 && elapsed >= stop {
                // The round before took until now.
                self.report = Some(Report::of_none(described.connections));
            } else if is_due && elapsed >= start {
                let lasts = stop.saturating_sub(if described.round > 0 { elapsed } else { start });
                let (sender, receiver) = topology.ends(self.flow);
                let at = if described.job.is_fetched() { receiver } else { sender };
                let to = (topology.server_of(self.flow, described), server_port(self.flow));
                let data = self.data(spec, programs);
                self.client =
                    Some(workload.send(ClientSetup { at, to, lasts, data: data.as_deref(), record })?);
                self.sent = elapsed;
            }
            return Ok(());
        };
        if self.report.is_some() {
            return Ok(());
        }
        if let Some(ended) = client.output()? {
            let report = report(&*workload, &ended, &self.server);
            self.report = Some(report.map_err(|cause| client.failed(cause, LOOK_AT))?);
        }
        Ok(())
    }

    /// Ends one that a virtual machine sends when its time is over, where its program would go on, and takes what both ends left.
    pub(super) fn settle(
        &mut self,
        spec: &LabSpec,
        programs: &Programs,
        elapsed: Duration,
    ) -> Result<(), Error> {
        let flow = &spec.flows[self.flow];
        if flow.begins_the_run() && elapsed >= flow.stop.to_duration() && self.elsewhere.server.is_none() {
            self.elsewhere.server = self.server.output()?;
            if self.elsewhere.told.is_none() && self.elsewhere.server.is_none() {
                self.elsewhere.told = Some(elapsed);
                self.server.end()?;
            }
        }
        let waits =
            |client: &ClientExit| client.at_end && flow.begins_the_run() && self.elsewhere.server.is_none();
        match self.elsewhere.client.take_if(|client| self.report.is_none() && !waits(client)) {
            Some(client) => self.take_from(&client, spec, programs),
            None => Ok(()),
        }
    }

    /// Takes the results of its client that ran in a virtual machine.
    fn take_from(&mut self, client: &ClientExit, spec: &LabSpec, programs: &Programs) -> Result<(), Error> {
        let ended = Ended {
            status: ExitStatus::from_raw(client.status),
            stdout: client.stdout.clone().into_bytes(),
            stderr: client.stderr.clone(),
        };
        let flow = &spec.flows[self.flow];
        let workload = workload::of(flow, programs);
        let report = match (&self.elsewhere.server, self.elsewhere.told) {
            (Some(server), Some(at)) if client.at_end => {
                let cut = workload.cut(server).map_err(|cause| said(&cause, server));
                cut.map(|report| report.ending(at))
            }
            _ => report(&*workload, &ended, &self.server),
        };
        let report = match report {
            Ok(_) if flow.begins_the_run() && !client.at_end => Err("it was over before its time".to_owned()),
            report => report,
        };
        self.sent = Duration::from_micros(client.sent_us);
        let report = report.map_err(|cause| Error::Machine {
            kind: crate::ErrorKind::Failed,
            message: format!("traffic {}: {cause}", flow.label),
        })?;
        self.report = Some(report);
        Ok(())
    }
}
