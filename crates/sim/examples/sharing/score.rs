//! Decisions of a detector, compared with the ground truth.

use vmcc_metrics::observed::{Connection, End};

use crate::cases::Case;

/// Subflows closed and kept, rightly and wrongly: of the subflows through one NIC, one is to survive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Score {
    pub(crate) cases: u32,
    /// Closed, and another through the same NIC is left.
    pub(crate) right_closes: u32,
    /// Left beside another through the same NIC.
    pub(crate) missed: u32,
    /// NICs without any subflow that is left.
    pub(crate) wrong_closes: u32,
    /// NICs with at least one.
    pub(crate) kept: u32,
    /// Times from when subflows shared to a right close, in loaded round trips.
    pub(crate) rounds: Vec<f64>,
    /// Payload delivered, and without any detector.
    pub(crate) delivered: f64,
    pub(crate) undisturbed: f64,
}

impl Score {
    /// Counts one connection.
    pub(crate) fn connection(&mut self, case: &Case, flow: &Connection) {
        let nics = case.nics_at_the_end();
        let begin_us = flow.start.us().max(case.comes_together_us());
        for nic in 0..=nics.iter().copied().max().unwrap_or(0) {
            // One that has moved goes on as another entry.
            let last = || flow.subflows.iter().filter(|s| s.end != End::Moved);
            let through = || last().zip(&nics).filter(|(_, on)| **on == nic).map(|(s, _)| s);
            let (closed, left) = (
                through().filter(|s| s.closed_at.is_some()).count(),
                through().filter(|s| s.established && s.closed_at.is_none()).count(),
            );
            if closed + left == 0 {
                continue;
            }
            self.right_closes += (if left == 0 { closed - 1 } else { closed }) as u32;
            self.missed += left.saturating_sub(1) as u32;
            self.wrong_closes += u32::from(left == 0);
            self.kept += u32::from(left > 0);
            let times = through().filter_map(|s| s.closed_at).map(|at| at.us().saturating_sub(begin_us));
            self.rounds.extend(times.map(|us| us as f64 / case.loaded_us as f64));
        }
    }

    pub(crate) fn add(&mut self, other: &Score) {
        self.cases += other.cases;
        self.right_closes += other.right_closes;
        self.missed += other.missed;
        self.wrong_closes += other.wrong_closes;
        self.kept += other.kept;
        self.rounds.extend(&other.rounds);
        self.delivered += other.delivered;
        self.undisturbed += other.undisturbed;
    }

    /// One row of the table: precision, recall, F, median rounds, goodput.
    pub(crate) fn row(&self) -> String {
        let ratio = |a: u32, b: u32| {
            if b == 0 { "     -".into() } else { format!("{:6.3}", f64::from(a) / f64::from(b)) }
        };
        let right = self.right_closes;
        let mut rounds = self.rounds.clone();
        rounds.sort_by(f64::total_cmp);
        let median = rounds.get(rounds.len() / 2).map_or("    -".into(), |m| format!("{m:5.0}"));
        let goodput = 100.0 * (self.delivered / self.undisturbed.max(1.0) - 1.0);
        format!(
            "{:5} {:6} {:6} {:6} {:6}  {}  {}  {}  {median} {goodput:+7.1}",
            self.cases,
            right,
            self.missed,
            self.wrong_closes,
            self.kept,
            ratio(right, right + self.wrong_closes),
            ratio(right, right + self.missed),
            ratio(2 * right, 2 * right + self.missed + self.wrong_closes),
        )
    }
}
