//! History of the paths of a network namespace's connections: which have failed, which are useless.

use crate::policy::Policy;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;
use vmcc_system::diag::{CaState, Subflow};

/// Lower bound of the deviation in the kernel's RTO (`TCP_RTO_MIN`).
const MIN_DEVIATION_US: u64 = 200_000;
/// Maximum number of consecutive timeouts to wait for: each takes twice the time of the one before.
const MAX_TIMEOUTS: f64 = 8.0;
/// Number of timeouts to wait for where other connections between the same addresses are heard: full queues silence one
/// connection for a while, a failed path silences all.
const MIN_TIMEOUTS_PEER_HEARD: f64 = 6.0;
/// Maximum number of timeouts to wait for because of a path's losses: five are improbable up to a loss rate of a quarter, and a
/// path that loses more is of little use.
const MAX_LOSS_TIMEOUTS: f64 = 5.0;
/// Accepted probability that a path with its previous loss rate, but no failure, has lost that many retransmissions in a row.
const FALSE_POSITIVE_PROBABILITY: f64 = 1e-3;
/// Of what was sent and lost, how much still counts at the next look: half after 2.6 s.
const LOSS_DECAY: f64 = 7.0 / 8.0;
/// Rates are compared over this time.
const WINDOW: Duration = Duration::from_secs(10);

/// A verdict on a path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Finding {
    /// Silence for this time, and this many consecutive unanswered timeouts.
    Failed { silent: Duration, rto: Duration, timeouts: u32 },
    /// Its rate, and the best of its connection.
    Useless { bytes: u64, best_bytes: u64 },
}

impl Finding {
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Failed { silent, rto, timeouts } => format!(
                "nothing came back on it for {:.1} s and {timeouts} timeouts of {:.1} s or more, while others delivered",
                silent.as_secs_f64(),
                rto.as_secs_f64()
            ),
            Self::Useless { bytes, best_bytes } => {
                let rate = |bytes: &u64| *bytes as f64 * 8e-6 / WINDOW.as_secs_f64();
                format!("it carried {:.2} Mbit/s while the best carried {:.2}", rate(bytes), rate(best_bytes))
            }
        }
    }
}

/// State of a subflow between scans.
#[derive(Debug, Clone, Copy)]
struct PathHistory {
    acked: u64,
    /// Last time at which more was acknowledged, or nothing was due.
    heard: Duration,
    /// At how many of its unanswered timeouts the retransmission left this host. Never more than there were at any look:
    /// what a recovery or a tail loss probe sends again is no timeout's.
    left: u32,
    /// Retransmitted packets at the last scan.
    resent_pkt: u32,
    losses: Losses,
    /// True if more was acknowledged since the scan before.
    delivers: bool,
    /// For how long it has had something to send.
    busy_us: u64,
    /// Acknowledged bytes and `busy_us` when the window began; `None` if the subflow did not exist then.
    at_window: Option<(u64, u64)>,
}

impl PathHistory {
    /// Counts silence and timeouts from here on, `left` of them already.
    fn begin(&mut self, now: Duration, left: u32) {
        (self.heard, self.left) = (now, left);
    }
}

/// Bytes that a subflow sent and lost recently, while it was heard.
#[derive(Debug, Clone, Copy, Default)]
struct Losses {
    sent: f64,
    lost: f64,
    /// Bytes sent and retransmitted at the last scan.
    at_scan: (u64, u64),
}

impl Losses {
    fn begin(subflow: &Subflow) -> Self {
        let at_scan = (subflow.bytes_sent, subflow.bytes_retransmitted);
        Self { at_scan, ..Self::default() }
    }

    fn note(&mut self, subflow: &Subflow) {
        let now = (subflow.bytes_sent, subflow.bytes_retransmitted);
        let since = |now: u64, then: u64| now.saturating_sub(then) as f64;
        self.sent = self.sent * LOSS_DECAY + since(now.0, self.at_scan.0);
        self.lost = self.lost * LOSS_DECAY + since(now.1, self.at_scan.1);
        self.at_scan = now;
    }

    /// Number of consecutive retransmissions that such a path loses only by a rare chance.
    fn improbable(&self) -> f64 {
        let share = self.lost / self.sent.max(1.0);
        if share <= 0.0 {
            0.0
        } else {
            (FALSE_POSITIVE_PROBABILITY.ln() / share.min(0.99).ln()).min(MAX_LOSS_TIMEOUTS)
        }
    }
}

