//! Sequences that failed once.

use crate::sequence::{Operation, Sequence, Setup};
use crate::session;

#[test]
fn close_to_an_unvalidated_address_respects_the_amplification_limit() {
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

/// 4052: HANDSHAKE_DONE is lost, while the server reads and acknowledges 1-RTT packets. 4172, 8416: of two paths one has a packet whose
/// acknowledgment is delayed, then the other.
#[test]
fn ends_without_work_send_few_datagrams() {
    for seed in [4052, 4172, 8416] {
        assert_eq!(session::run(&Sequence::draw(seed)), Ok(()), "{seed}");
    }
}
