//! Payload of a probe request, which its answer returns.

use crate::time::Time;

/// The payload of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Which of its sender's requests.
    pub(super) number: u32,
    /// Time at which the request left.
    pub(super) sent: Time,
    /// True if the request arrived with CE.
    pub(super) marked: bool,
}

impl Message {
    /// On the wire: number, time in picoseconds, mark; little endian.
    pub(super) const BYTES: usize = 4 + 8 + 1;

    pub(super) fn encode(&self) -> [u8; Message::BYTES] {
        let mut bytes = [0; Message::BYTES];
        bytes[..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.sent.ps().to_le_bytes());
        bytes[12] = u8::from(self.marked);
        bytes
    }

    /// `None` if these bytes are something else.
    pub(super) fn decode(bytes: &[u8]) -> Option<Message> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (sent, rest) = rest.split_first_chunk()?;
        let marked = match rest {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let sent = Time::from_ps(u64::from_le_bytes(*sent));
        Some(Message { number: u32::from_le_bytes(*number), sent, marked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_message_round_trips() {
        for marked in [false, true] {
            let message = Message { number: 0x0102_0304, sent: Time::from_ps(1 << 40 | 5), marked };
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn other_bytes_are_rejected() {
        let good = Message { number: 1, sent: Time::ZERO, marked: true }.encode();
        let longer = [&good[..], &[0]].concat();
        for bytes in [&good[..12], &longer, &[], &[2; Message::BYTES]] {
            assert_eq!(Message::decode(bytes), None, "{bytes:?}");
        }
    }
}
