//! Transport parameters (RFC 9000 section 18, RFC 9221 section 3, draft-ietf-quic-multipath-21 section 2.1).

use super::cid::ConnectionId;
use super::varint::{self, Malformed, Reader};
use vmcc_streams::PeerLimits;

mod id {
    pub(super) const ORIGINAL_DCID: u64 = 0x00;
    pub(super) const MAX_IDLE_TIMEOUT: u64 = 0x01;
    pub(super) const STATELESS_RESET_TOKEN: u64 = 0x02;
    pub(super) const MAX_UDP_PAYLOAD_SIZE: u64 = 0x03;
    pub(super) const INITIAL_MAX_DATA: u64 = 0x04;
    pub(super) const STREAM_DATA_BIDI_LOCAL: u64 = 0x05;
    pub(super) const STREAM_DATA_BIDI_REMOTE: u64 = 0x06;
    pub(super) const STREAM_DATA_UNI: u64 = 0x07;
    pub(super) const MAX_STREAMS_BIDI: u64 = 0x08;
    pub(super) const MAX_STREAMS_UNI: u64 = 0x09;
    pub(super) const ACK_DELAY_EXPONENT: u64 = 0x0a;
    pub(super) const MAX_ACK_DELAY: u64 = 0x0b;
    pub(super) const DISABLE_ACTIVE_MIGRATION: u64 = 0x0c;
    pub(super) const PREFERRED_ADDRESS: u64 = 0x0d;
    pub(super) const ACTIVE_CID_LIMIT: u64 = 0x0e;
    pub(super) const INITIAL_SCID: u64 = 0x0f;
    pub(super) const RETRY_SCID: u64 = 0x10;
    pub(super) const MAX_DATAGRAM_FRAME_SIZE: u64 = 0x20;
    pub(super) const INITIAL_MAX_PATH_ID: u64 = 0x3e;
}

/// Transport parameters of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) max_idle_timeout_ms: u64,
    pub(crate) max_udp_payload: u64,
    pub(crate) max_data: u64,
    pub(crate) stream_data_bidi_local: u64,
    pub(crate) stream_data_bidi_remote: u64,
    pub(crate) stream_data_uni: u64,
    pub(crate) max_streams_bidi: u64,
    pub(crate) max_streams_uni: u64,
    pub(crate) ack_delay_exponent: u64,
    pub(crate) max_ack_delay_ms: u64,
    pub(crate) disable_active_migration: bool,
    pub(crate) active_cid_limit: u64,
    /// 0: none are taken.
    pub(crate) max_datagram_frame: u64,
    /// The multipath extension, if it is offered.
    pub(crate) initial_max_path_id: Option<u32>,
    pub(crate) initial_scid: Option<ConnectionId>,
    pub(crate) original_dcid: Option<ConnectionId>,
    pub(crate) retry_scid: Option<ConnectionId>,
    pub(crate) reset_token: Option<[u8; 16]>,
}

impl Default for Params {
    /// Values of absent parameters.
    fn default() -> Params {
        Params {
            max_idle_timeout_ms: 0,
            max_udp_payload: 65527,
            max_data: 0,
            stream_data_bidi_local: 0,
            stream_data_bidi_remote: 0,
            stream_data_uni: 0,
            max_streams_bidi: 0,
            max_streams_uni: 0,
            ack_delay_exponent: 3,
            max_ack_delay_ms: 25,
            disable_active_migration: false,
            active_cid_limit: 2,
            max_datagram_frame: 0,
            initial_max_path_id: None,
            initial_scid: None,
            original_dcid: None,
            retry_scid: None,
            reset_token: None,
        }
    }
}

