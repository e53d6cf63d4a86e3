//! Which subflow carries what, where windows are small.

use crate::common::{get, run};

/// Two paths of 10 Mbit/s and a window that one path's queue could hold. It was 9.5 Mbit/s, all on one; Linux carries 14 to 15, half
/// on each path. An idle path's estimate is as old as the queue that it once had.
#[test]
fn lowest_rtt_returns_to_an_idle_path() {
    let text = "title='t'\nduration='10s'\nwarmup='3s'\n[host]\ncc='lia'\nreceive_buffer='256KiB'\n[topology]\nkind='parallel-paths'\n\
                paths=2\nrate='10mbit'\ndelay='5ms'\n[[traffic]]\nkind='bulk'\n";
    let output = run(text, &[]);
    let (all, a, b) = (
        get(&output, "goodput_bps"),
        get(&output, "paths.a.goodput_bps"),
        get(&output, "paths.b.goodput_bps"),
    );
    assert!(all > 10.5e6, "{all}: {a} and {b}");
    assert!(a.min(b) / a.max(b) > 0.6, "{a} and {b}");
}
