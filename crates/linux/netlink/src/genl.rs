//! Generic netlink: families that have no crate of their own.

use crate::{Connection, invalid};
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_F_NESTED, Nla, NlasIterator, Parseable, ParseableParametrized,
};
use netlink_packet_generic::ctrl::nlas::{GenlCtrlAttrs, McastGrpAttrs};
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use std::io;

/// Every family used here is at version 1.
const FAMILY_VERSION: u8 = 1;

/// A command of a family, with its attributes unparsed.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    pub(crate) command: u8,
    pub(crate) attributes: Vec<DefaultNla>,
}

impl GenlFamily for Command {
    // Empty: the family is resolved at run time and travels in the message, see `Family::message`.
    fn family_name() -> &'static str {
        ""
    }
    fn command(&self) -> u8 {
        self.command
    }
    fn version(&self) -> u8 {
        FAMILY_VERSION
    }
}

impl Emitable for Command {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }
    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Command {
    fn parse_with_param(payload: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        let attributes =
            NlasIterator::new(payload).map(|nla| DefaultNla::parse(&nla?)).collect::<Result<_, _>>()?;
        Ok(Self { command: header.cmd, attributes })
    }
}

/// The number of a family, and the names and numbers of its multicast groups; `NotFound` when this kernel has no such
/// family.
pub(crate) fn resolve(name: &str) -> io::Result<(u16, Vec<(String, u32)>)> {
    let mut control = Connection::<GenlMessage<GenlCtrl>>::open(NETLINK_GENERIC)?;
    let query =
        GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![GenlCtrlAttrs::FamilyName(name.to_owned())] };
    let (mut id, mut groups) = (None, Vec::new());
    for nla in control.get(GenlMessage::from_payload(query))?.into_iter().flat_map(|a| a.payload.nlas) {
        match nla {
            GenlCtrlAttrs::FamilyId(found) => id = Some(found),
            GenlCtrlAttrs::McastGroups(found) => groups.extend(found.iter().filter_map(|one| group(one))),
            _ => {}
        }
    }
    Ok((id.ok_or_else(|| invalid(format!("family {name} has no number")))?, groups))
}

fn group(attributes: &[McastGrpAttrs]) -> Option<(String, u32)> {
    let (mut name, mut id) = (None, None);
    for attribute in attributes {
        match attribute {
            McastGrpAttrs::Name(found) => name = Some(found.clone()),
            McastGrpAttrs::Id(found) => id = Some(*found),
        }
    }
    Some((name?, id?))
}

/// A connection to one family, in the network namespace of the thread that opened it.
pub(crate) struct Family {
    id: u16,
    connection: Connection<GenlMessage<Command>>,
}

impl Family {
    /// `NotFound` when this kernel has no such family.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        Ok(Self { id: resolve(name)?.0, connection: Connection::open(NETLINK_GENERIC)? })
    }

    pub(crate) fn execute(&mut self, command: u8, attributes: Vec<DefaultNla>) -> io::Result<()> {
        let message = self.message(command, attributes);
        self.connection.execute(message, 0)
    }

    /// The attributes of the answers.
    pub(crate) fn get(&mut self, command: u8, attributes: Vec<DefaultNla>) -> io::Result<Vec<DefaultNla>> {
        let message = self.message(command, attributes);
        let answers = self.connection.get(message)?;
        Ok(answers.into_iter().flat_map(|answer| answer.payload.attributes).collect())
    }

    /// The attributes of each answer to a request that lists something.
    pub(crate) fn dump(&mut self, command: u8) -> io::Result<Vec<Vec<DefaultNla>>> {
        let message = self.message(command, Vec::new());
        let answers = self.connection.dump(message)?;
        Ok(answers.into_iter().map(|answer| answer.payload.attributes).collect())
    }

    fn message(&self, command: u8, attributes: Vec<DefaultNla>) -> GenlMessage<Command> {
        let mut message = GenlMessage::from_payload(Command { command, attributes });
        message.set_resolved_family_id(self.id);
        message
    }
}

/// The value of the attribute of this type.
pub(crate) fn bytes_of(attributes: &[DefaultNla], kind: u16) -> Option<Vec<u8>> {
    // The parser leaves the mark of a nest in the type.
    let found = attributes.iter().find(|attribute| attribute.kind() & !NLA_F_NESTED == kind)?;
    let mut bytes = vec![0; found.value_len()];
    found.emit_value(&mut bytes);
    Some(bytes)
}

/// The attributes that an attribute holds.
pub(crate) fn inside(value: &[u8]) -> io::Result<Vec<DefaultNla>> {
    let attributes = NlasIterator::new(value).map(|nla| DefaultNla::parse(&nla?)).collect::<Result<_, _>>();
    attributes.map_err(|e: DecodeError| invalid(e))
}

/// An attribute that holds attributes.
pub(crate) fn nest(kind: u16, inner: &[DefaultNla]) -> DefaultNla {
    DefaultNla::new(kind | NLA_F_NESTED, crate::options::nested(inner))
}

/// An attribute that holds a string, with its terminating zero.
pub(crate) fn text(kind: u16, value: &str) -> DefaultNla {
    let mut bytes = value.as_bytes().to_vec();
    bytes.push(0);
    DefaultNla::new(kind, bytes)
}
