//! The `htb` backend of a port keeps what every backend promises. Needs root.

use crate::switch::{conformance, mixed};
use vmcc_port::Backend;

#[test]
fn root_port_htb_weights_4_2_1() {
    conformance::shares_follow_weights_within_the_rate("htb", Backend::Htb, &[4, 2, 1]);
}

#[test]
fn root_port_htb_weights_2_1() {
    conformance::shares_follow_weights_within_the_rate("htb", Backend::Htb, &[2, 1]);
}

#[test]
fn root_port_htb_marks_and_limits() {
    conformance::marks_ecn_at_the_threshold_and_drops_the_rest_at_its_limit("htb");
}

#[test]
fn root_port_htb_weights_with_tcp() {
    conformance::shares_hold_with_tcp("htb", &[4, 2, 1]);
}

#[test]
fn root_port_htb_thresholds() {
    conformance::thresholds_follow_the_round("htb");
}

#[test]
fn root_port_htb_changes() {
    conformance::changes_under_traffic_lose_no_packet("htb");
}

#[test]
fn root_port_htb_detaching() {
    conformance::detaching_loses_no_waiting_packet("htb");
}

#[test]
fn root_port_htb_priority() {
    conformance::the_first_class_comes_first("htb");
}

#[test]
fn root_port_htb_sparse() {
    conformance::a_sparse_flow_comes_first_in_its_class("htb");
}

#[test]
fn root_port_htb_guarantee() {
    conformance::a_guarantee_comes_before_the_order("htb");
}

#[test]
fn root_port_htb_ecn_connections_leave_others_their_share() {
    mixed::ecn_connections_leave_others_their_share("htb");
}

#[test]
fn root_port_htb_few_ecn_connections_leave_others_their_share() {
    mixed::few_ecn_connections_leave_others_their_share("htb");
}

#[test]
fn root_port_htb_datagram_flood_leaves_others_their_share() {
    mixed::datagram_flood_leaves_others_their_share("htb");
}

#[test]
fn root_port_htb_small_datagrams_leave_others_their_share() {
    mixed::small_datagrams_leave_others_their_share("htb");
}

#[test]
fn root_port_htb_flood_of_many_flows_leaves_others_their_share() {
    mixed::flood_of_many_flows_leaves_others_their_share("htb");
}

#[test]
fn root_port_htb_run_times() {
    conformance::run_times_are_counted("htb");
}
