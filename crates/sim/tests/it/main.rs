//! The simulator: scenarios, topologies, laws of the transport.

mod common;
mod coupling;
mod covering;
mod datagrams;
mod deschedule;
mod directions;
mod fabrics;
mod flow_lists;
mod laws_covering;
mod laws_swept;
mod laws_transport;
mod limits;
mod marking;
mod observations;
mod persistent;
mod quic;
mod requests;
mod reroute;
mod scenarios;
mod scheduling;
mod sharing;
mod slowdown;
mod subflow_events;
mod tables;
mod tiers;
mod windows;