/// A cookie, and the token of its connection: a program that disconnects a socket and connects it again keeps the former.
type Key = ([u8; 8], u32);

fn key(subflow: &Subflow) -> Key {
    (subflow.cookie, token(subflow))
}

fn token(subflow: &Subflow) -> u32 {
    subflow.mptcp.map_or(0, |mptcp| mptcp.token_local)
}

/// The subflows of a network namespace.
#[derive(Debug, Default)]
pub(crate) struct PathHealth {
    past: BTreeMap<Key, PathHistory>,
    /// Begin of the window in which rates are compared, the same for all.
    window: Option<Duration>,
    /// Something was under way, or had arrived, at the last look.
    busy: bool,
}

impl PathHealth {
    /// Scans the subflows at `now`, on any clock. Returns each finding on `ours` once per scan.
    pub(crate) fn scan(
        &mut self,
        now: Duration,
        all: &[Subflow],
        ours: impl Fn(&Subflow) -> bool,
        policy: &Policy,
    ) -> Vec<(Subflow, Finding)> {
        self.busy = false;
        let used: Vec<&Subflow> = all.iter().filter(|s| is_used(s)).collect();
        let heard = heard(all);
        self.past.retain(|one, _| used.iter().any(|s| key(s) == *one));
        used.iter().for_each(|subflow| self.note(now, subflow));
        let mut connections: BTreeMap<u32, Vec<&Subflow>> = BTreeMap::new();
        for subflow in used {
            connections.entry(token(subflow)).or_default().push(subflow);
        }
        let length = self.window.map(|began| now - began);
        let over = length.is_none_or(|length| length >= WINDOW);
        // Nobody looked while they were idle: what they carried then and now is no rate.
        let compares = length.is_some_and(|length| over && length < WINDOW * 2);
        let several: Vec<_> = connections.into_values().filter(|paths| paths.len() > 1).collect();
        several.iter().for_each(|paths| self.restart_if_all_silent(now, paths));
        let judged = several.iter().flat_map(|paths| self.judge(now, compares, paths, &heard, policy));
        // Others deliver, whatever their algorithm.
        let found: Vec<_> = judged.filter(|(subflow, _)| ours(subflow)).collect();
        if over {
            self.window = Some(now);
            self.past.values_mut().for_each(|past| past.at_window = Some((past.acked, past.busy_us)));
        }
        found
    }

