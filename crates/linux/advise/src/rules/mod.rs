//! Facts to advice. Pure: no clock, no socket, no file.
//!
//! | | |
//! |---|---|
//! | `candidates` | interfaces that can be paths, and those that share a rate |
//! | `causes` | why a connection has only one path |
//! | `gain` | goodput over TCP's |
//! | `settings` | algorithm, buffers, unsent data |
//! | `file` | the agent's file for them |

mod candidates;
mod causes;
mod file;
mod gain;
mod settings;

pub use causes::{Cause, CauseCode};
pub use gain::{Gain, Reason};
pub use settings::Setting;

use crate::facts::Facts;
use candidates::Candidates;
use serde::Serialize;

/// Gain from which several paths count as a help.
const WORTH: f64 = 1.1;

/// Answer to "do several paths help".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// More goodput, and connections survive a failed path.
    Helps,
    /// No more goodput; connections survive a failed path.
    Survival,
    /// Neither.
    No,
    /// A fact is missing that decides; the reasons name it.
    Unknown,
}

/// Extent to which a host should use several paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// All of its connections.
    Everything,
    /// Chosen programs: those with bulk transfers, or that must survive.
    Selective,
    /// None.
    Nothing,
}

/// Advice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// Answer to "do several paths help", once every cause is removed.
    pub verdict: Verdict,
    /// Connections go on when a path fails.
    pub survives: bool,
    /// Goodput over TCP's; `None` where a fact is missing.
    pub gain: Option<Gain>,
    /// Reasons for verdict and gain.
    pub reasons: Vec<Reason>,
    /// Causes of a single path now, the most basic first; empty if none is known.
    pub causes: Vec<Cause>,
    /// True if a connection with several paths was seen.
    pub works_now: bool,
    /// Extent of use.
    pub scope: Scope,
    /// Algorithm, by its name in the registry; `None`: leave the host's.
    pub algorithm: Option<&'static str>,
    /// Settings with their reasons.
    pub settings: Vec<Setting>,
    /// Needs of the other end.
    pub other_end: Vec<String>,
    /// File for the agent (`vmcc up --config`).
    pub file: String,
}

/// Advice for these facts.
pub fn advise(facts: &Facts) -> Advice {
    let candidates = Candidates::of(facts);
    let works_now = causes::works(facts);
    let causes = causes::of(facts, &candidates, works_now);
    let mut reasons = Vec::new();
    let gain = gain::of(facts, &candidates, &mut reasons);
    // Nothing at this end can mend these.
    let impossible = causes.iter().any(|cause| cause.code.is_final());
    let several = candidates.several() && !impossible;
    let survives = several && !facts.application.closes_listener;
    let verdict = match gain.and_then(|gain| gain.expected) {
        _ if !survives => Verdict::No,
        Some(expected) if expected >= WORTH => Verdict::Helps,
        Some(_) => Verdict::Survival,
        None => Verdict::Unknown,
    };
    let scope = match verdict {
        Verdict::No => Scope::Nothing,
        Verdict::Helps if !facts.application.mixed => Scope::Everything,
        Verdict::Helps | Verdict::Survival | Verdict::Unknown => Scope::Selective,
    };
    let algorithm = (verdict != Verdict::No).then(|| settings::algorithm(facts));
    let settings = algorithm.map_or_else(Vec::new, |name| settings::of(facts, &candidates, name, scope));
    let other_end = algorithm.map_or_else(Vec::new, |name| settings::other_end(&candidates, name));
    let file = file::of(facts, &candidates, verdict, algorithm, &settings);
    Advice {
        verdict,
        survives,
        gain,
        reasons,
        causes,
        works_now,
        scope,
        algorithm,
        settings,
        other_end,
        file,
    }
}
