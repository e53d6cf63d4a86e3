//! One packet: its header, room for frames, protection.

use super::protection::Place;
use super::state::Connection;
use crate::paths::Route;
use crate::qlog;
use crate::recovery::sent::{Frames, Sent, SentPacket};
use crate::recovery::space::SpaceId;
use crate::wire::frame::{self, ty};
use crate::wire::header::{self, Kind};
use vmcc_multipath::overdue_age;
use vmcc_units::time::Time;

/// Bytes for frames without which a packet is not begun.
const MIN_ROOM: usize = 24;
/// Bytes of the tag of Initial and Handshake packets.
const LONG_TAG: usize = 16;

/// Data to send as one UDP datagram, or as several of the same size but the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// From where to where.
    pub route: Route,
    /// To be sent with ECT(0).
    pub ect: bool,
    /// Bytes of each datagram; all but the last have as many.
    pub segment: usize,
    /// Bytes of all.
    pub len: usize,
}

/// A packet that is being written at the end of a buffer.
pub(super) struct PacketBuilder {
    pub(super) space: SpaceId,
    place: Place,
    pn: u64,
    /// End of the room for it, its tag included.
    limit: usize,
    tag: usize,
    pub(super) frames: Frames,
    pub(super) eliciting: bool,
    pub(super) mtu_probe: bool,
    /// The last frame reaches to the end: nothing may follow.
    pub(super) to_end: bool,
}

impl PacketBuilder {
    /// Bytes that are left for frames.
    pub(super) fn room(&self, out: &[u8]) -> usize {
        self.limit.saturating_sub(self.tag + out.len())
    }

    /// Offset of the packet in the buffer.
    pub(super) fn start(&self) -> usize {
        self.place.start
    }

    pub(super) fn has_frames(&self, out: &[u8]) -> bool {
        out.len() > self.place.payload
    }

    /// Appends PING.
    pub(super) fn ping(&mut self, out: &mut Vec<u8>) {
        frame::put(out, ty::PING, &[]);
        self.frames.push(Sent::Once);
        self.eliciting = true;
    }
}

impl Connection {
    /// Begins a packet of a space that ends before `limit`; none if it has no keys or no room.
    pub(super) fn begin_packet(
        &mut self,
        space: SpaceId,
        out: &mut Vec<u8>,
        limit: usize,
    ) -> Option<PacketBuilder> {
        let path = match space {
            SpaceId::Path(slot) => self.paths[slot].id,
            _ => 0,
        };
        let dcid = self.cids.active(path)?;
        let own = self.cids.handshake().own;
        let (pn, acked) = self.space_mut(space).map(|own| (own.sent.next(), own.largest_acked))?;
        let (pn_len, start) = (header::pn_len(pn, acked), out.len());
        let tag = match space {
            SpaceId::Path(_) => {
                let keys = self.handshake.one_rtt()?;
                header::put_short(out, &dcid, keys.phase(), pn_len);
                keys.tag_len()
            }
            SpaceId::Initial => {
                let token = &self.handshake.tokens.initial;
                header::put_long(out, Kind::Initial, &dcid, &own, token, pn_len);
                LONG_TAG
            }
            SpaceId::Handshake => {
                header::put_long(out, Kind::Handshake, &dcid, &own, &[], pn_len);
                LONG_TAG
            }
        };
        let pn_offset = out.len();
        out.extend_from_slice(&pn.to_be_bytes()[8 - pn_len..]);
        let building = PacketBuilder {
            space,
            place: Place { start, pn_offset, payload: out.len() },
            pn,
            limit,
            tag,
            frames: Frames::default(),
            eliciting: false,
            mtu_probe: false,
            to_end: false,
        };
        if building.room(out) < MIN_ROOM {
            out.truncate(start);
            return None;
        }
        Some(building)
    }

