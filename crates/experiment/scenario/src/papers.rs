//! The papers whose figures and tables are reproduced, and what each of them shows.
//!
//! The scenario of a figure is the built-in one called `<paper>/<figure>`; a figure without one has none yet, or says why there can be none.

use crate::builtin::{self, Builtin};

/// A paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paper {
    /// Its short name, which is also the folder of its scenarios.
    pub key: &'static str,
    /// Its title; its subject where the title is not known here.
    pub title: &'static str,
    /// Its figures and tables that can be measured, in its order.
    pub figures: &'static [Figure],
}

/// A figure or table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// Its short name, unique in its paper.
    pub key: &'static str,
    /// Its content.
    pub shows: &'static str,
    /// Contradictions of the paper about it, and omissions of what decides its numbers.
    pub errata: &'static [&'static str],
    /// Reason for which no scenario can have it.
    pub without: Option<&'static str>,
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
            figure("fig2", "ranked rates of single-path and multipath flows, four virtual switches").but(&[
                "The text says gains of 22.7 to 31.4 %. The printed means of figure 2a, 2.08 and 1.45 Mb/s, are 43.4 % apart \
                 (30.3 % of the larger), and the sums over completed connections, 1121 x 2.08 and 1032 x 1.45, 55.8 %.",
                "These means make 125 and 194 Mb/s per VM, where figure 9 has 523 to 585: load, length or what counts as \
                 complete must differ, and none is said.",
                "From 2a to 2c both the switch and the algorithms change, so neither's part in the gain can be told.",
            ]),
            figure("fig4", "gain of multipath under bursts on one path").but(&[
                "1 Gb/s of UDP cannot fill a path of 10 Gb/s. It must share a queue of a vNIC, or gains nothing for anybody.",
                "Which vNIC single-path connections use is not said; it decides the gain.",
            ]),
            figure("fig5", "incast: goodput, RTT, retransmissions, efficiency over parallel connections").but(&[
                "The range of connections has no numbers. The 54.1 % are of efficiency, throughput over power, not of goodput.",
            ]),
            figure("fig7", "subflows that share a path: goodput, RTT, retransmissions over their number").but(&[
                "Goodput is per connection in section IV.D and per VM in V.C.",
            ]),
            figure("fig9", "long flows: rates, RTT, retransmissions of LIA, XMP and vMCC").but(&[
                "A cap is called both non-work-conserving and a guarantee, and fairness is argued for a policy that lends. \
                 Here it is a hard cap.",
                "Algorithm 1 reduces the window with each marked acknowledgment, the text once per window. Once per window is \
                 what runs; it has no branch for losses, which end as in LIA.",
                "Equation 2 takes (1 - alpha/2) as the reduction, the algorithm needs alpha/2.",
                "The headlines (4.5 times, 11.8 %) are against LIA; against XMP 4.1 % of goodput are left, and no RTT.",
            ]),
            figure("fig10", "short flows: completion times, RTT, retransmissions of LIA, XMP and vMCC").but(&[
                "Sizes of the objects, the load and whether connections are kept are not given.",
                "The headline (22.1 %) is against LIA; against XMP 5.1 % of completion time and 7.2 % of RTT.",
            ]),
            figure("tab3", "F-scores of the path-sharing detection, thresholds 3 and 0.10").but(&[
                "Three F-scores do not follow from their precision and recall: OvS-vhost with 5 connections 0.7908 (0.7897), \
                 with 10 0.7562 (0.7513), bridge with 2 0.7123 (0.7086). F is computed here.",
                "The text says 0.7068 to 0.8138; the cells are from 0.7015 to 0.8156.",
                "What one sample is, how many there were, and which pairs of paths were tried is not said.",
                "A queueing discipline cannot see the traffic of DPDK, which has rows all the same.",
            ]),
            figure("tab4", "F-scores of the path-sharing detection, thresholds 5 and 0.14").but(&[
                "One F-score does not follow from precision and recall: DPDK with 1 connection 0.7774 (0.7791).",
                "The text calls 0.6963 to 0.8146 stable; the smallest cell is 0.6514, and five are below 0.6963.",
            ]),
        ],
    },
    Paper {
        key: "icpe",
        title: "Performance Evaluation of Multi-Path TCP for Data Center and Cloud Workloads",
        figures: &[
            figure("fig3", "the congestion generator's rates on two NICs").but(&[
                "The generator's transport, rates, durations and seeds are not given.",
            ]),
            figure("fig4", "transfer times over sizes, TCP and MPTCP").but(&[
                "10 GB in about a second on 10 Gb/s: it takes 8 s at least. 10 Gbit would fit.",
                "Benefits begin at 100 MB in section 4.1 and at 1 MB in section 4.2.",
            ]),
            figure("fig5", "share of each subflow over the course of a transfer").but(&[
                "A single window that all subflows share, as the text has it, is not the coupled windows that the kernel used has.",
            ]),
            figure("fig6", "migration of virtual machines without congestion").but(&[
                "Migration without congestion gains nothing, where iperf on the same links is twice as fast.",
            ]),
            figure("fig7", "migration over the rate of each NIC").but(&[
                "Rates are in GB/s in places; Gb/s are meant.",
                "16 GB in 98 s are about 1.4 Gb/s: gains between 2 and 8 Gb/s need memory that is sent again.",
            ]),
            figure("fig8", "migration under congestion").but(&[
                "30 to 50 % in the text, up to 33 % in the caption, 20 to 50 % in the introduction and section 7.",
            ]),
            figure("fig9", "rsync and FTP over sizes and buffers").but(&[
                "The SSD reads 550 MB/s, 550 Mb/s and 540 MB/s.",
                "The default buffer is 8 kB in one place and 4 MB in another.",
                "The FTP server is not named.",
            ]),
            figure("fig10", "Spark TeraSort, idle and congested").but(&["100 GB are 100 Gb in places."]),
            figure("fig11", "a large file over NICs of two rates"),
            figure("fig12", "rsync under congestion"),
            figure("fig13", "two vNICs behind one cap in a public cloud").but(&["The values of the boxes are not given."]),
            figure("tab2", "latency and throughput of Redis, idle and congested").but(&[
                "Latencies have no unit; the text's 3.6 seconds must be milliseconds. Throughput times latency is 31, about its clients, if \
                 they are microseconds.",
                "The mix of reads and writes is not given. MPTCP idle is 15 to 21 % worse, in the text 10 to 20 %.",
                "Congested latencies of 1 kB are equal with 17 % less throughput, which clients that wait for each answer cannot have.",
                "Section 7 says that small requests gain under heavy congestion; the table has that for 100 kB alone.",
            ]),
            figure("tab3", "migration while a link fails"),
        ],
    },
    Paper {
        key: "mtcp",
        title: "A user-space multipath transport over overlays (mTCP)",
        figures: &[
            figure("fig1", "number of disjoint paths between hosts")
                .without("an inventory of the Internet's paths between 36 hosts, which are not given; nothing is sent"),
            figure("fig2", "goodput over one to five independent paths").but(&["Buffers are not given."]),
            figure("fig4", "shares of independent paths of the Internet"),
            figure("fig5", "recovery from a failure of the primary path"),
            figure("fig6", "detection of shared congestion: independent paths"),
            figure("fig7", "detection of shared congestion: shared links"),
            figure("fig10", "suppression of paths that share links"),
            figure("fig12", "aggregation of paths of unequal rates"),
            figure("fig13", "gain over paths of an overlay").but(&["The ten hosts' paths, rates and traffic are not given."]),
            figure("fig14", "the same where the paths share their bottleneck")
                .without("it is the other half of figure 13's scenario"),
            figure("tab3", "false positives of the detection").without("table 4's scenario has its pairs, apart and together"),
            figure("tab4", "times to detect shared congestion").but(&[
                "The interval must not be below the period of bursts of losses, of which 95 % are under 220 ms; 200 ms are used.",
                "The significance that the bound on the number of events is computed with is not given.",
            ]),
        ],
    },
    Paper {
        key: "mctcp",
        title: "Performance Evaluation of Multipath TCP Linux Implementations",
        figures: &[
            figure("dyn", "goodput under loss and delay that come and go").but(&[
                "The loss rate is not given. The contenders run on different kernels, 2.6.32 and 2.6.35.",
            ]),
            figure("asym", "unequal paths at a given offered rate").but(&[
                "Buffers of 262,144 B are set \"to avoid TCP flow control\", but carry 20 Mb/s only up to a round trip of 105 ms. If the 100 ms \
                 are one way, they end at 10.5 Mb/s.",
                "Rates and delays of the unequal paths are not given.",
            ]),
            figure("cc", "coupled congestion control at a shared link"),
        ],
    },
    Paper {
        key: "dctcp",
        title: "Data Center TCP (DCTCP)",
        figures: &[figure("fig17", "shares of 40 senders at two bottlenecks").but(&[
            "Rates add up to the links' capacities, 1000 and 9960 Mbit/s: they count bits on the link, not payload.",
            "Delays are not given.",
        ])],
    },
    Paper {
        key: "vmsched",
        title: "MPTCP under Virtual Machine Scheduling Impact",
        figures: &[
            figure("fig4", "alpha over the time slice").but(&[
                "With equal RTTs theorem 1 leaves alpha as it is; the figure has it fall.",
                "The analysis takes a VM to run for less than a round trip at a time, the testbed has 30 ms and more of 0.5 ms.",
            ]),
            figure("fig5", "congestion windows over the time slice"),
            figure("fig6", "throughput over the time slice"),
            figure("fig7", "gain of the modified algorithm over time slice and weight"),
            figure("fig8", "transfer time of the modified algorithm").but(&[
                "610 MB in 75 s are 65 Mb/s, not 78; 50 Mb/s give 97.6 s, not more than 100.",
            ]),
            figure("fig9", "beside TCP on one path").but(&[
                "The changed algorithm takes 10 Mb/s more from TCP than the original and is called as fair.",
            ]),
            figure("fig11", "shift to the free path").but(&[
                "Flows compete from 10 to 20 and 30 to 40 s in the text, and from 20 and 40 s on in the captions.",
            ]),
            figure("fig13", "smoothed RTT of the modified algorithm").but(&[
                "The changed estimate leaves out large samples, so it is smaller whether or not the network's RTT is.",
            ]),
        ],
    },
];

