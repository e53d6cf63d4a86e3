//! Which subflow carries the next segment: the rules, as functions of plain numbers.
//!
//! Sources: the schedulers of the out-of-tree Linux MPTCP 0.94/0.95; S. Ferlin et al., BLEST (IFIP
//! Networking 2016); Y. Lim et al., ECF (CoNEXT 2017); M. Zhang et al., mTCP (USENIX ATC 2004), section 3.1.
//! Deviation: products are taken in 64 bits; the ECF module multiplies in 32.

use super::config::Scheduler;
use super::conn::Conn;
use super::subflow::{Status, Subflow};
use vmcc_cc::State;

/// BLEST's correction factor in thousandths: 1.0 to 1.3, starting at 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlestState {
    pub(crate) lambda_milli: u32,
    /// A segment had to be repeated because the window was blocked, since the last update.
    pub(crate) blocked: bool,
    /// When the factor was last changed, in microseconds.
    pub(crate) updated_us: u64,
}

impl Default for BlestState {
    fn default() -> Self {
        BlestState { lambda_milli: 1200, blocked: false, updated_us: 0 }
    }
}

impl BlestState {
    /// Once per round trip of the slow subflow: up after blocking, slowly down otherwise.
    pub(crate) fn update(&mut self, now_us: u64, slow_rtt_us: u64) {
        if now_us.saturating_sub(self.updated_us) < slow_rtt_us {
            return;
        }
        self.lambda_milli = if self.blocked {
            (self.lambda_milli + 40).min(1300)
        } else {
            self.lambda_milli.saturating_sub(10).max(1000)
        };
        self.blocked = false;
        self.updated_us = now_us;
    }
}

/// A subflow as the estimating schedulers see it. RTTs in 1/8 us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) srtt_8us: u32,
    pub(crate) deviation_8us: u32,
    pub(crate) cwnd_pkt: u32,
    pub(crate) in_flight_pkt: u32,
    pub(crate) slow_start: bool,
}

/// BLEST: bytes that the fast subflow can send while one segment travels on the slow one.
pub(crate) fn blest_fast_bytes(fast: &View, slow: &View, mss_bytes: u64, lambda_milli: u32) -> u64 {
    let rounds = u64::from(slow.srtt_8us / fast.srtt_8us.max(1)) + 1;
    let window = u64::from(fast.cwnd_pkt);
    let packets_x2 = if fast.slow_start {
        2 * window * ((1 << rounds.min(16)) - 1)
    } else {
        (2 * window + (rounds - 1)) * rounds
    };
    packets_x2.saturating_mul(mss_bytes).saturating_mul(u64::from(lambda_milli)) / 2000
}

/// BLEST: whether to leave the slow subflow idle because its segment would block the window.
pub(crate) fn blest_waits(
    fast: &View,
    slow: &View,
    send_window_bytes: u64,
    mss_bytes: u64,
    lambda_milli: u32,
) -> bool {
    let slow_bytes = u64::from(slow.in_flight_pkt + 1) * mss_bytes;
    blest_fast_bytes(fast, slow, mss_bytes, lambda_milli) > send_window_bytes.saturating_sub(slow_bytes)
}

/// ECF: whether to wait for the fast subflow, and the new `waiting` flag.
pub(crate) fn ecf_waits(
    fast: &View,
    slow: &View,
    backlog_bytes: u64,
    mss_bytes: u64,
    waiting: bool,
) -> (bool, bool) {
    let (fast_window, slow_window) =
        (u64::from(fast.cwnd_pkt) * mss_bytes, u64::from(slow.cwnd_pkt) * mss_bytes);
    let (fast_rtt, slow_rtt) = (u64::from(fast.srtt_8us), u64::from(slow.srtt_8us));
    let delta = u64::from(fast.deviation_8us.max(slow.deviation_8us));
    let left = fast_rtt * (backlog_bytes.max(fast_window) + fast_window);
    let right = fast_window * (slow_rtt + delta);
    let right_x4 = right.saturating_mul(4 + u64::from(waiting));
    if left.saturating_mul(4) >= right_x4 {
        return (false, false);
    }
    let slow_side = slow_rtt * backlog_bytes.max(slow_window);
    if slow_side >= slow_window * (2 * fast_rtt + delta) { (true, true) } else { (false, waiting) }
}

/// Whether a subflow may carry data at all now, room aside.
#[inline]
fn is_usable(sf: &Subflow, alone: bool) -> bool {
    sf.status == Status::Established && (alone || (!sf.failed && sf.state != State::Loss)) && !sf.paced_out
}

fn view(sf: &Subflow) -> View {
    View {
        srtt_8us: sf.rtt.srtt_8us,
        deviation_8us: sf.rtt.deviation_us() * 8,
        cwnd_pkt: sf.cwnd,
        in_flight_pkt: sf.board.in_flight(),
        slow_start: sf.in_slow_start(),
    }
}

/// Candidates for one segment: usable subflows, backups only when nothing else exists.
struct Candidates {
    bits: u8,
}

