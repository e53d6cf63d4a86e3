//! Traffic-control messages with their attributes as bytes: what is read from one port can be given back to it
//! unchanged, whatever kind of queue it was.

use crate::Connection;
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NetlinkDeserializable,
    NetlinkHeader, NetlinkPayload, NetlinkSerializable, NlasIterator, Parseable,
};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::io;
use std::ops::Range;

// Numbers from the kernel's user interface, linux/rtnetlink.h and linux/gen_stats.h.
pub(crate) const RTM_NEWQDISC: u16 = 36;
pub(crate) const RTM_DELQDISC: u16 = 37;
pub(crate) const RTM_GETQDISC: u16 = 38;
pub(crate) const RTM_NEWTCLASS: u16 = 40;
pub(crate) const RTM_DELTCLASS: u16 = 41;
pub(crate) const RTM_GETTCLASS: u16 = 42;
const TCA_KIND: u16 = 1;
pub(crate) const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STAB: u16 = 8;
const TCA_STAB_BASE: u16 = 1;
/// Number of entries in a table of sizes: the last field of `struct tc_sizespec`.
const TABLE_ENTRIES: Range<usize> = 20..24;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;
const HEADER_LEN: usize = 20;
const NLA_TYPE_MASK: u16 = 0x3fff;

/// The parent of a port's root queue, and of a class directly below it.
pub const ROOT: u32 = 0xffff_ffff;
/// Any: it is the only queue of ours there.
const BARE_HANDLE: u32 = 0x1_0000;

/// One message: `struct tcmsg` and the attributes behind it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tc {
    pub(crate) message_type: u16,
    pub(crate) port: u32,
    pub(crate) handle: u32,
    pub(crate) parent: u32,
    pub(crate) info: u32,
    pub(crate) attributes: Vec<DefaultNla>,
}

impl Tc {
    pub(crate) fn new(message_type: u16, port: u32, parent: u32, handle: u32) -> Self {
        Self { message_type, port, handle, parent, info: 0, attributes: Vec::new() }
    }

    pub(crate) fn kind(mut self, kind: &str) -> Self {
        self.attributes.push(crate::genl::text(TCA_KIND, kind));
        self
    }

    pub(crate) fn options(mut self, value: Vec<u8>) -> Self {
        self.attributes.push(DefaultNla::new(TCA_OPTIONS, value));
        self
    }

    pub(crate) fn value(&self, kind: u16) -> Option<Vec<u8>> {
        use netlink_packet_core::Nla;
        let found = self.attributes.iter().find(|nla| nla.kind() & NLA_TYPE_MASK == kind)?;
        let mut value = vec![0; found.value_len()];
        found.emit_value(&mut value);
        Some(value)
    }

    pub(crate) fn queue(&self) -> QueueInfo {
        let kind = self.value(TCA_KIND).unwrap_or_default();
        QueueInfo {
            kind: String::from_utf8_lossy(&kind).trim_end_matches('\0').to_owned(),
            handle: self.handle,
            parent: self.parent,
            leaf: self.info,
            options: self.value(TCA_OPTIONS).unwrap_or_default(),
            stab: self.value(TCA_STAB).unwrap_or_default(),
            counters: self.value(TCA_STATS2).map_or_else(Counters::default, |bytes| counters(&bytes)),
        }
    }
}

/// A queue or a class of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its kind: `htb`, `bfifo`, ...
    pub kind: String,
    /// Its number: `major << 16 | minor`; zero for a queue that the kernel made on its own.
    pub handle: u32,
    /// Handle of the parent.
    pub parent: u32,
    /// Of a class: its queue. Of a queue: how many refer to it.
    pub leaf: u32,
    /// Its settings, as the kernel gives them.
    pub options: Vec<u8>,
    /// Its sizes of packets (`stab`), as the kernel gives them; empty if it has none of its own.
    pub stab: Vec<u8>,
    /// Its counters.
    pub counters: Counters,
}

