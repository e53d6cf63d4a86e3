//! Traffic that passes while a port's queues are exchanged. Needs root: without it these tests fail, they do not skip.

use crate::port::exchange;
#[test]
fn root_port_exchanges_queues_without_loss() {
    exchange::exchanges_without_loss(3);
}
