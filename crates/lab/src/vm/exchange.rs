//! Files by which the lab and a virtual machine communicate, in the directory that both see. `N` is the run's number:
//!
//! | file | from | |
//! |---|---|---|
//! | `N.job` | the lab | description of the run ([`Job`]) |
//! | `N.data.K` | the lab | the file that flow K sends, if it sends one |
//! | `N.held.K` | the machine | a copy of the file that flow K's receivers read from it, if they read one |
//! | `N.ready` | the machine | everything is set up |
//! | `N.go` | the lab | the run begins |
//! | `N.begun` | the machine | it has begun: both sides count time from then on |
//! | `N.over` | the lab | no client fetches from the machine any more, if it serves |
//! | `N.answer` | the machine | result of the run ([`Answer`]) |
//! | `quit` | the lab | there are no more runs |

use crate::guard::Tally;
use crate::guest;
use crate::sampler::{Fates, Track};
use crate::{Error, LabSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use vmcc_engine::ErrorKind;
use vmcc_scenario::ResolvedCase;

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) case: ResolvedCase,
    /// The host that the machine is.
    pub(super) host: String,
    /// Of what is random.
    pub(super) seed: u64,
}

/// Result of a run in the machine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Seen(Box<GuestReport>),
    Failed { kind: ErrorKind, message: String },
}

/// Observations that only the machine can make. Times are microseconds of its own clock since the run began.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct GuestReport {
    pub(crate) tracks: Vec<Track>,
    /// By flow and its sender's port: bytes sent again on another subflow.
    pub(crate) reinjected: Vec<(usize, u16, u64)>,
    pub(crate) fates: Fates,
    pub(crate) clients: Vec<ClientExit>,
    /// Gaps in which the machine was descheduled: time of detection and length of each.
    pub(crate) off: Vec<(u64, u64)>,
    pub(crate) asked: Tally,
}

/// Exit status and output of a flow's sending program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ClientExit {
    pub(crate) flow: usize,
    /// Time at which it was started.
    pub(crate) sent_us: u64,
    /// True if it still ran at the end of its flow: then its receiver knows what arrived.
    pub(crate) at_end: bool,
    /// As `wait` says it.
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Job {
    /// Specification of the whole run.
    pub(super) fn spec(&self) -> Result<LabSpec, Error> {
        let spec = LabSpec::of(&self.case, &BTreeSet::from([self.host.clone()]), self.seed)?;
        Ok(spec.with_seed(self.seed))
    }
}

pub(super) fn data_file(number: u32, flow: usize) -> String {
    format!("{number}.data.{flow}")
}

pub(super) fn held_file(number: u32, flow: usize) -> String {
    format!("{number}.held.{flow}")
}

pub(super) fn place(directory: &Path, name: &str, value: &impl Serialize) -> Result<(), Error> {
    guest::place(directory, name, value).map_err(|e| Error::file(directory.join(name), e))
}
