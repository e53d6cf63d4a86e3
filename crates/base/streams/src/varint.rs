//! Variable-length integers (RFC 9000 section 16) and a reader that never reads beyond its end.

/// The largest value.
pub const MAX: u64 = (1 << 62) - 1;

/// Input that ends too early, or is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the first byte.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Returns true at the end.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Number of bytes left.
    #[inline]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Takes `n` bytes.
    ///
    /// # Errors
    /// There are fewer.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(Malformed)?;
        self.rest = rest;
        Ok(head)
    }

    /// Takes all that is left.
    #[inline]
    pub fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Takes `N` bytes.
    ///
    /// # Errors
    /// There are fewer.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*head)
    }

    /// Takes a byte.
    ///
    /// # Errors
    /// There is none.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Takes an integer.
    ///
    /// # Errors
    /// Its bytes are missing.
    #[inline]
    pub fn var(&mut self) -> Result<u64, Malformed> {
        let &first = self.rest.first().ok_or(Malformed)?;
        match first >> 6 {
            0 => {
                self.rest = &self.rest[1..];
                Ok(u64::from(first))
            }
            1 => Ok(u64::from(u16::from_be_bytes(self.array()?) & 0x3fff)),
            2 => Ok(u64::from(u32::from_be_bytes(self.array()?) & 0x3fff_ffff)),
            _ => Ok(u64::from_be_bytes(self.array()?) & MAX),
        }
    }

    /// Takes a length, and as many bytes.
    ///
    /// # Errors
    /// They are missing.
    #[inline]
    pub fn prefixed(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.var()?).map_err(|_| Malformed)?;
        self.take(len)
    }

    /// Takes an integer of 32 bits at most.
    ///
    /// # Errors
    /// Its bytes are missing, or it is larger.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.var()?).map_err(|_| Malformed)
    }
}

/// Bytes that `value` takes.
#[inline]
pub const fn len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Appends `value`, which is at most [`MAX`].
#[inline]
pub fn put(out: &mut Vec<u8>, value: u64) {
    debug_assert!(value <= MAX);
    match len(value) {
        1 => out.push(value as u8),
        2 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        4 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value.min(MAX) | 3 << 62).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn varint_examples_of_rfc_9000() {
        let read = |bytes: &[u8]| Reader::new(bytes).var().unwrap();
        assert_eq!(read(&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c]), 151_288_809_941_952_652);
        assert_eq!(read(&[0x9d, 0x7f, 0x3e, 0x7d]), 494_878_333);
        assert_eq!(read(&[0x7b, 0xbd]), 15_293);
        assert_eq!((read(&[0x25]), read(&[0x40, 0x25])), (37, 37));
    }

    proptest! {
        #[test]
        fn varint_round_trips(bits in 0..62u32, value: u64) {
            let value = value & (MAX >> bits);
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(out.len(), len(value));
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.var(), Ok(value));
            prop_assert!(reader.is_empty());
            prop_assert_eq!(Reader::new(&out[1..]).take(out.len()), Err(Malformed));
        }
    }
}