    /// Tests for something that the next look may find even if nothing is heard until then.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    fn note(&mut self, now: Duration, subflow: &Subflow) {
        let acked = subflow.bytes_acked;
        let new = PathHistory {
            acked,
            heard: now,
            left: 0,
            resent_pkt: subflow.retransmitted_pkt,
            losses: Losses::begin(subflow),
            delivers: false,
            busy_us: subflow.busy_us,
            at_window: None,
        };
        let past = self.past.entry(key(subflow)).or_insert(new);
        if acked < past.acked {
            // Another connection has the same token.
            *past = new;
        }
        past.delivers = acked > past.acked;
        let resent = subflow.retransmitted_pkt.saturating_sub(past.resent_pkt);
        if past.delivers || !is_due(subflow) {
            // What left after the last thing was heard counts, though both was before this look.
            let after = u32::from(subflow.sent_ms_ago < subflow.heard_ms_ago);
            past.begin(now, after.min(resent).min(subflow.unanswered_timeouts));
            past.losses.note(subflow);
        } else {
            past.left = subflow.unanswered_timeouts.min(past.left.saturating_add(resent));
        }
        self.busy |= past.delivers || is_due(subflow);
        (past.acked, past.busy_us) = (acked, subflow.busy_us);
        past.resent_pkt = subflow.retransmitted_pkt;
    }

    /// While none of a connection's paths delivers and another one waits in vain as well, it is not this path that has failed:
    /// which timer expires first afterwards is chance.
    fn restart_if_all_silent(&mut self, now: Duration, paths: &[&Subflow]) {
        let delivers = |s: &Subflow| self.past.get(&key(s)).is_some_and(|past| past.delivers);
        let waits = |s: &Subflow| is_due(s) && s.unanswered_timeouts > 0;
        if paths.iter().any(|s| delivers(s)) || paths.iter().filter(|s| waits(s)).count() < 2 {
            return;
        }
        for path in paths {
            if let Some(past) = self.past.get_mut(&key(path)) {
                past.begin(now, 0);
            }
        }
    }

    /// `compares`: the window in which rates are compared is over.
    fn judge(
        &self,
        now: Duration,
        compares: bool,
        paths: &[&Subflow],
        heard: &Heard,
        policy: &Policy,
    ) -> Vec<(Subflow, Finding)> {
        let past = |subflow: &Subflow| self.past.get(&key(subflow)).copied();
        let others_deliver = |own: &Subflow| {
            paths.iter().any(|s| s.cookie != own.cookie && past(s).is_some_and(|p| p.delivers))
        };
        let window = |s: &Subflow| past(s).filter(|_| compares).and_then(|p| Some((p, p.at_window?)));
        let carried = |s: &Subflow| window(s).map(|(past, (acked, _))| past.acked.saturating_sub(acked));
        // One that was given nothing to carry says nothing of itself: an idle application's, or at a receiver.
        let was_busy = |s: &Subflow| {
            let busy =
                window(s).map(|(past, (_, busy))| Duration::from_micros(past.busy_us.saturating_sub(busy)));
            busy.is_some_and(|busy| busy >= WINDOW / 2)
        };
        let best_bytes = paths.iter().filter_map(|s| carried(s)).max().unwrap_or(0);
        let finding = |subflow: &Subflow| {
            let ago = |ms: u32| Duration::from_millis(ms.into());
            let past = past(subflow)?;
            let (silent, rto) = (ago(subflow.heard_ms_ago).min(now - past.heard), rto(subflow));
            // The kernel counts those as well at which the host's own queue still held what was to be sent again.
            let timeouts = past.left;
            let has_failed = |chi: f64| {
                let is_heard = heard.get(&addresses(subflow)).is_some_and(|&ms| ago(ms) < rto.mul_f64(chi));
                let least = if is_heard { chi.max(MIN_TIMEOUTS_PEER_HEARD) } else { chi };
                let least = least.max(past.losses.improbable());
                silent >= rto.mul_f64(chi) && f64::from(timeouts) >= least.min(MAX_TIMEOUTS)
            };
            if policy.failed.is_some_and(has_failed) && others_deliver(subflow) {
                return Some(Finding::Failed { silent, rto, timeouts });
            }
            let (omega, bytes) = (policy.useless?, carried(subflow).filter(|_| was_busy(subflow))?);
            ((bytes as f64) * omega < best_bytes as f64).then_some(Finding::Useless { bytes, best_bytes })
        };
        paths.iter().filter_map(|&s| Some((s.clone(), finding(s)?))).collect()
    }
}

/// Time in ms since anything came from the other end, by pair of addresses, on any connection.
type Heard = HashMap<(IpAddr, IpAddr), u32>;

fn heard(all: &[Subflow]) -> Heard {
    let mut heard = Heard::new();
    for subflow in all.iter().filter(|s| s.established) {
        let last = heard.entry(addresses(subflow)).or_insert(u32::MAX);
        *last = subflow.heard_ms_ago.min(*last);
    }
    heard
}

fn addresses(subflow: &Subflow) -> (IpAddr, IpAddr) {
    (subflow.local.ip().to_canonical(), subflow.remote.ip().to_canonical())
}

/// A path that carries data by choice.
fn is_used(subflow: &Subflow) -> bool {
    subflow.established && subflow.mptcp.is_some_and(|mptcp| mptcp.established && !mptcp.backup)
}

/// True if a path can carry what another one did.
pub(crate) fn is_alive(subflow: &Subflow) -> bool {
    is_used(subflow) && subflow.ca_state != CaState::Loss
}

/// True if sent data is not acknowledged yet. The end that opened the subflow counts the acknowledgment of its SYN as a byte.
pub(crate) fn is_due(subflow: &Subflow) -> bool {
    let once = subflow.bytes_sent.saturating_sub(subflow.bytes_retransmitted);
    once > subflow.bytes_acked || (subflow.in_flight_pkt > 0 && once == subflow.bytes_acked)
}

/// The timeout before it backs off.
fn rto(subflow: &Subflow) -> Duration {
    let deviation = (4 * u64::from(subflow.rttvar_us)).max(MIN_DEVIATION_US);
    Duration::from_micros(u64::from(subflow.srtt_us) + deviation)
}
