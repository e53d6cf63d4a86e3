//! Connections whose bytes a session writes piece by piece.

use crate::tcp::testing::{Lab, Setup, lose};
use crate::time::Span;
use crate::traffic::App;

#[test]
fn carrier_delivers_exactly_the_written_bytes_despite_losses() {
    let setup = Setup { app: App::Carrier, ..Setup::default() };
    let mut lab = Lab::new(setup, lose(&[3, 4, 9, 20, 21, 22, 60, 90]));
    lab.run_ms(25);
    assert!(lab.hosts.tcp.is_connected(0));
    let mut written = 0;
    for (number, bytes) in
        [1, 1448, 3, 16_000, 700, 1447, 1449, 5_000, 2, 40_000].into_iter().cycle().take(40).enumerate()
    {
        lab.hosts.tcp.carry(&mut lab.pipe, 0, bytes);
        written += bytes;
        let info = lab.hosts.tcp.carrier_info(0, Span::ZERO);
        assert!(info.queued <= written, "{info:?}");
        lab.run_ms(25 + 7 * number as u64);
        assert!(lab.hosts.tcp.arrived_bytes(0) <= written);
    }
    lab.run_ms(20_000);
    let info = lab.hosts.tcp.carrier_info(0, Span::ZERO);
    assert_eq!((lab.hosts.tcp.arrived_bytes(0), info.queued, info.in_flight), (written, 0, 0));
}

#[test]
fn aborted_carrier_sends_nothing_more() {
    let setup = Setup { app: App::Carrier, ..Setup::default() };
    let mut lab = Lab::new(setup, lose(&[]));
    lab.run_ms(25);
    lab.hosts.tcp.carry(&mut lab.pipe, 0, 100_000);
    lab.hosts.tcp.abort(&mut lab.pipe, 0);
    lab.hosts.tcp.carry(&mut lab.pipe, 0, 1_000);
    lab.run_ms(20_000);
    assert_eq!(lab.hosts.tcp.arrived_bytes(0), 10 * 1448, "the initial window was on its way");
}
