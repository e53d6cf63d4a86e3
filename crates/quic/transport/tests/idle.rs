//! Cost of an idle connection: its memory, and no slowdown of others. In a process of its own, because
//! other tests allocate.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use vmcc_quic_testkit::crowd::Crowd;

/// Bytes that one end of an idle connection may have.
const MAX_BYTES: usize = 32 << 10;

fn weigh(count: usize) -> [usize; 2] {
    let mut crowd = Crowd::new(count);
    (0..count).for_each(|_| crowd.open());
    [crowd.weigh(0), crowd.weigh(1)]
}

#[test]
fn idle_connection_memory_is_bounded() {
    let (few, many) = (weigh(20), weigh(120));
    for (few, many) in few.into_iter().zip(many) {
        let each = (many - few) / 100;
        assert!(each <= MAX_BYTES, "{each} bytes for each");
        // Hash tables double now and then.
        assert!(
            each * 20 <= few * 3 / 2 && few <= each * 20 + 20 * MAX_BYTES,
            "{few} bytes of 20, {many} of 120"
        );
    }
}
