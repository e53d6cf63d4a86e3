//! Selection of the paths that stay open when a detector finds that they share a bottleneck: the flows MPd of M. Zhang et al., mTCP (USENIX ATC
//! 2004), section 3.4.1.

/// d, if nobody chooses it, as in the paper's experiments: all but one may be suppressed.
pub const MIN_PATHS: u32 = 1;

/// True if a path may be suppressed because it shares a bottleneck: at least `min_paths` (d) other paths must be in use.
/// A path that has failed, or is a backup, is not in use. At least one path is left, whatever `min_paths` is.
pub fn may_suppress(others_in_use: usize, min_paths: u32) -> bool {
    u32::try_from(others_in_use).unwrap_or(u32::MAX) >= min_paths.max(MIN_PATHS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_PATHS;

    #[test]
    fn repeated_suppression_leaves_min_paths() {
        for min_paths in 0..=10 {
            for paths in 1..=MAX_PATHS {
                let mut in_use = paths;
                while may_suppress(in_use - 1, min_paths) {
                    in_use -= 1;
                }
                assert_eq!(in_use, paths.min(min_paths.max(1) as usize), "{paths} {min_paths}");
            }
        }
    }

    #[test]
    fn unused_path_is_suppressed_beside_min_paths_in_use() {
        // A path that has failed beside two that work.
        assert!(may_suppress(2, 2) && !may_suppress(2, 3));
    }
}
