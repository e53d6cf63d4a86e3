//! Policy routing: which table answers for which packets.

use crate::Links;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// The packets that a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// From one address to another.
    Between(Ipv4Addr, Ipv4Addr),
    /// To an address, from anywhere.
    To(Ipv4Addr),
    /// Received by the port of this name.
    ReceivedBy(String),
}

impl Links {
    /// Sends whatever looks into `table` through `port`, to neighbors on that link.
    ///
    /// # Errors
    /// The kernel refuses; `AlreadyExists` when the table has such a route.
    pub fn add_table(&mut self, table: u32, port: u32) -> io::Result<()> {
        let mut route = RouteMessage::default();
        route.header.address_family = AddressFamily::Inet;
        route.header.table = RouteHeader::RT_TABLE_UNSPEC;
        route.header.protocol = RouteProtocol::Static;
        route.header.scope = RouteScope::Link;
        route.header.kind = RouteType::Unicast;
        route.attributes = vec![RouteAttribute::Oif(port), RouteAttribute::Table(table)];
        self.execute(RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Has packets look into `table` before the main one.
    ///
    /// # Errors
    /// The kernel refuses: `Unsupported` when it has no policy routing, `AlreadyExists` when it has the rule.
    pub fn add_rule(&mut self, packets: &Match, table: u32) -> io::Result<()> {
        let mut rule = RuleMessage::default();
        rule.header.family = AddressFamily::Inet;
        rule.header.action = RuleAction::ToTable;
        rule.attributes = vec![RuleAttribute::Table(table)];
        match packets {
            Match::Between(from, to) => {
                (rule.header.src_len, rule.header.dst_len) = (32, 32);
                rule.attributes.push(RuleAttribute::Source(IpAddr::V4(*from)));
                rule.attributes.push(RuleAttribute::Destination(IpAddr::V4(*to)));
            }
            Match::To(to) => {
                rule.header.dst_len = 32;
                rule.attributes.push(RuleAttribute::Destination(IpAddr::V4(*to)));
            }
            Match::ReceivedBy(port) => rule.attributes.push(RuleAttribute::Iifname(port.clone())),
        }
        self.execute(RouteNetlinkMessage::NewRule(rule), NLM_F_CREATE | NLM_F_EXCL)
    }
}