    /// Gives a packet up; nothing of it was sent.
    pub(super) fn drop_packet(&self, building: &PacketBuilder, out: &mut Vec<u8>) {
        out.truncate(building.place.start);
    }

    /// Ends a packet: padded up to `pad_to` bytes of the buffer, protected, on record.
    pub(super) fn finish_packet(
        &mut self,
        now: Time,
        slot: usize,
        mut building: PacketBuilder,
        out: &mut Vec<u8>,
        pad_to: usize,
        ect: bool,
    ) {
        // The sample needs four bytes behind the beginning of the packet number (RFC 9001 section 5.4.2).
        let Place { start, pn_offset, .. } = building.place;
        let least = (pn_offset + header::SAMPLE_OFFSET).max(pad_to.saturating_sub(building.tag));
        if out.len() < least {
            out.resize(least, 0);
        }
        let length = out.len() - pn_offset + building.tag;
        if !matches!(building.space, SpaceId::Path(_)) {
            let field = pn_offset - header::LENGTH_LEN..pn_offset;
            out[field].copy_from_slice(&(length as u16 | 0x4000).to_be_bytes());
        }
        self.log_sent(now, slot, &building, out);
        self.seal(&building, out);
        let padded = pad_to > 0;
        let in_flight = building.eliciting || padded;
        let size = if in_flight { (out.len() - start) as u16 } else { 0 };
        let packet = SentPacket {
            sent: now,
            overdue: overdue_age(&self.paths[slot].rtt, self.handshake.peer_ack_delay()),
            size,
            eliciting: building.eliciting,
            ect,
            mtu_probe: building.mtu_probe,
            reinjected: false,
            // Probes of a suspect path do not take up a combined window that other paths could use.
            free: self.windows.is_combined() && self.paths.is_avoided(slot),
            frames: std::mem::take(&mut building.frames),
        };
        self.record(now, slot, building.space, packet);
    }

    fn log_sent(&mut self, now: Time, slot: usize, building: &PacketBuilder, out: &[u8]) {
        if let Some(log) = &mut self.log {
            let packet = qlog::Packet {
                space: building.space,
                path: self.paths[slot].id,
                number: building.pn,
                len: out.len() - building.place.start + building.tag,
                payload: &out[building.place.payload..],
                ack_exponent: self.handshake.local().ack_delay_exponent,
            };
            log.sent(now, &packet, building.mtu_probe);
        }
    }

    fn record(&mut self, now: Time, slot: usize, space: SpaceId, packet: SentPacket) {
        let (bytes, eliciting, ect) = (packet.in_flight(), packet.eliciting, packet.ect);
        let Some(own) = self.space_mut(space) else { return };
        own.sent.push(packet);
        if eliciting {
            own.last_eliciting = now;
        }
        if eliciting {
            let (paths, ack_delay) = (&self.paths, self.handshake.peer_ack_delay());
            self.idle.on_sent(now, || paths.longest_pto(ack_delay));
        }
        let waiting = self.has_data();
        let path = &mut self.paths[slot];
        path.probes = path.probes.saturating_sub(u8::from(eliciting));
        if eliciting {
            path.last_eliciting_at = now;
        }
        if ect {
            path.ecn.on_sent();
        }
        if bytes > 0 {
            path.pacer.on_sent(bytes);
            self.windows.on_sent(&self.paths[slot].cc_context(now, slot, waiting), bytes);
        }
    }

    /// Encrypts frames and header.
    fn seal(&mut self, building: &PacketBuilder, out: &mut Vec<u8>) {
        let PacketBuilder { space, place, pn, .. } = *building;
        match space {
            SpaceId::Path(slot) => {
                let path = self.paths[slot].id;
                if let Some(keys) = self.handshake.one_rtt_mut() {
                    keys.seal(out, place, path, pn);
                }
            }
            _ => {
                if let Some(level) = self.handshake.level(space) {
                    level.seal(out, place, pn);
                }
            }
        }
    }
}
