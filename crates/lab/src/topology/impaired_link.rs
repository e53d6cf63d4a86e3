//! Links that delay and lose packets where the kernel has no netem: a user-space link between two legs.
//!
//! ```text
//!  left ═══ leftc ── link ─── rightc ═══ right
//! ```
//!
//! Packets of a leg have passed its queue when the user-space link takes them, and belong to no socket any more.

use super::wire::{Leg, join};
use crate::spec::{LabSpec, Wire};
use crate::userspace_link::{LinkEnd, UserspaceLink};
use crate::{Error, netns::Netns};
use std::io;
use vmcc_netlink::{Impairment, TrafficControl};

/// The number of the loopback in every namespace.
const LOOPBACK: u32 = 1;

/// True if user-space links take the place of netem.
pub(super) fn in_userspace(spec: &LabSpec, at: &Netns) -> bool {
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

/// Joins two legs by a user-space link; `number` tells the user-space links of a run apart.
pub(super) fn lay(
    (left, right): (&Leg<'_>, &Leg<'_>),
    (there, back): (Wire, Wire),
    (spec, number): (&LabSpec, usize),
) -> Result<UserspaceLink, Error> {
    let loose = |leg: &Leg<'_>| format!("{}c", leg.port);
    let (near, far) = (loose(left), loose(right));
    // Nothing is addressed to these: whatever they receive is the user-space link's.
    join(left, &Leg::loose(left.at, near.as_str()))?;
    join(&Leg::loose(right.at, far.as_str()), right)?;
    let ends = (LinkEnd { at: left.at, name: near }, LinkEnd { at: right.at, name: far });
    UserspaceLink::start(&ends.0, &ends.1, (there, back), (spec.machines.seed, number))
}
