//! Sequences that failed once.

use crate::sequence::{Operation, Sequence, Setup};
use crate::session;

#[test]
fn close_before_a_new_address_is_validated_respects_the_amplification_limit() {
    let setup =
        Setup { seed: 782, own: 1, multipath: false, retry: false, small_windows: false, connected: true };
    let operations = vec![
        Operation::Rebind(0),
        Operation::OpenStream(0, true),
        Operation::Reset(0, 1),
        Operation::Drive(0),
        Operation::Drive(1),
        Operation::DropOne(0),
        Operation::Close(1),
    ];
    assert_eq!(session::run(&Sequence { setup, operations }), Ok(()));
}

/// The server has lost its first flight, and acknowledges Initial packets with nothing else.
#[test]
fn acknowledged_initial_packets_do_not_reset_the_backoff_of_probes() {
    let setup =
        Setup { seed: 396, own: 0, multipath: false, retry: false, small_windows: true, connected: false };
    let operations = vec![
        Operation::Drive(0),
        Operation::ToTimer,
        Operation::Drive(1),
        Operation::DropOne(0),
        Operation::PassMs(128),
    ];
    assert_eq!(session::run(&Sequence { setup, operations }), Ok(()));
}
