//! The papers whose figures and tables are reproduced, and what each of them shows.
//!
//! The scenario of a figure is the built-in one called `<paper>/<figure>`; a figure without one has none yet.

use crate::builtin::{self, Builtin};

/// A paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paper {
    /// Its short name, which is also the folder of its scenarios.
    pub key: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Its figures and tables that can be measured, in its order.
    pub figures: &'static [Figure],
}

/// A figure or table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// Its short name, unique in its paper.
    pub key: &'static str,
    /// What it shows.
    pub shows: &'static str,
}

impl Paper {
    /// The scenario of one of its figures.
    pub fn scenario(&self, figure: &Figure) -> Option<&'static Builtin> {
        builtin::find(&format!("{}/{}", self.key, figure.key))
    }
}

/// All of them.
pub const ALL: &[Paper] = &[
    Paper {
        key: "vmcc",
        title: "Multipath congestion control that marks in virtual switches (vMCC)",
        figures: &[
            figure("fig2", "ranked rates of single-path and multipath flows, four virtual switches"),
            figure("fig4", "gain of multipath under bursts on one path"),
            figure("fig5", "incast: goodput, RTT, retransmissions, efficiency over parallel connections"),
            figure("fig7", "subflows that share a path: goodput, RTT, retransmissions over their number"),
            figure("fig9", "long flows: rates, RTT, retransmissions of LIA, XMP and vMCC"),
            figure("fig10", "short flows: completion times, RTT, retransmissions of LIA, XMP and vMCC"),
            figure("tab3", "F-scores of the path-sharing detection, thresholds 3 and 0.10"),
            figure("tab4", "F-scores of the path-sharing detection, thresholds 5 and 0.14"),
        ],
    },
    Paper {
        key: "icpe",
        title: "MPTCP in the datacenter and the cloud: when it helps applications",
        figures: &[
            figure("fig3", "the congestion generator's rates on two NICs"),
            figure("fig4", "transfer times over sizes, TCP and MPTCP"),
            figure("fig5", "share of each subflow over the course of a transfer"),
            figure("fig6", "migration of virtual machines without congestion"),
            figure("fig7", "migration over the rate of each NIC"),
            figure("fig8", "migration under congestion"),
            figure("fig9", "rsync and FTP over sizes and buffers"),
            figure("fig10", "Spark TeraSort, idle and congested"),
            figure("fig11", "a large file over NICs of two rates"),
            figure("fig12", "rsync under congestion"),
            figure("fig13", "two vNICs behind one cap in a public cloud"),
            figure("tab2", "latency and throughput of Redis, idle and congested"),
            figure("tab3", "migration while a link fails"),
        ],
    },
    Paper {
        key: "mtcp",
        title: "A user-space multipath transport over overlays (mTCP)",
        figures: &[
            figure("fig1", "number of disjoint paths between hosts"),
            figure("fig2", "goodput over one to five independent paths"),
            figure("fig4", "shares of independent paths of the Internet"),
            figure("fig5", "recovery from a failure of the primary path"),
            figure("fig6", "detection of shared congestion: independent paths"),
            figure("fig7", "detection of shared congestion: shared links"),
            figure("fig10", "suppression of paths that share links"),
            figure("fig12", "aggregation of paths of unequal rates"),
            figure("fig13", "gain over random overlay paths"),
            figure("tab3", "false positives of the detection"),
            figure("tab4", "times to detect shared congestion"),
        ],
    },
    Paper {
        key: "mctcp",
        title: "Multi-connection TCP over directly connected and overlay paths (MCTCP)",
        figures: &[
            figure("dyn", "goodput under loss and delay that come and go"),
            figure("asym", "unequal paths at a given offered rate"),
            figure("cc", "coupled congestion control at a shared link"),
        ],
    },
    Paper {
        key: "vmsched",
        title: "MPTCP under virtual-machine scheduling",
        figures: &[
            figure("fig4", "alpha over the time slice"),
            figure("fig5", "congestion windows over the time slice"),
            figure("fig6", "throughput over the time slice"),
            figure("fig7", "gain of the modified algorithm over time slice and weight"),
            figure("fig8", "transfer time of the modified algorithm"),
            figure("fig9", "beside TCP on one path"),
            figure("fig11", "shift to the free path"),
            figure("fig13", "smoothed RTT of the modified algorithm"),
        ],
    },
];

const fn figure(key: &'static str, shows: &'static str) -> Figure {
    Figure { key, shows }
}

/// The names most like `name`, best first: of papers, and of `paper/figure`.
pub fn nearest(name: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for paper in ALL {
        names.push(paper.key.to_owned());
        names.extend(paper.figures.iter().map(|figure| format!("{}/{}", paper.key, figure.key)));
    }
    let found = crate::error::nearest(name, names.iter().map(String::as_str));
    found.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_a_paper_is_of_a_listed_figure() {
        let of_paper = |b: &&Builtin| ALL.iter().any(|paper| b.name.starts_with(&format!("{}/", paper.key)));
        let named = ALL.iter().flat_map(|paper| paper.figures.iter().filter_map(|f| paper.scenario(f)));
        let mut listed: Vec<&str> = named.map(|b| b.name).collect();
        listed.sort_unstable();
        let there: Vec<&str> = builtin::all().iter().filter(of_paper).map(|b| b.name).collect();
        assert_eq!(listed, there);
        assert!(!there.is_empty());
    }

    #[test]
    fn a_mistyped_figure_is_recognized() {
        assert_eq!(nearest("vmcc/fig99").first().map(String::as_str), Some("vmcc/fig9"));
        assert_eq!(nearest("vmmc").first().map(String::as_str), Some("vmcc"));
        assert!(nearest("something else entirely").is_empty());
    }
}
