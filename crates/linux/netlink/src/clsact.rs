//! clsact: the place beside a port's queues where tc programs run on every packet that leaves or comes in.

use crate::filter::{CLSACT_EGRESS, CLSACT_INGRESS, RTM_GETTFILTER};
use crate::tc::{RTM_DELQDISC, RTM_NEWQDISC, Tc, TrafficControl};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use std::io;

// Numbers from the kernel's user interface, linux/pkt_sched.h.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// Filters of packets that come in, and of packets that leave.
const BLOCKS: [u32; 2] = [CLSACT_INGRESS, CLSACT_EGRESS];

impl TrafficControl {
    /// Kind of the port's place for filters: `clsact`, or `ingress`, which has none for packets that leave.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn place_of_filters(&mut self, port: u32) -> io::Result<Option<String>> {
        let place = self.queues(port)?.into_iter().find(|queue| queue.parent == CLSACT);
        Ok(place.map(|queue| queue.kind))
    }

    /// Makes that place.
    ///
    /// # Errors
    /// `NotFound` when the kernel has none; it is there already; the kernel refuses.
    pub fn add_clsact(&mut self, port: u32) -> io::Result<()> {
        let message = Tc::new(RTM_NEWQDISC, port, CLSACT, CLSACT_HANDLE).kind("clsact");
        self.0.execute(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Returns true if there is any filter.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn has_filters(&mut self, port: u32) -> io::Result<bool> {
        for parent in BLOCKS {
            let answers = self.0.dump(Tc::new(RTM_GETTFILTER, port, parent, 0))?;
            if answers.iter().any(|filter| filter.port == port) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the place and every filter there.
    ///
    /// # Errors
    /// `NotFound` or `InvalidInput` when there is none.
    pub fn delete_clsact(&mut self, port: u32) -> io::Result<()> {
        self.0.execute(Tc::new(RTM_DELQDISC, port, CLSACT, CLSACT_HANDLE), 0)
    }
}
