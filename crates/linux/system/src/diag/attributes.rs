//! Attributes of a netlink answer.

use netlink_packet_core::{NlaBuffer, NlasIterator};

const NLA_HEADER_LEN: usize = 4;
/// Bits of a kind without its flags.
pub(super) const NLA_TYPE_MASK: u16 = 0x3fff;

/// The attributes of a nest, as type and value; ends at the first malformed one.
pub(super) fn attributes(nest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(nest).map_while(Result::ok).filter_map(move |found: NlaBuffer<&[u8]>| {
        let value = found.into_inner().get(NLA_HEADER_LEN..usize::from(found.length()))?;
        Some((found.kind() & NLA_TYPE_MASK, value))
    })
}
