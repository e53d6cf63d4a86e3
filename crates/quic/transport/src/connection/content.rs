//! Frames that a packet takes, made of the state as it is at that moment.

use super::packet::PacketBuilder;
use super::state::Connection;
use crate::paths::PathResponse;
use crate::recovery::sent::{Control, Sent};
use crate::recovery::space::SpaceId;
use crate::wire::ack;
use crate::wire::frame::{self, ty};
use crate::wire::varint;
use vmcc_streams::SendBuffer;
use vmcc_units::time::{Span, Time};

/// A frame of ACK or PATH_ACK with a few ranges is not longer; more ranges wait for another packet.
const MAX_ACK: usize = 600;
/// The exponent of the acknowledgment delay that this end uses.
const ACK_DELAY_EXPONENT: u32 = 3;

impl Connection {
    /// Appends the acknowledgment of a space, if there is news.
    pub(super) fn put_ack_of(
        &mut self,
        now: Time,
        space: SpaceId,
        building: &mut PacketBuilder,
        out: &mut Vec<u8>,
    ) {
        let path = match space {
            SpaceId::Path(slot) => Some(self.paths[slot].id),
            _ => None,
        };
        let multipath = self.paths.is_multipath() && path.is_some();
        let room = building.room(out).min(MAX_ACK);
        let Some(own) = self.space_mut(space) else { return };
        if !own.received.has_pending_ack() || room < 32 {
            return;
        }
        let ecn = Some(own.received.ecn).filter(|ecn| *ecn != Default::default());
        let delay = match path {
            Some(_) => own.received.delay(now).us() >> ACK_DELAY_EXPONENT,
            None => 0,
        };
        let kind = match (multipath, ecn.is_some()) {
            (false, false) => ty::ACK,
            (false, true) => ty::ACK_ECN,
            (true, false) => ty::PATH_ACK,
            (true, true) => ty::PATH_ACK_ECN,
        };
        let before = out.len();
        varint::put(out, kind);
        if multipath {
            varint::put(out, path.unwrap_or(0).into());
        }
        let left = room.saturating_sub(out.len() - before);
        if !ack::put(out, &own.received.ranges, delay, ecn, left) {
            out.truncate(before);
            return;
        }
        let largest = own.received.on_ack_sent();
        if let Some(path) = path {
            building.frames.push(Sent::Ack { path, largest });
        }
    }

    /// Appends PATH_RESPONSE and PATH_CHALLENGE; whether there was any.
    pub(super) fn put_validation(
        &mut self,
        now: Time,
        slot: usize,
        building: &mut PacketBuilder,
        out: &mut Vec<u8>,
    ) -> bool {
        let pto = self.paths[slot].pto(Span::ZERO);
        let path = &mut self.paths[slot];
        let before = out.len();
        if let Some(PathResponse { data, .. }) = path.response.take() {
            frame::put_validation(out, ty::PATH_RESPONSE, data);
        }
        if let Some(data) = path.validation.take_challenge(now, pto) {
            frame::put_validation(out, ty::PATH_CHALLENGE, data);
        }
        let any = out.len() > before;
        if any {
            building.frames.push(Sent::Once);
            building.eliciting = true;
        }
        any
    }

    pub(super) fn put_controls(&mut self, slot: usize, building: &mut PacketBuilder, out: &mut Vec<u8>) {
        for _ in 0..self.pending.len() {
            // The largest of these frames fits.
            if building.room(out) < 64 {
                return;
            }
            let Some(control) = self.pending.pop() else { return };
            // Said on another path, if there is one.
            let is_own = matches!(control, Control::PathAbandon(path, _) if path == self.paths[slot].id);
            if is_own && self.paths.another_is_open(slot) {
                self.queue(control);
                continue;
            }
            if self.put_control(control, building.room(out), out) {
                building.frames.push(Sent::Control(control));
                building.eliciting = true;
            }
        }
    }

    /// Appends a frame as the state is now; whether it still makes sense.
    fn put_control(&mut self, control: Control, room: usize, out: &mut Vec<u8>) -> bool {
        match control {
            Control::HandshakeDone => frame::put(out, ty::HANDSHAKE_DONE, &[]),
            Control::NewCid(path, seq) => match self.cids.frame(path, seq) {
                Some(new) => frame::put_new_cid(out, self.paths.is_multipath(), &new),
                None => return false,
            },
            Control::RetireCid(path, seq) if self.paths.is_multipath() => {
                frame::put(out, ty::PATH_RETIRE_CONNECTION_ID, &[path.into(), seq]);
            }
            Control::RetireCid(_, seq) => frame::put(out, ty::RETIRE_CONNECTION_ID, &[seq]),
            Control::PathAbandon(path, code) => frame::put(out, ty::PATH_ABANDON, &[path.into(), code]),
            Control::PathStatus(path) => match self.paths.slot_of(path) {
                Some(slot) => {
                    let (backup, seq) = self.paths[slot].status.own();
                    let kind = if backup { ty::PATH_STATUS_BACKUP } else { ty::PATH_STATUS_AVAILABLE };
                    frame::put(out, kind, &[path.into(), seq]);
                }
                None => return false,
            },
            Control::MaxPathId => frame::put(out, ty::MAX_PATH_ID, &[self.paths.local_max().into()]),
            Control::PathsBlocked => frame::put(out, ty::PATHS_BLOCKED, &[self.paths.peer_max().into()]),
            Control::PathCidsBlocked(path) => frame::put(out, ty::PATH_CIDS_BLOCKED, &[path.into(), 0]),
            Control::NewToken if self.handshake.tokens.issued.len() + 4 > room => {
                self.queue(control);
                return false;
            }
            Control::NewToken => frame::put_bytes(out, ty::NEW_TOKEN, &self.handshake.tokens.issued),
            Control::Stream(control) => return self.streams.put_control(control, out),
        }
        true
    }

    pub(super) fn put_datagrams(&mut self, now: Time, building: &mut PacketBuilder, out: &mut Vec<u8>) {
        if !self.datagrams.has_work() {
            return;
        }
        let rtts = self.paths.iter().filter(|path| path.is_responsive()).map(|path| path.rtt.srtt());
        self.datagrams.drop_old(now, rtts.max().unwrap_or_default());
        let max = self.max_datagram().unwrap_or(usize::MAX);
        while let Some(data) = self.datagrams.take(max, building.room(out)) {
            frame::put_bytes(out, ty::DATAGRAM_LEN, &data);
            building.frames.push(Sent::Once);
            building.eliciting = true;
        }
    }
}

/// Appends CRYPTO frames.
pub(super) fn put_crypto(
    buffer: &mut SendBuffer,
    room: usize,
    building: &mut PacketBuilder,
    out: &mut Vec<u8>,
) {
    let mut room = room;
    while buffer.has_work(u64::MAX) {
        let (offset, _) = buffer.peek(u64::MAX);
        let header = 1 + varint::len(offset) + 2;
        if room <= header {
            return;
        }
        let Some(range) = buffer.take((room - header) as u64, u64::MAX) else { return };
        let before = out.len();
        varint::put(out, ty::CRYPTO);
        varint::put(out, range.start);
        varint::put(out, range.end - range.start);
        buffer.copy_to(&range, out);
        room -= out.len() - before;
        building.frames.push(Sent::Crypto(range));
        building.eliciting = true;
    }
}
