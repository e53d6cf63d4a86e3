//! One packet: its header, room for frames, protection.

use super::*;
use crate::recovery::sent::{Frames, SentPacket};
use crate::wire::frame::{self, ty};
use crate::wire::header::{self, Kind};
use std::ops::Range;

/// A packet that is being written at the end of a buffer.
pub(super) struct PacketBuilder {
    pub(super) space: SpaceId,
    /// Offsets of the packet, its packet number and its frames.
    pub(super) start: usize,
    pn_offset: usize,
    payload: usize,
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
        (self.limit - self.tag).saturating_sub(out.len())
    }

    pub(super) fn has_frames(&self, out: &[u8]) -> bool {
        out.len() > self.payload
    }

    /// Appends PING.
    pub(super) fn ping(&mut self, out: &mut Vec<u8>) {
        frame::put(out, ty::PING, &[]);
        self.frames.push(crate::recovery::sent::Sent::Once);
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
        let dcid = self.remote_cids.get(&path)?.active()?.id;
        let own = self.own_cid;
        let phase = self.one_rtt.as_ref().map(|keys| (keys.phase, keys.tag_len()));
        let token = if self.side == Side::Client { std::mem::take(&mut self.token) } else { Vec::new() };
        let start = out.len();
        let numbers = self.space_mut(space).map(|own| (own.sent.next(), own.largest_acked));
        let building = numbers.and_then(|(pn, acked)| {
            let pn_len = header::pn_len(pn, acked);
            let tag = match space {
                SpaceId::Path(_) => {
                    header::put_short(out, &dcid, phase?.0, pn_len);
                    phase?.1
                }
                SpaceId::Initial => {
                    header::put_long(out, Kind::Initial, &dcid, &own, &token, pn_len);
                    16
                }
                SpaceId::Handshake => {
                    header::put_long(out, Kind::Handshake, &dcid, &own, &[], pn_len);
                    16
                }
            };
            let pn_offset = out.len();
            out.extend_from_slice(&pn.to_be_bytes()[8 - pn_len..]);
            let payload = out.len();
            Some(PacketBuilder {
                space,
                start,
                pn_offset,
                payload,
                pn,
                limit,
                tag,
                frames: Frames::default(),
                eliciting: false,
                mtu_probe: false,
                to_end: false,
            })
        });
        if self.side == Side::Client {
            self.token = token;
        }
        // Room for a frame that is worth it.
        let building = building.filter(|own| own.room(out) >= 24);
        if building.is_none() {
            out.truncate(start);
        }
        building
    }

    /// Gives a packet up; nothing of it was sent.
    pub(super) fn drop_packet(&self, building: &PacketBuilder, out: &mut Vec<u8>) {
        out.truncate(building.start);
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
        let least = (building.pn_offset + header::SAMPLE_OFFSET).max(pad_to.saturating_sub(building.tag));
        if out.len() < least {
            out.resize(least, 0);
        }
        let length = out.len() - building.pn_offset + building.tag;
        if !matches!(building.space, SpaceId::Path(_)) {
            let field = building.pn_offset - header::LENGTH_LEN..building.pn_offset;
            out[field].copy_from_slice(&(length as u16 | 0x4000).to_be_bytes());
        }
        self.log_sent(now, slot, &building, out);
        self.seal(&building, out);
        let padded = pad_to > 0;
        let in_flight = building.eliciting || padded;
        let size = if in_flight { (out.len() - building.start) as u16 } else { 0 };
        let packet = SentPacket {
            sent: now,
            size,
            eliciting: building.eliciting,
            ect,
            mtu_probe: building.mtu_probe,
            reinjected: false,
            // Probes of a suspect path do not take up a combined window that other paths could use.
            free: self.windows.is_combined() && self.is_avoided(slot),
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
                len: out.len() - building.start + building.tag,
                payload: &out[building.payload..],
                ack_exponent: self.local.ack_delay_exponent,
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
        if eliciting && !self.idle_touched {
            self.idle_touched = true;
            self.touch_idle(now);
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

    /// Encrypts payload and header.
    fn seal(&mut self, building: &PacketBuilder, out: &mut Vec<u8>) {
        let Range { start, .. } = building.start..out.len();
        let path = match building.space {
            SpaceId::Path(slot) => self.paths[slot].id,
            _ => 0,
        };
        let (head, payload) = out[start..].split_at_mut(building.payload - start);
        let tag = match (building.space, &mut self.one_rtt) {
            (SpaceId::Path(_), Some(keys)) => keys.seal(path, building.pn, head, payload),
            (space, _) => {
                let level = usize::from(space == SpaceId::Handshake);
                let Some(level) = &self.levels[level] else { return };
                let key = &level.keys.local.packet;
                key.encrypt_in_place(building.pn, head, payload).expect("a packet is short")
            }
        };
        out.extend_from_slice(tag.as_ref());
        let key = match (building.space, &self.one_rtt) {
            (SpaceId::Path(_), Some(keys)) => &keys.header_local,
            (space, _) => match &self.levels[usize::from(space == SpaceId::Handshake)] {
                Some(level) => &level.keys.local.header,
                None => return,
            },
        };
        let offset = building.pn_offset - start;
        let sample = header::sample(offset, key.sample_len());
        let (head, tail) = out[start..].split_at_mut(sample.start);
        let pn = offset..building.payload - start;
        if let Some((first, rest)) = head.split_first_mut() {
            let number = &mut rest[pn.start - 1..pn.end - 1];
            key.encrypt_in_place(&tail[..sample.len()], first, number).expect("a sample of the right length");
        }
    }
}
