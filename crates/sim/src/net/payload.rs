//! Bytes that packets carry, by packet.
//!
//! Most packets have none: the table grows only as far as packets with a payload do, and a buffer is used again as soon as its
//! packet was delivered, or its number given to another.

/// Most buffers kept: where one shard only receives, it gets more than it will ever need.
const MAX_SPARE: usize = 4096;

/// Payloads of the packets of a shard.
#[derive(Debug, Default)]
pub(crate) struct Payloads {
    /// By the packet's number in the slab. What a dropped packet leaves here is overwritten.
    of: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl Payloads {
    /// Packet `id` carries a copy of these bytes.
    pub(crate) fn put(&mut self, id: u32, payload: &[u8]) {
        let slot = self.slot(id);
        let unused = std::mem::take(slot);
        let mut buffer = if unused.capacity() > 0 { unused } else { self.spare.pop().unwrap_or_default() };
        buffer.clear();
        buffer.extend_from_slice(payload);
        *self.slot(id) = buffer;
    }

    /// Packet `id`, which came from another shard, carries these bytes.
    pub(crate) fn hand_over(&mut self, id: u32, payload: Vec<u8>) {
        let unused = std::mem::replace(self.slot(id), payload);
        self.reuse(unused);
    }

    /// The bytes of packet `id`, which leaves.
    pub(crate) fn take(&mut self, id: u32) -> Vec<u8> {
        std::mem::take(self.slot(id))
    }

    /// A buffer that nobody reads any more.
    pub(crate) fn reuse(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() > 0 && self.spare.len() < MAX_SPARE {
            self.spare.push(buffer);
        }
    }

    fn slot(&mut self, id: u32) -> &mut Vec<u8> {
        let index = id as usize;
        if index >= self.of.len() {
            self.of.resize_with(index + 1, Vec::new);
        }
        &mut self.of[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused() {
        let mut payloads = Payloads::default();
        payloads.put(3, b"first");
        let first = payloads.take(3);
        let place = first.as_ptr();
        assert_eq!(first, b"first");
        payloads.reuse(first);
        payloads.put(0, b"next");
        assert_eq!(payloads.of[0].as_ptr(), place, "that of a delivered packet");
        payloads.put(0, b"third");
        assert_eq!(
            (payloads.of[0].as_ptr(), &payloads.of[0][..]),
            (place, &b"third"[..]),
            "that of a dropped one"
        );
    }

    #[test]
    fn payload_bytes_are_kept_across_shards() {
        let (mut there, mut here) = (Payloads::default(), Payloads::default());
        there.put(7, b"bytes");
        here.put(2, b"dropped");
        here.hand_over(2, there.take(7));
        assert_eq!(here.take(2), b"bytes");
        assert_eq!((here.spare.len(), there.take(7).len()), (1, 0));
    }
}