impl QueueInfo {
    /// True if `stab` has a table of sizes. The kernel does not give the table back, so the queue cannot be made again.
    pub fn has_size_table(&self) -> bool {
        let mut attributes = NlasIterator::new(&self.stab).filter_map(Result::ok);
        let base = attributes.find(|nla| nla.kind() & NLA_TYPE_MASK == TCA_STAB_BASE);
        base.is_some_and(|base| base.value().get(TABLE_ENTRIES).is_some_and(|entries| entries != [0; 4]))
    }
}

/// Counters of a queue or a class since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that left.
    pub sent_bytes: u64,
    /// Packets that left.
    pub sent_pkt: u64,
    /// Packets dropped. The kernel counts them in 32 bits.
    pub drops: u64,
    /// Bytes that wait now.
    pub backlog_bytes: u64,
    /// Packets that wait now.
    pub backlog_pkt: u64,
}

impl Counters {
    /// Of two queues together.
    #[must_use]
    pub fn combined(self, other: Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes + other.sent_bytes,
            sent_pkt: self.sent_pkt + other.sent_pkt,
            drops: self.drops + other.drops,
            backlog_bytes: self.backlog_bytes + other.backlog_bytes,
            backlog_pkt: self.backlog_pkt + other.backlog_pkt,
        }
    }
}

fn counters(bytes: &[u8]) -> Counters {
    let mut found = Counters::default();
    for nla in NlasIterator::new(bytes).filter_map(Result::ok) {
        let value = nla.value();
        let word = |i: usize| {
            value.get(4 * i..4 * i + 4).map(|b| u32::from_ne_bytes(b.try_into().unwrap_or([0; 4])))
        };
        let long = |i: usize| value.get(i..i + 8).map(|b| u64::from_ne_bytes(b.try_into().unwrap_or([0; 8])));
        match nla.kind() & NLA_TYPE_MASK {
            TCA_STATS_BASIC => {
                found.sent_bytes = long(0).unwrap_or_default();
                found.sent_pkt = found.sent_pkt.max(word(2).unwrap_or_default().into());
            }
            TCA_STATS_PKT64 => found.sent_pkt = long(0).unwrap_or_default(),
            TCA_STATS_QUEUE => {
                found.backlog_pkt = word(0).unwrap_or_default().into();
                found.backlog_bytes = word(1).unwrap_or_default().into();
                found.drops = word(2).unwrap_or_default().into();
            }
            _ => {}
        }
    }
    found
}

impl NetlinkSerializable for Tc {
    fn message_type(&self) -> u16 {
        self.message_type
    }
    fn buffer_len(&self) -> usize {
        HEADER_LEN + self.attributes.as_slice().buffer_len()
    }
    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..4].fill(0);
        for (at, field) in [(4, self.port), (8, self.handle), (12, self.parent), (16, self.info)] {
            buffer[at..at + 4].copy_from_slice(&field.to_ne_bytes());
        }
        self.attributes.as_slice().emit(&mut buffer[HEADER_LEN..]);
    }
}

impl NetlinkDeserializable for Tc {
    type Error = DecodeError;
    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let short = || DecodeError::buffer_too_small(payload.len(), HEADER_LEN);
        let word = |at: usize| {
            let bytes = payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_ne_bytes).ok_or_else(short)
        };
        let rest = payload.get(HEADER_LEN..).ok_or_else(short)?;
        let attributes =
            NlasIterator::new(rest).map(|nla| DefaultNla::parse(&nla?)).collect::<Result<_, _>>()?;
        Ok(Self {
            message_type: header.message_type,
            port: word(4)?,
            handle: word(8)?,
            parent: word(12)?,
            info: word(16)?,
            attributes,
        })
    }
}

impl From<Tc> for NetlinkPayload<Tc> {
    fn from(message: Tc) -> Self {
        Self::InnerMessage(message)
    }
}

/// The queues and classes of the ports of one network namespace.
pub struct TrafficControl(pub(crate) Connection<Tc>);

