//! Which subflow carries what, where windows are small.

use crate::common::{get, run};

/// Two paths of 10 Mbit/s and a window that one path's queue could hold. By smoothed RTTs it was 9.5 Mbit/s, all on one; Linux carries up
/// to 18.7, half on each path.
#[test]
fn lowest_rtt_fills_both_paths_within_a_small_window() {
    for (delay, least) in [("5ms", 18e6), ("10ms", 16e6)] {
        let text = format!(
            "title='t'\nduration='10s'\nwarmup='3s'\n[host]\ncc='lia'\nreceive_buffer='256KiB'\n[topology]\n\
             kind='parallel-paths'\npaths=2\nrate='10mbit'\ndelay='{delay}'\n[[traffic]]\nkind='bulk'\n"
        );
        let output = run(&text, &[]);
        let (all, a, b) = (
            get(&output, "goodput_bps"),
            get(&output, "paths.a.goodput_bps"),
            get(&output, "paths.b.goodput_bps"),
        );
        assert!(all > least, "{delay}: {all}: {a} and {b}");
        assert!(a.min(b) / a.max(b) > 0.6, "{delay}: {a} and {b}");
    }
}
