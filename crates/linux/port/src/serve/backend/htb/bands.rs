//! Bands of a class: sparse flows, which are served first, and all others.

use super::{Htb, UNCAPPED, burst, class_id, handle};
use crate::plan::{ClassPlan, Plan};
use crate::serve::device::Device;
use crate::serve::error::PortError;
use crate::serve::program::{FLOWS_MAP, Program};
use libbpf_rs::{Object, ObjectBuilder};
use std::os::fd::AsFd;
use vmcc_bpf::objects::{BAND, Log};
use vmcc_bpf::shared::port::{
    PORT_BAND_BULK as BULK, PORT_BAND_SPARSE as SPARSE, PORT_BANDS_FIRST, PORT_SPARSE_FIRST,
};
use vmcc_netlink::HtbClass;

const LOG_LINES: usize = 12;

/// The queue that has a class's bands.
fn bands_handle(class: usize) -> u32 {
    handle(PORT_BANDS_FIRST, class)
}

/// The FIFO of a class's sparse flows.
pub(super) fn sparse_handle(class: usize) -> u32 {
    handle(PORT_SPARSE_FIRST, class)
}

/// The band of a class's sparse flows.
pub(super) fn sparse_id(class: usize) -> u32 {
    bands_handle(class) | SPARSE
}

/// The band of a class's other flows.
pub(super) fn bulk_id(class: usize) -> u32 {
    bands_handle(class) | BULK
}

/// Parent of the FIFO that the tc program reads.
pub(super) fn bulk_parent(class: usize, plan: &Plan) -> u32 {
    if plan.sparse { bulk_id(class) } else { class_id(class) }
}

/// The bands of a class, if it has some.
pub(super) fn band_classes(class: usize, plan: &Plan) -> Vec<HtbClass> {
    let band = |minor: u32| HtbClass {
        id: bands_handle(class) | minor,
        parent: bands_handle(class),
        rate: UNCAPPED,
        ceiling: UNCAPPED,
        burst_bytes: burst(UNCAPPED, plan.frame_bytes),
        ceil_burst_bytes: burst(UNCAPPED, plan.frame_bytes),
        quantum_bytes: u32::try_from(plan.frame_bytes).unwrap_or(u32::MAX),
        priority: minor - SPARSE,
    };
    if plan.sparse { vec![band(SPARSE), band(BULK)] } else { Vec::new() }
}

impl Htb {
    /// Makes the bands of a class, and the FIFO of its sparse flows.
    pub(super) fn add_bands(
        dev: &mut Device,
        index: usize,
        class: &ClassPlan,
        plan: &Plan,
    ) -> Result<(), PortError> {
        let made = dev.tc.add_inner_htb(dev.index, class_id(index), bands_handle(index), BULK);
        made.map_err(|e| PortError::kernel(&dev.name, format!("make the bands of class {}", class.name), e))?;
        for band in band_classes(index, plan) {
            Self::set(dev, &band)?;
        }
        Self::add_fifo(dev, sparse_id(index), sparse_handle(index), class)
    }
}

/// Loads the filter that finds the class of a band, and keeps the places of packets in the bulk
/// (`kernel/port/band.bpf.c`).
pub(super) fn load_filter(port: &Program) -> Result<Object, PortError> {
    let log = Log::start();
    let loaded = (|| {
        let mut open = ObjectBuilder::default().name("vmcc_band")?.open_memory(BAND)?;
        for mut map in open.maps_mut() {
            if let Some(flows) = port.flows.as_ref().filter(|_| map.name() == FLOWS_MAP) {
                map.reuse_fd(flows.as_fd())?;
            }
        }
        open.load()
    })();
    loaded.map_err(|e| PortError::Refused { cause: e.to_string(), log: log.tail(LOG_LINES) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::resolved;

    #[test]
    fn bands_exist_only_where_a_class_marks() {
        let bands = |text: &str| band_classes(0, &resolved(text, 1500)).len();
        assert_eq!(bands("rate = '1mbit'"), 2);
        assert_eq!(bands("rate = '1mbit'\nsparse = false"), 0);
        assert_eq!(bands("rate = '1mbit'\nmarking = { rule = 'none' }"), 0);
        assert_eq!(bands("marking = { rule = 'threshold', at = '30kB' }"), 0, "not its queue");
    }

    #[test]
    fn sparse_flows_are_served_first_and_neither_band_is_limited() {
        let [sparse, bulk] = band_classes(3, &resolved("rate = '1mbit'", 1500))[..] else { panic!("two") };
        assert_eq!((sparse.id, sparse.priority, bulk.priority), (sparse_id(3), 0, 1));
        assert_eq!([sparse.rate, sparse.ceiling, bulk.rate, bulk.ceiling], [UNCAPPED; 4]);
    }
}
