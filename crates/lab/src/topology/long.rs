//! Links that delay and lose packets where the kernel has no netem: a cable of the lab's own between two legs.
//!
//! ```text
//!  left ═══ leftc ── cable ── rightc ═══ right
//! ```
//!
//! What a leg sends has passed its queue when the cable takes it, and belongs to no socket any more.

use super::wire::{Leg, join};
use crate::cable::{Cable, End};
use crate::spec::{LabSpec, Wire};
use crate::{Error, netns::Netns};
use std::io;
use vmcc_netlink::{Impairment, TrafficControl};

/// The number of the loopback in every namespace.
const LOOPBACK: u32 = 1;

/// True if user-space cables take the place of netem.
pub(super) fn by_cables(spec: &LabSpec, at: &Netns) -> bool {
    spec.is_impaired() && !spec.needs_netem() && !has_netem(at)
}

fn has_netem(at: &Netns) -> bool {
    let nothing = Impairment { delay_us: 0, jitter_us: 0, loss: 0.0, limit_pkt: 1 };
    let tried = at.run(move || -> io::Result<()> {
        let mut tc = TrafficControl::open()?;
        tc.add_impairment(LOOPBACK, &nothing)?;
        tc.delete_root(LOOPBACK)
    });
    tried.is_ok()
}

/// Joins two legs by a cable; `number` tells the cables of a run apart.
pub(super) fn lay(
    (left, right): (&Leg<'_>, &Leg<'_>),
    (there, back): (Wire, Wire),
    (spec, number): (&LabSpec, usize),
) -> Result<Cable, Error> {
    let loose = |leg: &Leg<'_>| format!("{}c", leg.port);
    let (near, far) = (loose(left), loose(right));
    // Nothing is addressed to these: whatever they receive is the cable's.
    join(left, &Leg::loose(left.at, near.as_str()))?;
    join(&Leg::loose(right.at, far.as_str()), right)?;
    let ends = (End { at: left.at, name: near }, End { at: right.at, name: far });
    Cable::lay(&ends.0, &ends.1, (there, back), (spec.machines.seed, number))
}