impl Candidates {
    fn of(conn: &Conn, subs: &[Subflow]) -> Candidates {
        let established = subs.iter().filter(|s| s.status == Status::Established).count();
        let mut regular = 0u8;
        let mut backup = 0u8;
        for (i, sf) in subs.iter().enumerate() {
            if sf.status != Status::Established || (sf.failed && established > 1) {
                continue;
            }
            if sf.backup { backup |= 1 << i } else { regular |= 1 << i }
        }
        let mut bits = if regular != 0 { regular } else { backup };
        if let Some(only) = conn.only
            && bits & 1 << only != 0
        {
            bits = 1 << only;
        }
        let alone = bits.count_ones() == 1;
        for (i, sf) in subs.iter().enumerate() {
            if bits & 1 << i != 0 && !is_usable(sf, alone) {
                bits &= !(1 << i);
            }
        }
        Candidates { bits }
    }
}

fn indices(mut bits: u8) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (bits != 0).then(|| {
            let i = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            i
        })
    })
}

/// Lowest RTT among `bits` with room, at first among those that have not carried the segment.
fn lowest_rtt(subs: &[Subflow], bits: u8, carriers: u8) -> Option<usize> {
    let with_room: u8 = indices(bits).filter(|&i| subs[i].room() > 0).map(|i| 1 << i).sum();
    let fresh = with_room & !carriers;
    let pool = if fresh != 0 { fresh } else { with_room };
    indices(pool).min_by_key(|&i| (subs[i].rtt.srtt_8us, i))
}

fn min_pipe(subs: &[Subflow], bits: u8) -> Option<usize> {
    indices(bits).filter(|&i| subs[i].room() > 0).min_by(|&a, &b| {
        let (x, y) = (&subs[a], &subs[b]);
        let left = u64::from(x.board.in_flight()) * u64::from(y.cwnd);
        let right = u64::from(y.board.in_flight()) * u64::from(x.cwnd);
        left.cmp(&right).then(x.rtt.srtt_8us.cmp(&y.rtt.srtt_8us)).then(a.cmp(&b))
    })
}

fn round_robin(subs: &mut [Subflow], bits: u8, num_segments: u8, cwnd_limited: bool) -> Option<usize> {
    let eligible: u8 = indices(bits).filter(|&i| !cwnd_limited || subs[i].room() > 0).map(|i| 1 << i).sum();
    if eligible == 0 {
        return None;
    }
    if indices(eligible).all(|i| subs[i].turn >= num_segments) {
        indices(eligible).for_each(|i| subs[i].turn = 0);
    }
    let begun = indices(eligible).find(|&i| (1..num_segments).contains(&subs[i].turn));
    let chosen = begun.or_else(|| indices(eligible).find(|&i| subs[i].turn == 0))?;
    if subs[chosen].room() == 0 {
        return None;
    }
    subs[chosen].turn += 1;
    Some(chosen)
}

/// Lowest RTT for new data when nothing is unusual: reads the subflows' published slots, and of the subflows
/// themselves only the one it takes.
#[inline]
fn lowest_rtt_of_ready(conn: &mut Conn, subs: &[Subflow]) -> Option<usize> {
    while conn.ready != 0 {
        let first = conn.ready.trailing_zeros() as usize;
        let best = if conn.ready & (conn.ready - 1) == 0 {
            first
        } else {
            indices(conn.ready).min_by_key(|&i| (conn.group.path[i].srtt_8us, i))?
        };
        if subs[best].room() > 0 && !subs[best].paced_out {
            return Some(best);
        }
        conn.ready &= !(1 << best);
    }
    None
}

/// Brings the summary of subflow `r` up to date, after an event that may have given it room.
#[inline]
pub(crate) fn refresh(conn: &mut Conn, sf: &Subflow, r: usize) {
    let bit = 1 << r;
    let healthy = sf.status == Status::Established && !sf.backup && !sf.failed && sf.state != State::Loss;
    conn.healthy = if healthy { conn.healthy | bit } else { conn.healthy & !bit };
    let ready = healthy && !sf.paced_out && sf.room() > 0;
    conn.ready = if ready { conn.ready | bit } else { conn.ready & !bit };
}

/// The subflow for the next segment of `conn`, or none for now. `carriers` are those that have carried it.
#[inline]
pub(crate) fn select(conn: &mut Conn, subs: &mut [Subflow], carriers: u8, now_us: u64) -> Option<usize> {
    let usual = conn.scheduler == Scheduler::LowestRtt && carriers == 0 && conn.only.is_none();
    if usual && conn.healthy.count_ones() > 1 {
        return lowest_rtt_of_ready(conn, subs);
    }
    let bits = Candidates::of(conn, subs).bits;
    match conn.scheduler {
        Scheduler::LowestRtt | Scheduler::Redundant => lowest_rtt(subs, bits, carriers),
        Scheduler::MinPipe => min_pipe(subs, bits),
        Scheduler::RoundRobin { num_segments, cwnd_limited } => {
            round_robin(subs, bits, num_segments.max(1), cwnd_limited)
        }
        Scheduler::Blest | Scheduler::Ecf => {
            let best = lowest_rtt(subs, bits, carriers)?;
            let fastest = indices(bits).min_by_key(|&i| (subs[i].rtt.srtt_8us, i))?;
            let waits = fastest != best && estimate_waits(conn, &subs[fastest], &subs[best], now_us);
            (!waits).then_some(best)
        }
    }
}