impl TrafficControl {
    /// Opens a connection; it stays in the namespace that the calling thread is in now.
    ///
    /// # Errors
    /// The system refuses a netlink socket.
    pub fn open() -> io::Result<Self> {
        Connection::open(NETLINK_ROUTE).map(Self)
    }

    /// Every queue of the port.
    ///
    /// # Errors
    /// The kernel refuses; a port that is gone has no queues.
    pub fn queues(&mut self, port: u32) -> io::Result<Vec<QueueInfo>> {
        let answers = self.0.dump(Tc::new(RTM_GETQDISC, port, 0, 0))?;
        Ok(answers.iter().filter(|a| a.port == port).map(Tc::queue).collect())
    }

    /// The queue at the port's root; `None` where there is none (a port that was never up, `noqueue`).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn root(&mut self, port: u32) -> io::Result<Option<QueueInfo>> {
        Ok(self.queues(port)?.into_iter().find(|queue| queue.parent == ROOT))
    }

    /// The ports whose root queue has this handle.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn ports_with_root(&mut self, handle: u32) -> io::Result<Vec<u32>> {
        let answers = self.0.dump(Tc::new(RTM_GETQDISC, 0, 0, 0))?;
        Ok(answers.iter().filter(|a| a.parent == ROOT && a.handle == handle).map(|a| a.port).collect())
    }

    /// Every class of the port's root queue.
    ///
    /// # Errors
    /// The kernel refuses, or there is no such port.
    pub fn classes(&mut self, port: u32) -> io::Result<Vec<QueueInfo>> {
        let answers = self.0.dump(Tc::new(RTM_GETTCLASS, port, 0, 0))?;
        Ok(answers.iter().filter(|a| a.port == port).map(Tc::queue).collect())
    }

    /// Makes a queue of this kind, handle, options and `stab` the root of the port.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add_root(&mut self, port: u32, queue: &QueueInfo) -> io::Result<()> {
        let mut message = Tc::new(RTM_NEWQDISC, port, ROOT, queue.handle).kind(&queue.kind);
        message = message.options(queue.options.clone());
        if !queue.stab.is_empty() {
            message.attributes.push(DefaultNla::new(TCA_STAB, queue.stab.clone()));
        }
        self.0.execute(message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Makes a queue of this kind the root of the port where there is none. Without settings: a kind that wants some says
    /// so.
    ///
    /// # Errors
    /// `NotFound` when the kernel has no such kind; the kernel refuses.
    pub fn add_bare_root(&mut self, port: u32, kind: &str) -> io::Result<()> {
        self.0.execute(Tc::new(RTM_NEWQDISC, port, ROOT, BARE_HANDLE).kind(kind), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Removes the root queue and what hangs from it; the kernel puts its default in place.
    ///
    /// # Errors
    /// `NotFound` when there is none but the kernel's own.
    pub fn delete_root(&mut self, port: u32) -> io::Result<()> {
        self.0.execute(Tc::new(RTM_DELQDISC, port, ROOT, 0), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_round_trips() {
        let message = Tc::new(RTM_NEWQDISC, 7, ROOT, 0x10000).kind("htb").options(vec![1, 2, 3, 4]);
        let mut bytes = vec![0; NetlinkSerializable::buffer_len(&message)];
        message.serialize(&mut bytes);
        let mut header = NetlinkHeader::default();
        header.message_type = RTM_NEWQDISC;
        let read = Tc::deserialize(&header, &bytes).unwrap().queue();
        assert_eq!((read.kind.as_str(), read.handle, read.parent), ("htb", 0x10000, ROOT));
        assert_eq!(read.options, [1, 2, 3, 4]);
    }

    #[test]
    fn short_messages_are_errors_not_panics() {
        for length in 0..HEADER_LEN {
            assert!(Tc::deserialize(&NetlinkHeader::default(), &vec![0xff; length]).is_err());
        }
        assert_eq!(counters(&[8, 0, 3, 0, 1]), Counters::default());
    }
}
