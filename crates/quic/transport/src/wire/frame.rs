//! Frames: RFC 9000 section 19, RFC 9221 section 4, draft-ietf-quic-multipath-21 section 4.

use super::ack::Ack;
use super::cid::ConnectionId;
use super::varint::{self, Malformed, Reader};
use vmcc_streams::Frame as StreamFrame;

pub(crate) use vmcc_streams::frame::put;

/// Frame types.
pub(crate) mod ty {
    pub(crate) use vmcc_streams::frame::ty::*;

    pub(crate) const PADDING: u64 = 0x00;
    pub(crate) const PING: u64 = 0x01;
    pub(crate) const ACK: u64 = 0x02;
    pub(crate) const ACK_ECN: u64 = 0x03;
    pub(crate) const CRYPTO: u64 = 0x06;
    pub(crate) const NEW_TOKEN: u64 = 0x07;
    pub(crate) const NEW_CONNECTION_ID: u64 = 0x18;
    pub(crate) const RETIRE_CONNECTION_ID: u64 = 0x19;
    pub(crate) const PATH_CHALLENGE: u64 = 0x1a;
    pub(crate) const PATH_RESPONSE: u64 = 0x1b;
    pub(crate) const CLOSE_TRANSPORT: u64 = 0x1c;
    pub(crate) const CLOSE_APPLICATION: u64 = 0x1d;
    pub(crate) const HANDSHAKE_DONE: u64 = 0x1e;
    pub(crate) const DATAGRAM: u64 = 0x30;
    pub(crate) const DATAGRAM_LEN: u64 = 0x31;
    pub(crate) const PATH_ACK: u64 = 0x3e;
    pub(crate) const PATH_ACK_ECN: u64 = 0x3f;
    pub(crate) const PATH_ABANDON: u64 = 0x3e75;
    pub(crate) const PATH_STATUS_BACKUP: u64 = 0x3e76;
    pub(crate) const PATH_STATUS_AVAILABLE: u64 = 0x3e77;
    pub(crate) const PATH_NEW_CONNECTION_ID: u64 = 0x3e78;
    pub(crate) const PATH_RETIRE_CONNECTION_ID: u64 = 0x3e79;
    pub(crate) const MAX_PATH_ID: u64 = 0x3e7a;
    pub(crate) const PATHS_BLOCKED: u64 = 0x3e7b;
    pub(crate) const PATH_CIDS_BLOCKED: u64 = 0x3e7c;
}

/// A connection id that the peer may use, with its stateless reset token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewCid {
    /// Path 0 in frames that name none.
    pub(crate) path: u32,
    pub(crate) seq: u64,
    pub(crate) retire_prior_to: u64,
    pub(crate) id: ConnectionId,
    pub(crate) token: [u8; 16],
}

