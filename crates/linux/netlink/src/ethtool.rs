//! Device features, through the ethtool family (Linux 5.6 and newer).

use crate::genl::{Family, nest, text};
use netlink_packet_core::{DefaultNla, Nla};
use std::io;

// Numbers from the kernel's user interface, linux/ethtool_netlink.h.
const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
const ETHTOOL_A_FEATURES_WANTED: u16 = 3;
const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;
const ETHTOOL_MSG_LINKMODES_GET: u8 = 4;
const ETHTOOL_A_LINKMODES_HEADER: u16 = 1;
const ETHTOOL_A_LINKMODES_SPEED: u16 = 5;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;

const RECEIVE_MERGING: &str = "rx-gro";

/// Everything that makes packets larger than the wire's: such a packet would count as one in a queue.
const FEATURES: [&str; 6] = [
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-generic-segmentation",
    RECEIVE_MERGING,
];

/// Feature that leaves a packet's checksum to a device, which may not be there.
const CHECKSUMS: [&str; 1] = ["tx-checksum-ip-generic"];

/// Makes `port` send and receive packets of wire size only.
pub fn disable_segmentation_offload(port: &str) -> io::Result<()> {
    set(port, &FEATURES, false)
}

/// Makes `port` send packets with their checksums filled in, as a switch in user space needs them.
pub fn disable_checksum_offload(port: &str) -> io::Result<()> {
    set(port, &CHECKSUMS, false)
}

/// Lets `port` merge packets that it receives.
pub(crate) fn enable_receive_merging(port: &str) -> io::Result<()> {
    set(port, &[RECEIVE_MERGING], true)
}

fn set(port: &str, features: &[&str], on: bool) -> io::Result<()> {
    // A bit that is named without the value attribute is cleared; bits that are not named stay.
    let bit = |name: &&str| {
        let value = on.then(|| DefaultNla::new(ETHTOOL_A_BITSET_BIT_VALUE, Vec::new()));
        let name = text(ETHTOOL_A_BITSET_BIT_NAME, name);
        nest(ETHTOOL_A_BITSET_BITS_BIT, &[vec![name], value.into_iter().collect()].concat())
    };
    let bits: Vec<DefaultNla> = features.iter().map(bit).collect();
    let header = nest(ETHTOOL_A_FEATURES_HEADER, &[text(ETHTOOL_A_HEADER_DEV_NAME, port)]);
    let wanted = nest(ETHTOOL_A_FEATURES_WANTED, &[nest(ETHTOOL_A_BITSET_BITS, &bits)]);
    Family::open("ethtool")?.execute(ETHTOOL_MSG_FEATURES_SET, vec![header, wanted])
}

/// Speed of the link of `port`, in bits per second; `None` while it is not known. Taps and veths report a number that
/// means nothing.
///
/// # Errors
/// The kernel refuses, or there is no such port.
pub fn link_speed(port: &str) -> io::Result<Option<u64>> {
    let header = nest(ETHTOOL_A_LINKMODES_HEADER, &[text(ETHTOOL_A_HEADER_DEV_NAME, port)]);
    let answer = Family::open("ethtool")?.get(ETHTOOL_MSG_LINKMODES_GET, vec![header])?;
    Ok(answer.iter().find_map(speed))
}

/// The attribute's value is in Mbit/s; 0 and -1 stand for unknown.
fn speed(attribute: &DefaultNla) -> Option<u64> {
    if attribute.kind() != ETHTOOL_A_LINKMODES_SPEED || attribute.value_len() != 4 {
        return None;
    }
    let mut bytes = [0; 4];
    attribute.emit_value(&mut bytes);
    let mbit = u32::from_ne_bytes(bytes);
    (mbit != 0 && mbit != u32::MAX).then_some(u64::from(mbit) * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_link_speed_is_none() {
        let attribute = |bytes: &[u8]| DefaultNla::new(ETHTOOL_A_LINKMODES_SPEED, bytes.to_vec());
        assert_eq!(speed(&attribute(&1000_u32.to_ne_bytes())), Some(1_000_000_000));
        for unknown in [&[0; 4][..], &[0xff; 4], &[1], &[]] {
            assert_eq!(speed(&attribute(unknown)), None);
        }
    }
}
