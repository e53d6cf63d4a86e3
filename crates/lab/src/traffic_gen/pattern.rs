//! Contents of streams: bytes that follow from their offset.

/// No divisor of any size of packets or buffers, so that what comes at the wrong place is seen.
const PERIOD: usize = 65_521;

/// The bytes of every stream.
pub(super) struct Pattern(Vec<u8>);

impl Pattern {
    /// The most that is had at a time.
    pub(super) const PIECE: usize = 64 << 10;

    pub(super) fn new() -> Pattern {
        // A full period of 2^32 (Knuth's constants), of which the high bits are the better ones.
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let mut bytes: Vec<u8> = (0..PERIOD).map(|_| next()).collect();
        bytes.extend_from_within(..);
        Pattern(bytes)
    }

    /// This many bytes of a stream from `offset` on, at most [`Pattern::PIECE`] and less than a period.
    pub(super) fn at(&self, offset: u64, len: usize) -> &[u8] {
        let begin = (offset % PERIOD as u64) as usize;
        &self.0[begin..begin + len.min(PERIOD)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_bytes_depend_on_the_offset() {
        let pattern = Pattern::new();
        let whole: Vec<u8> = (0..4).flat_map(|i| pattern.at(i * 50_000, 50_000).to_vec()).collect();
        for offset in [0, 1, 49_999, PERIOD - 1, PERIOD, 130_000] {
            assert_eq!(pattern.at(offset as u64, 60_000), &whole[offset..offset + 60_000], "{offset}");
        }
        assert_ne!(pattern.at(0, 1000), pattern.at(1000, 1000));
        assert_eq!(pattern.at(u64::MAX, Pattern::PIECE).len(), PERIOD.min(Pattern::PIECE));
    }
}