impl Params {
    /// Limits of streams among them.
    pub(crate) fn stream_limits(&self) -> PeerLimits {
        PeerLimits {
            max_data: self.max_data,
            bidi_remote: self.stream_data_bidi_remote,
            bidi_local: self.stream_data_bidi_local,
            uni: self.stream_data_uni,
            max_streams_bidi: self.max_streams_bidi,
            max_streams_uni: self.max_streams_uni,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (id, value) in [
            (id::MAX_IDLE_TIMEOUT, self.max_idle_timeout_ms),
            (id::MAX_UDP_PAYLOAD_SIZE, self.max_udp_payload),
            (id::INITIAL_MAX_DATA, self.max_data),
            (id::STREAM_DATA_BIDI_LOCAL, self.stream_data_bidi_local),
            (id::STREAM_DATA_BIDI_REMOTE, self.stream_data_bidi_remote),
            (id::STREAM_DATA_UNI, self.stream_data_uni),
            (id::MAX_STREAMS_BIDI, self.max_streams_bidi),
            (id::MAX_STREAMS_UNI, self.max_streams_uni),
            (id::ACK_DELAY_EXPONENT, self.ack_delay_exponent),
            (id::MAX_ACK_DELAY, self.max_ack_delay_ms),
            (id::ACTIVE_CID_LIMIT, self.active_cid_limit),
            (id::MAX_DATAGRAM_FRAME_SIZE, self.max_datagram_frame),
        ] {
            put_number(&mut out, id, value);
        }
        if let Some(max) = self.initial_max_path_id {
            put_number(&mut out, id::INITIAL_MAX_PATH_ID, max.into());
        }
        if self.disable_active_migration {
            put(&mut out, id::DISABLE_ACTIVE_MIGRATION, &[]);
        }
        for (id, cid) in [
            (id::INITIAL_SCID, &self.initial_scid),
            (id::ORIGINAL_DCID, &self.original_dcid),
            (id::RETRY_SCID, &self.retry_scid),
        ] {
            if let Some(cid) = cid {
                put(&mut out, id, cid.as_slice());
            }
        }
        if let Some(token) = &self.reset_token {
            put(&mut out, id::STATELESS_RESET_TOKEN, token);
        }
        out
    }

    /// Reads what a peer sent; only a server may send some of it.
    pub(crate) fn decode(bytes: &[u8], from_server: bool) -> Result<Params, Malformed> {
        let mut params = Params::default();
        let mut reader = Reader::new(bytes);
        let mut seen = Vec::new();
        while !reader.is_empty() {
            let id = reader.var()?;
            seen.push(id);
            let value = reader.prefixed()?;
            if matches!(
                id,
                id::ORIGINAL_DCID | id::RETRY_SCID | id::STATELESS_RESET_TOKEN | id::PREFERRED_ADDRESS
            ) && !from_server
            {
                return Err(Malformed);
            }
            params.take(id, value)?;
        }
        seen.sort_unstable();
        if seen.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Malformed);
        }
        params.checked()
    }

    fn take(&mut self, id: u64, value: &[u8]) -> Result<(), Malformed> {
        let number = || {
            let mut reader = Reader::new(value);
            let n = reader.var()?;
            if reader.is_empty() { Ok(n) } else { Err(Malformed) }
        };
        let cid = || ConnectionId::new(value).ok_or(Malformed).map(Some);
        match id {
            id::MAX_IDLE_TIMEOUT => self.max_idle_timeout_ms = number()?,
            id::MAX_UDP_PAYLOAD_SIZE => self.max_udp_payload = number()?,
            id::INITIAL_MAX_DATA => self.max_data = number()?,
            id::STREAM_DATA_BIDI_LOCAL => self.stream_data_bidi_local = number()?,
            id::STREAM_DATA_BIDI_REMOTE => self.stream_data_bidi_remote = number()?,
            id::STREAM_DATA_UNI => self.stream_data_uni = number()?,
            id::MAX_STREAMS_BIDI => self.max_streams_bidi = number()?,
            id::MAX_STREAMS_UNI => self.max_streams_uni = number()?,
            id::ACK_DELAY_EXPONENT => self.ack_delay_exponent = number()?,
            id::MAX_ACK_DELAY => self.max_ack_delay_ms = number()?,
            id::ACTIVE_CID_LIMIT => self.active_cid_limit = number()?,
            id::MAX_DATAGRAM_FRAME_SIZE => self.max_datagram_frame = number()?,
            id::INITIAL_MAX_PATH_ID => {
                self.initial_max_path_id = Some(u32::try_from(number()?).map_err(|_| Malformed)?);
            }
            id::DISABLE_ACTIVE_MIGRATION if value.is_empty() => self.disable_active_migration = true,
            id::DISABLE_ACTIVE_MIGRATION => return Err(Malformed),
            id::INITIAL_SCID => self.initial_scid = cid()?,
            id::ORIGINAL_DCID => self.original_dcid = cid()?,
            id::RETRY_SCID => self.retry_scid = cid()?,
            id::STATELESS_RESET_TOKEN => self.reset_token = Some(value.try_into().map_err(|_| Malformed)?),
            _ => {}
        }
        Ok(())
    }

    /// The ranges of RFC 9000 section 18.2.
    fn checked(self) -> Result<Params, Malformed> {
        let holds = self.max_udp_payload >= 1200
            && self.ack_delay_exponent <= 20
            && self.max_ack_delay_ms < 1 << 14
            && self.active_cid_limit >= 2
            && self.max_streams_bidi <= 1 << 60
            && self.max_streams_uni <= 1 << 60;
        if holds { Ok(self) } else { Err(Malformed) }
    }
}

fn put(out: &mut Vec<u8>, id: u64, value: &[u8]) {
    varint::put(out, id);
    varint::put(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn put_number(out: &mut Vec<u8>, id: u64, value: u64) {
    varint::put(out, id);
    varint::put(out, varint::len(value) as u64);
    varint::put(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn transport_parameters_round_trip(
            numbers: [u32; 6], delay in 0..1u64 << 14, exponent in 0..=20u64, path: Option<u32>,
            cid in prop::collection::vec(any::<u8>(), 0..=20), reset_token: Option<[u8; 16]>, migration: bool
        ) {
            let [a, b, c, d, e, f] = numbers.map(u64::from);
            let cid = ConnectionId::new(&cid);
            let params = Params {
                max_idle_timeout_ms: a, max_udp_payload: 1200 + b, max_data: c, stream_data_bidi_local: d,
                stream_data_bidi_remote: e, stream_data_uni: f, max_streams_bidi: a, max_streams_uni: b,
                ack_delay_exponent: exponent, max_ack_delay_ms: delay, disable_active_migration: migration,
                active_cid_limit: 2 + c, max_datagram_frame: d, initial_max_path_id: path, initial_scid: cid,
                original_dcid: cid, retry_scid: None, reset_token,
            };
            prop_assert_eq!(Params::decode(&params.encode(), true), Ok(params));
        }

        #[test]
        fn any_parameter_bytes_are_parsed_or_refused(bytes: Vec<u8>, server: bool) {
            let _ = Params::decode(&bytes, server);
        }
    }

    #[test]
    fn invalid_transport_parameters_are_rejected() {
        let of = |params: Params, server| Params::decode(&params.encode(), server).is_err();
        assert!(of(Params { reset_token: Some([1; 16]), ..Params::default() }, false), "of a client");
        assert!(of(Params { max_udp_payload: 1199, ..Params::default() }, true));
        assert!(of(Params { active_cid_limit: 1, ..Params::default() }, true));
        let twice = [Params::default().encode(), Params::default().encode()].concat();
        assert!(Params::decode(&twice, true).is_err(), "twice the same");
    }
}