/// Linux's largest automatic send buffer (`tcp_wmem[2]`): what an endless application can have waiting.
const SEND_BUFFER_BYTES: u64 = 4 << 20;

fn estimate_waits(conn: &mut Conn, fast: &Subflow, slow: &Subflow, now_us: u64) -> bool {
    let mss = u64::from(conn.mss_bytes);
    let (f, s) = (view(fast), view(slow));
    if conn.scheduler == Scheduler::Blest {
        conn.blest.update(now_us, u64::from(s.srtt_8us >> 3));
        let window = u64::from(conn.edge - conn.una) * mss;
        return blest_waits(&f, &s, window, mss, conn.blest.lambda_milli);
    }
    let backlog = (u64::from(conn.end - conn.nxt) * mss).min(SEND_BUFFER_BYTES);
    let (waits, waiting) = ecf_waits(&f, &s, backlog, mss, conn.ecf_waiting);
    conn.ecf_waiting = waiting;
    waits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(rtt_us: u32, cwnd_pkt: u32) -> View {
        View { srtt_8us: rtt_us * 8, deviation_8us: 0, cwnd_pkt, in_flight_pkt: cwnd_pkt, slow_start: false }
    }

    #[test]
    fn blest_counts_the_growing_window() {
        // k = 40/10 + 1 = 5 rounds from 10 packets: (10 + 4/2) * 5 = 60 segments of 1000 bytes, times 1.2.
        assert_eq!(blest_fast_bytes(&path(10, 10), &path(40, 10), 1000, 1200), 72_000);
        let doubling = View { slow_start: true, ..path(10, 10) };
        // 10 * (2^5 - 1) = 310 segments.
        assert_eq!(blest_fast_bytes(&doubling, &path(40, 10), 1000, 1000), 310_000);
    }

    #[test]
    fn blest_waits_only_when_the_window_would_block() {
        let (fast, slow) = (path(10, 10), View { in_flight_pkt: 5, ..path(40, 10) });
        assert!(blest_waits(&fast, &slow, 72_000 + 5_999, 1000, 1200));
        assert!(!blest_waits(&fast, &slow, 72_000 + 6_000, 1000, 1200));
    }

    #[test]
    fn blest_lambda_moves_within_its_range() {
        let mut state = BlestState { blocked: true, ..BlestState::default() };
        state.update(1_000, 1_000);
        assert_eq!(state.lambda_milli, 1240);
        state.update(1_500, 1_000);
        assert_eq!(state.lambda_milli, 1240, "once per round trip");
        for i in 2..100 {
            state.update(i * 1_000, 1_000);
        }
        assert_eq!(state.lambda_milli, 1000);
        for i in 100..200 {
            state.blocked = true;
            state.update(i * 1_000, 1_000);
        }
        assert_eq!(state.lambda_milli, 1300);
    }

    #[test]
    fn ecf_waits_when_the_fast_path_finishes_first() {
        let (fast, slow) = (path(10, 10), path(100, 10));
        // Backlog 1 segment: 10 * (10 + 10) = 200 < 10 * 100 = 1000, and 100 * 10 >= 10 * 20.
        assert_eq!(ecf_waits(&fast, &slow, 1_000, 1000, false), (true, true));
        // Backlog 100 segments: 10 * 110 = 1100 >= 1000: the slow path helps.
        assert_eq!(ecf_waits(&fast, &slow, 100_000, 1000, true), (true, true), "hysteresis: 1100 < 1250");
        assert_eq!(ecf_waits(&fast, &slow, 100_000, 1000, false), (false, false));
        assert_eq!(ecf_waits(&fast, &slow, 120_000, 1000, true), (false, false), "1300 >= 1250");
    }

    #[test]
    fn ecf_uses_the_slow_path_when_two_fast_rounds_take_longer() {
        // First test: 10 * 20 = 200 >= 10 * 15: no waiting.
        assert_eq!(ecf_waits(&path(10, 10), &path(15, 10), 1_000, 1000, true), (false, false));
        // First test holds (10 * 2 < 1 * 21 is not; deviation 8): 20 < 29, second: 21 * 1 < 1 * (20 + 8).
        let slow = View { deviation_8us: 64, ..path(21, 1) };
        assert_eq!(ecf_waits(&path(10, 1), &slow, 1_000, 1000, true), (false, true));
    }

    #[test]
    fn products_do_not_overflow() {
        let wide = View { srtt_8us: 80_000_000, ..path(1, 1 << 20) };
        let wide = View { srtt_8us: wide.srtt_8us, ..wide };
        let _ = ecf_waits(&wide, &wide, 4 << 20, 9000, true);
        let _ = blest_waits(&path(1, 1 << 20), &wide, u64::MAX, 9000, 1300);
    }
}
