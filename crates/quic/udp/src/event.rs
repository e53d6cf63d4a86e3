//! Events of paths for applications.

/// Something that happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathEvent {
    /// It can carry data.
    Opened(u32),
    /// It is silent; what it carries leaves on others as well.
    Suspected(u32),
    /// It answers again.
    Revived(u32),
    /// There may be room for another path.
    Available,
    /// It is gone, for this reason (draft-ietf-quic-multipath-21 section 6).
    Closed {
        /// Its number.
        path: u32,
        /// The code.
        code: u64,
    },
}
