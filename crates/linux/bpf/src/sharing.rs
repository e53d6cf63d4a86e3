//! Findings of the detectors of shared bottlenecks so far.

use crate::error::ControlError;
use crate::ids;
use crate::shared::algorithm::WatchedEntry;
use crate::shared::states::{CC_SHARING_EXCLUDED, CC_SHARING_SHARED, CC_SHARING_TOGETHER};
use crate::states::Member;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;
use vmcc_cc::{SHARING_PATHS, Sharing};
use zerocopy::FromBytes;

/// The table of connections, of an algorithm that detects.
const TABLE: &str = "mp_groups";

/// Verdict on two paths of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// They share a bottleneck.
    Shares,
    /// They do not.
    Apart,
    /// Not yet known.
    Unknown,
    /// Never known: only the first [`SHARING_PATHS`] paths of a connection are compared.
    NotCompared,
}

/// A verdict, and how much speaks for it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// From -1, which excludes that they share, over 0, nothing known, to 1, which decides that they do.
    pub evidence: f64,
}

/// The tables of all detectors in this kernel.
pub struct Detections(Vec<MapHandle>);

impl Detections {
    /// Finds them.
    ///
    /// # Errors
    /// Not permitted to list BPF maps.
    pub fn open() -> Result<Self, ControlError> {
        let of_ours =
            |map: &MapHandle| map.name() == TABLE && map.value_size() as usize == size_of::<WatchedEntry>();
        ids::maps(|_, map| of_ours(&map).then_some(map)).map(Self)
    }

    /// Evidence on a connection; `None` where its paths are not compared.
    pub fn of(&self, member: Member) -> Option<Evidence> {
        let key = member.connection.to_ne_bytes();
        let bytes = self.0.iter().find_map(|map| map.lookup(&key, MapFlags::ANY).ok().flatten())?;
        let entry = WatchedEntry::read_from_bytes(&bytes).ok()?;
        (entry.several != 0).then_some(Evidence(entry.sharing))
    }
}

/// A detector's evidence on a connection.
pub struct Evidence(Sharing);

impl Evidence {
    /// Of two of its paths; `None` for one and the same.
    pub fn between(&self, one: Member, other: Member) -> Option<Finding> {
        (one.slot != other.slot).then(|| finding(&self.0, one.slot, other.slot))
    }
}

fn finding(sharing: &Sharing, a: usize, b: usize) -> Finding {
    let (high, low) = (a.max(b), a.min(b));
    if high >= SHARING_PATHS {
        return Finding { verdict: Verdict::NotCompared, evidence: 0.0 };
    }
    // As cc_sharing_pair() of detect/pairs.h.
    let pair = high * (high - 1) / 2 + low;
    let evidence = i32::from(sharing.evidence[pair]);
    let both_answer = i32::from(sharing.alone[pair]) <= -CC_SHARING_TOGETHER.cast_signed();
    let (shared, excluded) = (CC_SHARING_SHARED.cast_signed(), CC_SHARING_EXCLUDED.cast_signed());
    let decides = if evidence > 0 { shared } else { excluded };
    let verdict = match evidence {
        some if some >= shared && both_answer => Verdict::Shares,
        some if some <= -excluded => Verdict::Apart,
        _ => Verdict::Unknown,
    };
    Finding { verdict, evidence: f64::from(evidence) / f64::from(decides) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_beyond_its_bound_is_a_verdict() {
        let mut sharing = Sharing::default();
        sharing.evidence[..7].copy_from_slice(&[48, -16, 0, 24, -8, 47, 48]);
        sharing.alone[..7].copy_from_slice(&[-48, 0, 0, -48, 0, -48, -47]);
        let of = |a, b| finding(&sharing, a, b);
        let all = [(0, 1), (2, 0), (1, 2), (0, 3), (3, 1), (3, 2), (0, 4)].map(|(a, b)| of(a, b));
        use Verdict::{Apart, Shares, Unknown};
        assert_eq!(all.map(|f| f.verdict), [Shares, Apart, Unknown, Unknown, Unknown, Unknown, Unknown]);
        assert_eq!(all.map(|f| f.evidence), [1.0, -1.0, 0.0, 0.5, -0.5, 47.0 / 48.0, 1.0]);
        assert_eq!(of(SHARING_PATHS - 1, 0).verdict, Unknown);
        assert_eq!(of(0, SHARING_PATHS).verdict, Verdict::NotCompared, "beyond the first eight");
    }
}
