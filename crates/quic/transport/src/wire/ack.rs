//! The body of ACK and PATH_ACK frames (RFC 9000 section 19.3).

use super::ranges::Ranges;
use super::varint::{self, Malformed, Reader};
use std::ops::RangeInclusive;

/// Packets by their ECN mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EcnCounts {
    pub(crate) ect0: u64,
    pub(crate) ect1: u64,
    pub(crate) ce: u64,
}

/// An acknowledgment; its ranges were checked when it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack<'a> {
    pub(crate) largest: u64,
    /// Raw: to be shifted by the exponent.
    pub(crate) delay: u64,
    first: u64,
    blocks: &'a [u8],
    pub(crate) ecn: Option<EcnCounts>,
}

impl<'a> Ack<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>, with_ecn: bool) -> Result<Ack<'a>, Malformed> {
        let (largest, delay, count, first) = (reader.var()?, reader.var()?, reader.var()?, reader.var()?);
        let before = *reader;
        let mut smallest = largest.checked_sub(first).ok_or(Malformed)?;
        for _ in 0..count {
            smallest = next_block(reader, smallest)?.0;
        }
        let blocks = Reader::new(before.clone().take_rest()).take(before.left() - reader.left())?;
        let mut ecn = None;
        if with_ecn {
            ecn = Some(EcnCounts { ect0: reader.var()?, ect1: reader.var()?, ce: reader.var()? });
        }
        Ok(Ack { largest, delay, first, blocks, ecn })
    }

    /// The ranges, the highest first.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u64>> {
        let mut reader = Reader::new(self.blocks);
        let mut smallest = self.largest - self.first;
        let rest = std::iter::from_fn(move || {
            let (low, high) = next_block(&mut reader, smallest).ok()?;
            smallest = low;
            Some(low..=high)
        });
        std::iter::once(smallest..=self.largest).chain(rest)
    }
}

/// The range below one that begins at `smallest`.
fn next_block(reader: &mut Reader<'_>, smallest: u64) -> Result<(u64, u64), Malformed> {
    let high = smallest.checked_sub(reader.var()? + 2).ok_or(Malformed)?;
    let low = high.checked_sub(reader.var()?).ok_or(Malformed)?;
    Ok((low, high))
}

/// Appends the body for `received`, which is not empty, with as many ranges, highest first, as fit `room`. Whether it did fit.
pub(crate) fn put(
    out: &mut Vec<u8>,
    received: &Ranges,
    delay: u64,
    ecn: Option<EcnCounts>,
    room: usize,
) -> bool {
    let begin = out.len();
    let mut descending = received.iter().rev();
    let Some(highest) = descending.next() else { return false };
    let counts = ecn.map_or(0, |ecn| [ecn.ect0, ecn.ect1, ecn.ce].map(varint::len).iter().sum());
    varint::put(out, highest.end - 1);
    varint::put(out, delay);
    let fixed = out.len() - begin + varint::len(received.len() as u64) + counts;
    let mut body = Vec::new();
    varint::put(&mut body, highest.end - 1 - highest.start);
    if fixed + body.len() > room {
        out.truncate(begin);
        return false;
    }
    let (mut smallest, mut blocks) = (highest.start, 0);
    for range in descending {
        let before = body.len();
        varint::put(&mut body, smallest - range.end - 1);
        varint::put(&mut body, range.end - 1 - range.start);
        if fixed + body.len() > room {
            body.truncate(before);
            break;
        }
        (smallest, blocks) = (range.start, blocks + 1);
    }
    varint::put(out, blocks);
    out.extend_from_slice(&body);
    if let Some(ecn) = ecn {
        [ecn.ect0, ecn.ect1, ecn.ce].iter().for_each(|&n| varint::put(out, n));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ack_frame_round_trips(
            numbers in prop::collection::vec((0..1000u64, 1..20u64), 1..40), room in 20..200usize, ce: u16
        ) {
            let mut received = Ranges::default();
            for (start, len) in numbers {
                received.insert(start..start + len);
            }
            let ecn = Some(EcnCounts { ect0: 5, ect1: 0, ce: ce.into() });
            let mut out = Vec::new();
            prop_assert!(put(&mut out, &received, 77, ecn, room));
            prop_assert!(out.len() <= room);
            let mut reader = Reader::new(&out);
            let ack = Ack::decode(&mut reader, true).unwrap();
            prop_assert!(reader.is_empty());
            prop_assert_eq!((ack.delay, ack.ecn), (77, ecn));
            let read: Vec<_> = ack.ranges().map(|range| *range.start()..range.end() + 1).collect();
            let all: Vec<_> = received.iter().rev().cloned().collect();
            prop_assert!(all.starts_with(&read) && !read.is_empty());
        }

        #[test]
        fn any_ack_bytes_are_parsed_or_refused(bytes: Vec<u8>, ecn: bool) {
            if let Ok(ack) = Ack::decode(&mut Reader::new(&bytes), ecn) {
                let mut above = ack.largest + 1;
                for range in ack.ranges() {
                    prop_assert!(range.start() <= range.end() && *range.end() < above);
                    above = *range.start();
                }
            }
        }
    }
}
