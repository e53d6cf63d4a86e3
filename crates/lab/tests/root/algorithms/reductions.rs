//! Reasons for reductions in Linux that the wrapper reports to an algorithm, on this host's kernel.

use crate::reductions;
#[test]
fn root_reductions_after_marks_are_answered_as_marks() {
    reductions::marks_are_answered_as_marks("50mbit", &[1, 4], 3, 3);
}

#[test]
fn root_reductions_without_ecn_nothing_is_marked() {
    reductions::ecn::without_ecn_nothing_is_marked();
}

#[test]
fn root_reductions_without_ecn_nothing_is_marked_on_joined_subflows() {
    reductions::ecn::without_ecn_nothing_is_marked_on_joined_subflows();
}

#[test]
fn root_reductions_mtu_decrease_does_not_reduce_the_window() {
    reductions::mtu::a_fallen_mtu_costs_no_window();
}
