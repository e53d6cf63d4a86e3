//! The arithmetic of `kernel/cc/elapsed.h`, in its native build.

const GROUP_RETRY_US: u32 = 10_000;
const TICK_US: u64 = 128;
const ROUND_US: u64 = TICK_US << 16;
const MINUTE_US: u64 = 60_000_000;

unsafe extern "C" {
    fn vmcc_short_passed(now_us: u64, then_us: u64, wait_us: u32) -> i32;
    fn vmcc_brief_in_full(time: u32) -> u32;
}

/// As `membership_due` asks.
fn due_after(silence_us: u64, then_us: u64, wait_us: u32) -> bool {
    // SAFETY: takes and answers numbers.
    unsafe { vmcc_short_passed(then_us + silence_us, then_us, wait_us) != 0 }
}

fn brief_in_full(time: u32) -> u32 {
    // SAFETY: takes and answers a number.
    unsafe { vmcc_brief_in_full(time) }
}

#[test]
fn path_is_refreshed_after_any_silence() {
    for then_us in [0, 1, u64::from(u32::MAX), 1 << 40] {
        for minutes in [1, 20, 35, 36, 37, 50, 71, 73, 100, 1000] {
            assert!(
                due_after(minutes * MINUTE_US, then_us, GROUP_RETRY_US),
                "{minutes} minutes after {then_us}"
            );
        }
        for round in [0, ROUND_US, 500 * ROUND_US] {
            let due = |silence_us| due_after(round + silence_us, then_us, GROUP_RETRY_US);
            assert!(
                !due(0) && !due(9_800) && due(10_000 + TICK_US) && due(ROUND_US - TICK_US),
                "{then_us} {round}"
            );
        }
    }
}

#[test]
fn interval_is_bounded_by_a_tick_and_half_the_clock() {
    for then_us in [0, 127, 1 << 40] {
        assert!(!due_after(0, then_us, 0) && due_after(TICK_US, then_us, 0), "{then_us}");
        assert!(!due_after(ROUND_US / 2 - TICK_US, then_us, u32::MAX), "{then_us}");
        assert!(due_after(ROUND_US / 2 + TICK_US, then_us, u32::MAX), "{then_us}");
    }
}

#[test]
fn sixteen_bit_times_lose_less_than_a_thousandth() {
    let powers = (0..32).map(|bit| 1_u32 << bit);
    let times = powers.flat_map(|power| [power - 1, power, power + 1, power + power / 3]).chain([u32::MAX]);
    for time in times.chain((0..4096).map(|step| step * 104_729)) {
        let kept = brief_in_full(time);
        assert!(kept <= time && u64::from(time - kept) * 1000 <= u64::from(time), "{time} became {kept}");
        assert!(time >= 2048 || kept == time, "{time} became {kept}");
        assert_eq!(brief_in_full(kept), kept, "nothing more is left out of {kept}");
    }
}
