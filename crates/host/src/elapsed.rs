//! The arithmetic of `kernel/elapsed.h`, in its native build.

const LOOK_AGAIN_US: u32 = 10_000;
const MINUTE_US: u64 = 60_000_000;

unsafe extern "C" {
    fn vmcc_time_passed(now: u32, then: u32, wait: u32) -> i32;
}

/// As `membership_due` asks: on the low half of a clock in microseconds.
fn due_after(silence_us: u64, then_us: u64) -> bool {
    let now = (then_us + silence_us) & u64::from(u32::MAX);
    let [now, then] = [now, then_us & u64::from(u32::MAX)].map(|t| u32::try_from(t).expect("the low half"));
    // SAFETY: takes and answers numbers.
    unsafe { vmcc_time_passed(now, then, LOOK_AGAIN_US) != 0 }
}

#[test]
fn a_path_is_looked_at_after_any_silence() {
    for then_us in [0, 1, u64::from(u32::MAX), 1 << 40] {
        for minutes in [1, 20, 35, 36, 37, 50, 71, 73, 100, 1000] {
            assert!(due_after(minutes * MINUTE_US, then_us), "{minutes} minutes after {then_us}");
        }
        assert!(!due_after(0, then_us) && !due_after(9_999, then_us) && due_after(10_000, then_us));
    }
}
