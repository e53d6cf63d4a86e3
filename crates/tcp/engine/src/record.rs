//! Records: the units that a carrier's byte stream is cut into. A length of two bytes (a varint), then frames.

/// Bytes of a record at most, header included: what one TLS record holds.
pub const MAX_RECORD: usize = 16 << 10;
/// Bytes of the length.
pub(crate) const HEADER_LEN: usize = 2;
/// Bytes of frames in a record at most.
pub(crate) const MAX_BODY: usize = MAX_RECORD - HEADER_LEN;

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotARecord;

/// Length of the body that a header announces.
fn body_len(header: [u8; HEADER_LEN], max: usize) -> Result<usize, NotARecord> {
    let value = u16::from_be_bytes(header);
    let len = usize::from(value & 0x3fff);
    // The header is a varint of two bytes; no record is empty.
    if value >> 14 == 1 && (1..=max).contains(&len) { Ok(len) } else { Err(NotARecord) }
}

/// Cuts a byte stream into the bodies of its records. Holds at most one incomplete record.
#[derive(Debug, Default)]
pub(crate) struct Deframer {
    partial: Vec<u8>,
}

impl Deframer {
    /// The next body, from the front of `input`, which is advanced; none once `input` is used up. `scratch` lends a body that
    /// arrived in parts.
    pub(crate) fn next<'s, 'i: 's>(
        &mut self,
        input: &mut &'i [u8],
        scratch: &'s mut Vec<u8>,
        max: usize,
    ) -> Result<Option<&'s [u8]>, NotARecord> {
        if self.partial.is_empty()
            && let Some((&header, rest)) = input.split_first_chunk()
        {
            let len = body_len(header, max)?;
            if let Some((body, rest)) = rest.split_at_checked(len) {
                *input = rest;
                return Ok(Some(body));
            }
        }
        if !self.fill(input, HEADER_LEN) {
            return Ok(None);
        }
        let header = self.partial.first_chunk().expect("filled");
        let len = body_len(*header, max)?;
        if !self.fill(input, HEADER_LEN + len) {
            return Ok(None);
        }
        scratch.clear();
        scratch.extend_from_slice(&self.partial[HEADER_LEN..]);
        self.partial.clear();
        Ok(Some(scratch))
    }

    /// Takes input until `len` bytes are there; returns true if they are.
    fn fill(&mut self, input: &mut &[u8], len: usize) -> bool {
        let take = len.saturating_sub(self.partial.len()).min(input.len());
        let (head, rest) = input.split_at(take);
        self.partial.extend_from_slice(head);
        *input = rest;
        self.partial.len() >= len
    }
}

/// A record at the end of a buffer, whose header is written when it is complete.
pub(crate) struct RecordBuilder {
    start: usize,
    max_body: usize,
}

impl RecordBuilder {
    /// Begins a record of at most `max_body` bytes of frames.
    pub(crate) fn begin(out: &mut Vec<u8>, max_body: usize) -> RecordBuilder {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_LEN]);
        RecordBuilder { start, max_body: max_body.min(MAX_BODY) }
    }

    fn len(&self, out: &[u8]) -> usize {
        out.len() - self.start - HEADER_LEN
    }

    /// Bytes of frames that still fit.
    pub(crate) fn room(&self, out: &[u8]) -> usize {
        self.max_body.saturating_sub(self.len(out))
    }

    /// Writes the header; returns false, and takes the record back, if it is empty.
    pub(crate) fn finish(self, out: &mut Vec<u8>) -> bool {
        let len = self.len(out);
        debug_assert!(len <= MAX_BODY);
        if len == 0 {
            out.truncate(self.start);
            return false;
        }
        let header = (len as u16 | 0x4000).to_be_bytes();
        out[self.start..self.start + HEADER_LEN].copy_from_slice(&header);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bodies(deframer: &mut Deframer, mut input: &[u8]) -> Result<Vec<Vec<u8>>, NotARecord> {
        let mut all = Vec::new();
        loop {
            let mut scratch = Vec::new();
            match deframer.next(&mut input, &mut scratch, MAX_BODY)? {
                Some(body) => all.push(body.to_vec()),
                None => return Ok(all),
            }
        }
    }

    proptest! {
        #[test]
        fn records_do_not_depend_on_chunking(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..20),
            cuts in prop::collection::vec(1..400usize, 1..50),
        ) {
            let mut bytes = Vec::new();
            for record in &records {
                let builder = RecordBuilder::begin(&mut bytes, MAX_BODY);
                bytes.extend_from_slice(record);
                prop_assert!(builder.finish(&mut bytes));
            }
            let (mut deframer, mut read, mut rest) = (Deframer::default(), Vec::new(), &bytes[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (head, tail) = rest.split_at((*cut).min(rest.len()));
                read.extend(bodies(&mut deframer, head).unwrap());
                rest = tail;
            }
            prop_assert_eq!(read, records);
        }

        #[test]
        fn memory_is_bounded_for_any_bytes(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 0..40)) {
            let mut deframer = Deframer::default();
            for chunk in chunks {
                if bodies(&mut deframer, &chunk).is_err() {
                    break;
                }
                prop_assert!(deframer.partial.len() < MAX_RECORD);
            }
        }
    }

    #[test]
    fn other_protocols_are_rejected() {
        for bytes in [
            &b"\x16\x03\x01\x02\x00"[..],
            b"\x00\x00",
            b"\x40\x00",
            b"\x80\x01",
            b"\xff\xff",
            b" HTTP",
            b"\r\n",
        ] {
            assert_eq!(bodies(&mut Deframer::default(), bytes), Err(NotARecord), "{bytes:?}");
        }
        // A header that announces more than the limit of a greeting.
        let mut scratch = Vec::new();
        assert_eq!(Deframer::default().next(&mut &b"\x41\x01"[..], &mut scratch, 256), Err(NotARecord));
    }

    #[test]
    fn empty_record_is_removed() {
        let mut out = vec![1];
        assert!(!RecordBuilder::begin(&mut out, 100).finish(&mut out));
        assert_eq!(out, [1]);
    }
}
