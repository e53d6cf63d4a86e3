//! Buffer space that the streams of a connection share.

/// Shared buffer with dynamic thresholds (Choudhury and Hahne, 1998). A stream may hold its reserve, and beyond it at most as much as
/// is left free. Streams that hold all they may slow the others down and never stop them.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Bytes to share.
    size: u64,
    /// Bytes that each stream may hold besides.
    reserve: u64,
    /// Bytes of `size` that streams hold.
    used: u64,
}

impl Pool {
    pub(crate) fn new(size: u64, reserve: u64) -> Pool {
        Pool { size, reserve, used: 0 }
    }

    /// Most bytes that a stream may hold which holds `held` now.
    pub(crate) fn limit(&self, held: u64) -> u64 {
        let others = self.used - self.beyond(held);
        self.reserve.saturating_add(self.size.saturating_sub(others) / 2)
    }

    /// Records that a stream holds `after` bytes instead of `before`.
    pub(crate) fn change(&mut self, before: u64, after: u64) {
        self.used = self.used - self.beyond(before) + self.beyond(after);
    }

    fn beyond(&self, held: u64) -> u64 {
        held.saturating_sub(self.reserve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_streams_leave_others_a_share() {
        let mut pool = Pool::new(32 << 20, 32 << 10);
        let mut total = 0;
        for _ in 0..1024 {
            let most = pool.limit(0);
            assert!(most >= 32 << 10);
            pool.change(0, most);
            total += most;
        }
        assert!(total <= 64 << 20, "{total}");
        // One of them lets go of everything: the next one has half of that.
        pool.change(16 << 20, 0);
        assert!(pool.limit(0) > 7 << 20);
    }

    #[test]
    fn stream_does_not_compete_with_itself() {
        let mut pool = Pool::new(1000, 10);
        let most = pool.limit(0);
        pool.change(0, most);
        assert_eq!(pool.limit(most), most);
    }
}
