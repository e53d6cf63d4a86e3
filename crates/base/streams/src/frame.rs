//! Frames about streams (RFC 9000 sections 19.4, 19.5, 19.8 to 19.14).

use crate::varint::{self, Malformed, Reader};

/// Frame types.
pub mod ty {
    #![allow(missing_docs, reason = "names of RFC 9000 section 19")]
    pub const RESET_STREAM: u64 = 0x04;
    pub const STOP_SENDING: u64 = 0x05;
    pub const STREAM: u64 = 0x08;
    pub const STREAM_LAST: u64 = 0x0f;
    pub const STREAM_OFF: u64 = 0x04;
    pub const STREAM_LEN: u64 = 0x02;
    pub const STREAM_FIN: u64 = 0x01;
    pub const MAX_DATA: u64 = 0x10;
    pub const MAX_STREAM_DATA: u64 = 0x11;
    pub const MAX_STREAMS_BIDI: u64 = 0x12;
    pub const MAX_STREAMS_UNI: u64 = 0x13;
    pub const DATA_BLOCKED: u64 = 0x14;
    pub const STREAM_DATA_BLOCKED: u64 = 0x15;
    pub const STREAMS_BLOCKED_BIDI: u64 = 0x16;
    pub const STREAMS_BLOCKED_UNI: u64 = 0x17;
}

/// Directions of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dir {
    /// Both ends write.
    Bi,
    /// Only who opened it writes.
    Uni,
}

/// A frame about streams that was received.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields of RFC 9000 section 19")]
pub enum Frame<'a> {
    /// RESET_STREAM.
    ResetStream { id: u64, code: u64, final_size: u64 },
    /// STOP_SENDING.
    StopSending { id: u64, code: u64 },
    /// STREAM.
    Data { id: u64, offset: u64, data: &'a [u8], fin: bool },
    /// MAX_DATA.
    MaxData(u64),
    /// MAX_STREAM_DATA.
    MaxStreamData { id: u64, max: u64 },
    /// MAX_STREAMS of either direction.
    MaxStreams { dir: Dir, max: u64 },
    /// DATA_BLOCKED.
    DataBlocked,
    /// STREAM_DATA_BLOCKED.
    StreamDataBlocked { id: u64 },
    /// STREAMS_BLOCKED of either direction.
    StreamsBlocked,
}

impl<'a> Frame<'a> {
    /// Reads what follows a frame's type.
    ///
    /// # Errors
    /// The type is of no frame about streams, or the frame is malformed.
    pub fn decode(kind: u64, r: &mut Reader<'a>) -> Result<Frame<'a>, Malformed> {
        Ok(match kind {
            ty::RESET_STREAM => Frame::ResetStream { id: r.var()?, code: r.var()?, final_size: r.var()? },
            ty::STOP_SENDING => Frame::StopSending { id: r.var()?, code: r.var()? },
            ty::STREAM..=ty::STREAM_LAST => Frame::decode_data(kind, r)?,
            ty::MAX_DATA => Frame::MaxData(r.var()?),
            ty::MAX_STREAM_DATA => Frame::MaxStreamData { id: r.var()?, max: r.var()? },
            ty::MAX_STREAMS_BIDI => Frame::MaxStreams { dir: Dir::Bi, max: stream_count(r)? },
            ty::MAX_STREAMS_UNI => Frame::MaxStreams { dir: Dir::Uni, max: stream_count(r)? },
            ty::DATA_BLOCKED => r.var().map(|_| Frame::DataBlocked)?,
            ty::STREAM_DATA_BLOCKED => {
                let id = r.var()?;
                r.var().map(|_| Frame::StreamDataBlocked { id })?
            }
            ty::STREAMS_BLOCKED_BIDI | ty::STREAMS_BLOCKED_UNI => {
                stream_count(r).map(|_| Frame::StreamsBlocked)?
            }
            _ => return Err(Malformed),
        })
    }

    #[inline]
    fn decode_data(kind: u64, r: &mut Reader<'a>) -> Result<Frame<'a>, Malformed> {
        let id = r.var()?;
        let offset = if kind & ty::STREAM_OFF != 0 { r.var()? } else { 0 };
        let data = if kind & ty::STREAM_LEN != 0 { r.prefixed()? } else { r.take_rest() };
        // Data may not reach beyond the largest offset.
        if offset + data.len() as u64 > varint::MAX {
            return Err(Malformed);
        }
        Ok(Frame::Data { id, offset, data, fin: kind & ty::STREAM_FIN != 0 })
    }
}

fn stream_count(r: &mut Reader<'_>) -> Result<u64, Malformed> {
    Some(r.var()?).filter(|&n| n <= 1 << 60).ok_or(Malformed)
}

/// Appends a frame of a type and numbers.
pub fn put(out: &mut Vec<u8>, kind: u64, numbers: &[u64]) {
    varint::put(out, kind);
    numbers.iter().for_each(|&n| varint::put(out, n));
}