/// A frame that was received.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Frame<'a> {
    /// This many bytes of it.
    Padding,
    Ping,
    /// Of path 0 where the frame names none.
    Ack {
        path: Option<u32>,
        ack: Ack<'a>,
    },
    Crypto {
        offset: u64,
        data: &'a [u8],
    },
    NewToken(&'a [u8]),
    Stream(StreamFrame<'a>),
    NewConnectionId {
        multipath: bool,
        new: NewCid,
    },
    RetireConnectionId {
        path: Option<u32>,
        seq: u64,
    },
    PathChallenge(u64),
    PathResponse(u64),
    Close {
        application: bool,
        code: u64,
        reason: &'a [u8],
    },
    HandshakeDone,
    Datagram(&'a [u8]),
    PathAbandon {
        path: u32,
        code: u64,
    },
    PathStatus {
        path: u32,
        seq: u64,
        available: bool,
    },
    MaxPathId(u32),
    PathsBlocked(u32),
    PathCidsBlocked {
        path: u32,
    },
}

impl<'a> Frame<'a> {
    /// Reads the frame at the front. With it the type that was read, for errors.
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<(u64, Frame<'a>), Malformed> {
        let before = reader.left();
        let kind = reader.var()?;
        // The shortest encoding is a must (RFC 9000 section 12.4).
        if before - reader.left() != varint::len(kind) {
            return Err(Malformed);
        }
        let frame = match kind {
            ty::PATH_ACK..=ty::PATH_ACK_ECN | ty::PATH_ABANDON.. => Frame::decode_multipath(kind, reader)?,
            _ => Frame::decode_v1(kind, reader)?,
        };
        Ok((kind, frame))
    }

    fn decode_v1(kind: u64, r: &mut Reader<'a>) -> Result<Frame<'a>, Malformed> {
        Ok(match kind {
            ty::PADDING => Frame::Padding,
            ty::PING => Frame::Ping,
            ty::ACK | ty::ACK_ECN => Frame::Ack { path: None, ack: Ack::decode(r, kind == ty::ACK_ECN)? },
            ty::RESET_STREAM
            | ty::STOP_SENDING
            | ty::STREAM..=ty::STREAM_LAST
            | ty::MAX_DATA..=ty::STREAMS_BLOCKED_UNI => Frame::Stream(StreamFrame::decode(kind, r)?),
            ty::CRYPTO => decode_crypto(r)?,
            ty::NEW_TOKEN => Frame::NewToken(Some(r.prefixed()?).filter(|t| !t.is_empty()).ok_or(Malformed)?),
            ty::NEW_CONNECTION_ID => Frame::NewConnectionId { multipath: false, new: new_cid(0, r)? },
            ty::RETIRE_CONNECTION_ID => Frame::RetireConnectionId { path: None, seq: r.var()? },
            ty::PATH_CHALLENGE => Frame::PathChallenge(u64::from_be_bytes(r.array()?)),
            ty::PATH_RESPONSE => Frame::PathResponse(u64::from_be_bytes(r.array()?)),
            ty::CLOSE_TRANSPORT | ty::CLOSE_APPLICATION => {
                let (application, code) = (kind == ty::CLOSE_APPLICATION, r.var()?);
                if !application {
                    r.var()?;
                }
                Frame::Close { application, code, reason: r.prefixed()? }
            }
            ty::HANDSHAKE_DONE => Frame::HandshakeDone,
            ty::DATAGRAM => Frame::Datagram(r.take_rest()),
            ty::DATAGRAM_LEN => Frame::Datagram(r.prefixed()?),
            _ => return Err(Malformed),
        })
    }

    fn decode_multipath(kind: u64, r: &mut Reader<'a>) -> Result<Frame<'a>, Malformed> {
        let path = r.u32()?;
        Ok(match kind {
            ty::PATH_ACK | ty::PATH_ACK_ECN => {
                Frame::Ack { path: Some(path), ack: Ack::decode(r, kind == ty::PATH_ACK_ECN)? }
            }
            ty::PATH_ABANDON => Frame::PathAbandon { path, code: r.var()? },
            ty::PATH_STATUS_BACKUP => Frame::PathStatus { path, seq: r.var()?, available: false },
            ty::PATH_STATUS_AVAILABLE => Frame::PathStatus { path, seq: r.var()?, available: true },
            ty::PATH_NEW_CONNECTION_ID => Frame::NewConnectionId { multipath: true, new: new_cid(path, r)? },
            ty::PATH_RETIRE_CONNECTION_ID => Frame::RetireConnectionId { path: Some(path), seq: r.var()? },
            ty::MAX_PATH_ID => Frame::MaxPathId(path),
            ty::PATHS_BLOCKED => Frame::PathsBlocked(path),
            ty::PATH_CIDS_BLOCKED => r.var().map(|_| Frame::PathCidsBlocked { path })?,
            _ => return Err(Malformed),
        })
    }

    /// Returns true if it may be in an Initial or Handshake packet (RFC 9000 section 12.4).
    pub(crate) fn is_allowed_in_handshake(&self) -> bool {
        matches!(
            self,
            Frame::Padding
                | Frame::Ping
                | Frame::Ack { path: None, .. }
                | Frame::Crypto { .. }
                | Frame::Close { application: false, .. }
        )
    }

    /// Returns true if it only exists with the multipath extension.
    pub(crate) fn is_multipath(&self) -> bool {
        matches!(
            self,
            Frame::Ack { path: Some(_), .. }
                | Frame::RetireConnectionId { path: Some(_), .. }
                | Frame::NewConnectionId { multipath: true, .. }
                | Frame::PathAbandon { .. }
                | Frame::PathStatus { .. }
                | Frame::MaxPathId(_)
                | Frame::PathsBlocked(_)
                | Frame::PathCidsBlocked { .. }
        )
    }

    /// Returns true if a packet with it is to be acknowledged.
    pub(crate) fn is_ack_eliciting(&self) -> bool {
        !matches!(self, Frame::Padding | Frame::Ack { .. } | Frame::Close { .. })
    }

    /// Returns true if a packet of such frames alone only probes a path (RFC 9000 section 9.1).
    pub(crate) fn is_probing(&self) -> bool {
        matches!(
            self,
            Frame::Padding | Frame::PathChallenge(_) | Frame::PathResponse(_) | Frame::NewConnectionId { .. }
        )
    }
}

/// Reads CRYPTO, whose data may not reach beyond the largest offset.
fn decode_crypto<'a>(r: &mut Reader<'a>) -> Result<Frame<'a>, Malformed> {
    let (offset, data) = (r.var()?, r.prefixed()?);
    if offset + data.len() as u64 > varint::MAX { Err(Malformed) } else { Ok(Frame::Crypto { offset, data }) }
}

fn new_cid(path: u32, r: &mut Reader<'_>) -> Result<NewCid, Malformed> {
    let (seq, retire_prior_to) = (r.var()?, r.var()?);
    let len = usize::from(r.u8()?);
    let id = ConnectionId::new(r.take(len)?).ok_or(Malformed)?;
    if len == 0 || retire_prior_to > seq {
        return Err(Malformed);
    }
    Ok(NewCid { path, seq, retire_prior_to, id, token: r.array()? })
}

/// Appends PATH_CHALLENGE or PATH_RESPONSE.
pub(crate) fn put_validation(out: &mut Vec<u8>, kind: u64, data: u64) {
    varint::put(out, kind);
    out.extend_from_slice(&data.to_be_bytes());
}

/// Appends a frame of a type with bytes, their length first.
pub(crate) fn put_bytes(out: &mut Vec<u8>, kind: u64, bytes: &[u8]) {
    put(out, kind, &[bytes.len() as u64]);
    out.extend_from_slice(bytes);
}

/// Appends NEW_CONNECTION_ID or its form with a path.
pub(crate) fn put_new_cid(out: &mut Vec<u8>, multipath: bool, new: &NewCid) {
    match multipath {
        true => put(out, ty::PATH_NEW_CONNECTION_ID, &[new.path.into(), new.seq, new.retire_prior_to]),
        false => put(out, ty::NEW_CONNECTION_ID, &[new.seq, new.retire_prior_to]),
    }
    out.push(new.id.as_slice().len() as u8);
    out.extend_from_slice(new.id.as_slice());
    out.extend_from_slice(&new.token);
}

/// Appends CONNECTION_CLOSE; of a transport error without the frame that was at fault.
pub(crate) fn put_close(out: &mut Vec<u8>, application: bool, code: u64, reason: &[u8]) {
    match application {
        true => put(out, ty::CLOSE_APPLICATION, &[code]),
        false => put(out, ty::CLOSE_TRANSPORT, &[code, 0]),
    }
    varint::put(out, reason.len() as u64);
    out.extend_from_slice(reason);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> String {
        let mut reader = Reader::new(bytes);
        let (_, frame) = Frame::decode(&mut reader).unwrap();
        assert!(reader.is_empty(), "{frame:?}");
        format!("{frame:?}")
    }

    #[test]
    fn integer_frames_round_trip() {
        for (kind, numbers, text) in [
            (ty::RESET_STREAM, &[4, 70, 900][..], "Stream(ResetStream { id: 4, code: 70, final_size: 900 })"),
            (ty::STOP_SENDING, &[8, 1], "Stream(StopSending { id: 8, code: 1 })"),
            (ty::MAX_DATA, &[1 << 40], "Stream(MaxData(1099511627776))"),
            (ty::MAX_STREAM_DATA, &[3, 4], "Stream(MaxStreamData { id: 3, max: 4 })"),
            (ty::MAX_STREAMS_UNI, &[9], "Stream(MaxStreams { dir: Uni, max: 9 })"),
            (ty::RETIRE_CONNECTION_ID, &[2], "RetireConnectionId { path: None, seq: 2 }"),
            (ty::PATH_RETIRE_CONNECTION_ID, &[1, 2], "RetireConnectionId { path: Some(1), seq: 2 }"),
            (ty::PATH_ABANDON, &[1, 0x3e], "PathAbandon { path: 1, code: 62 }"),
            (ty::PATH_STATUS_BACKUP, &[1, 5], "PathStatus { path: 1, seq: 5, available: false }"),
            (ty::PATH_STATUS_AVAILABLE, &[1, 6], "PathStatus { path: 1, seq: 6, available: true }"),
            (ty::MAX_PATH_ID, &[7], "MaxPathId(7)"),
            (ty::PATHS_BLOCKED, &[7], "PathsBlocked(7)"),
            (ty::PATH_CIDS_BLOCKED, &[7, 1], "PathCidsBlocked { path: 7 }"),
        ] {
            let mut out = Vec::new();
            put(&mut out, kind, numbers);
            assert_eq!(read(&out), text);
        }
    }

    #[test]
    fn invalid_frames_are_rejected() {
        let refused = |bytes: &[u8]| Frame::decode(&mut Reader::new(bytes)).is_err();
        assert!(refused(&[0x40, 0x01]), "a PING whose type is longer than it needs be");
        assert!(refused(&[0x21]), "an unknown type");
        let mut beyond = Vec::new();
        put(&mut beyond, ty::STREAM | ty::STREAM_OFF, &[0, varint::MAX]);
        beyond.push(1);
        assert!(refused(&beyond), "an offset beyond the last");
        let mut path = Vec::new();
        put(&mut path, ty::PATH_ABANDON, &[1 << 32, 0]);
        assert!(refused(&path), "a path identifier of 33 bits");
    }

    proptest! {
        #[test]
        fn connection_id_frames_round_trip(
            path: u32, seq in 0..1u64 << 40, id in prop::collection::vec(any::<u8>(), 1..=20), token: [u8; 16]
        ) {
            let new = NewCid { path, seq, retire_prior_to: seq / 2, id: ConnectionId::new(&id).unwrap(), token };
            let mut out = Vec::new();
            put_new_cid(&mut out, true, &new);
            let (_, frame) = Frame::decode(&mut Reader::new(&out)).unwrap();
            let is_same = matches!(frame, Frame::NewConnectionId { multipath: true, new: read } if read == new);
            prop_assert!(is_same);
        }

        #[test]
        fn any_frame_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while !reader.is_empty() {
                let left = reader.left();
                if Frame::decode(&mut reader).is_err() {
                    break;
                }
                prop_assert!(reader.left() < left);
            }
        }
    }
}
