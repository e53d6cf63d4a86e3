//! Answers about links and addresses, also where a name is no UTF-8: the kernel allows any bytes but `/` and space, and one
//! such name must not hide all others.

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader};
use netlink_packet_route::RouteNetlinkMessage;

// From the kernel's user interface: linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h.
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const LINK_HEADER_LEN: usize = 16;
const ADDRESS_HEADER_LEN: usize = 8;
const IFLA_IFNAME: u16 = 3;
const IFLA_IFALIAS: u16 = 20;
const IFLA_PHYS_PORT_NAME: u16 = 38;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const IFA_LABEL: u16 = 3;

const ATTRIBUTE_HEADER_LEN: usize = 4;
const NLA_TYPE_MASK: u16 = 0x3fff;

/// A message in which `?` stands for each byte of a name that is no UTF-8.
pub(crate) struct Answer(pub(crate) RouteNetlinkMessage);

impl NetlinkDeserializable for Answer {
    type Error = <RouteNetlinkMessage as NetlinkDeserializable>::Error;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        let read = |payload: &[u8]| RouteNetlinkMessage::deserialize(header, payload);
        read(payload).or_else(|_| read(&legible(header.message_type, payload))).map(Self)
    }
}

fn legible(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    let (header, names, nest): (_, &[u16], _) = match kind {
        RTM_NEWLINK => {
            let names = &[IFLA_IFNAME, IFLA_IFALIAS, IFLA_PHYS_PORT_NAME];
            (LINK_HEADER_LEN, names, Some(IFLA_PROP_LIST))
        }
        RTM_NEWADDR => (ADDRESS_HEADER_LEN, &[IFA_LABEL], None),
        _ => return payload,
    };
    each(payload.get_mut(header..).unwrap_or_default(), &mut |kind, value| {
        if names.contains(&kind) {
            mend(value);
        } else if Some(kind) == nest {
            each(value, &mut |kind, value| {
                if kind == IFLA_ALT_IFNAME {
                    mend(value);
                }
            });
        }
    });
    payload
}

/// Hands over type and value of each attribute, up to the first that is malformed.
fn each(mut rest: &mut [u8], found: &mut dyn FnMut(u16, &mut [u8])) {
    while let Some(&[a, b, c, d]) = rest.first_chunk::<ATTRIBUTE_HEADER_LEN>() {
        let (length, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let Some(value) = rest.get_mut(ATTRIBUTE_HEADER_LEN..length) else { return };
        found(kind & NLA_TYPE_MASK, value);
        rest = rest.get_mut(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// No interface's name has it, so that what is mended answers to no name.
const MENDED: u8 = b':';

/// As long as before, so nothing else moves.
fn mend(name: &mut [u8]) {
    let as_it_was = name.to_vec();
    let mut at = 0;
    for chunk in as_it_was.utf8_chunks() {
        at += chunk.valid().len();
        name[at..at + chunk.invalid().len()].fill(MENDED);
        at += chunk.invalid().len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::link::{LinkAttribute, Prop};

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(ATTRIBUTE_HEADER_LEN + value.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn read(kind: u16, payload: &[u8]) -> Option<RouteNetlinkMessage> {
        let mut header = NetlinkHeader::default();
        header.message_type = kind;
        Answer::deserialize(&header, payload).ok().map(|answer| answer.0)
    }

    #[test]
    fn non_utf8_names_are_read() {
        let mut payload = vec![0; LINK_HEADER_LEN];
        payload.extend(attribute(IFLA_IFNAME, b"gr\xc3\xb6\xff\xc3.\0"));
        payload.extend(attribute(IFLA_PROP_LIST | 1 << 15, &attribute(IFLA_ALT_IFNAME, b"\xfeother\0")));
        let Some(RouteNetlinkMessage::NewLink(link)) = read(RTM_NEWLINK, &payload) else { panic!() };
        assert!(link.attributes.contains(&LinkAttribute::IfName("gr\u{f6}::.".to_owned())), "{link:?}");
        let other = Prop::AltIfName(":other".to_owned());
        assert!(link.attributes.contains(&LinkAttribute::PropList(vec![other])), "{link:?}");

        let mut payload = vec![0; ADDRESS_HEADER_LEN];
        payload[0] = 2;
        payload.extend(attribute(IFA_LABEL, b"v\xff\0"));
        assert!(matches!(read(RTM_NEWADDR, &payload), Some(RouteNetlinkMessage::NewAddress(_))));
    }

    #[test]
    fn malformed_attributes_are_kept_unchanged() {
        for length in [0_u16, 1, 3, 4, 9, u16::MAX] {
            let mut payload = vec![0xff; LINK_HEADER_LEN + 8];
            payload[LINK_HEADER_LEN..LINK_HEADER_LEN + 2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(legible(RTM_NEWLINK, &payload), payload, "{length}");
        }
        assert_eq!(legible(RTM_NEWLINK, &[0xff; 3]), [0xff; 3]);
    }
}