const fn figure(key: &'static str, shows: &'static str) -> Figure {
    Figure { key, shows, errata: &[], without: None }
}

impl Figure {
    const fn but(self, errata: &'static [&'static str]) -> Self {
        Self { errata, ..self }
    }

    const fn without(self, why: &'static str) -> Self {
        Self { without: Some(why), ..self }
    }
}

/// The names most like `name`, best first: of papers, and of `paper/figure`.
pub fn nearest(name: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for paper in ALL {
        names.push(paper.key.to_owned());
        // What cannot be run is not what was meant.
        let can = paper.figures.iter().filter(|figure| figure.without.is_none());
        names.extend(can.map(|figure| format!("{}/{}", paper.key, figure.key)));
    }
    let found = vmcc_config::nearest(name, names.iter().map(String::as_str));
    found.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_paper_scenario_belongs_to_a_listed_figure() {
        let of_paper = |b: &&Builtin| ALL.iter().any(|paper| b.name.starts_with(&format!("{}/", paper.key)));
        let whys =
            ALL.iter().flat_map(|p| p.figures.iter().filter(|f| f.without.is_some()).map(move |f| (p, f)));
        assert!(
            whys.into_iter().all(|(paper, figure)| paper.scenario(figure).is_none()),
            "a reason against one that is there"
        );
        let named = ALL.iter().flat_map(|paper| paper.figures.iter().filter_map(|f| paper.scenario(f)));
        let mut listed: Vec<&str> = named.map(|b| b.name).collect();
        listed.sort_unstable();
        let there: Vec<&str> = builtin::all().iter().filter(of_paper).map(|b| b.name).collect();
        assert_eq!(listed, there);
        assert!(!there.is_empty());
    }

    #[test]
    fn mistyped_figure_gets_a_suggestion() {
        assert_eq!(nearest("vmcc/fig99").first().map(String::as_str), Some("vmcc/fig9"));
        assert_eq!(nearest("vmmc").first().map(String::as_str), Some("vmcc"));
        assert!(nearest("something else entirely").is_empty());
    }
}
