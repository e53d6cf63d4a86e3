//! Linux's hierarchical token bucket: a class per service queue below one for the port, a FIFO in each.
//!
//! ```text
//! c0de:            root; what the tc program has not classified goes to the last class, by a filter: HTB's own default
//! │                cannot change, so that is class 0, which always exists
//! └ c0de:1         the port: rate = ceil = its rate
//!   ├ c0de:10      class 0: rate = its guarantee, ceil = its ceiling, quantum = its weight, in trains
//!   │ └ FIFO       found by the tc program by its handle (kernel/shared/port_shared.h)
//!   └ c0de:11 ...
//! ```
//!
//! With priority for sparse flows a class has bands, those of an HTB queue of its own: a second class at the root would
//! overtake the weights of the others.
//!
//! ```text
//! c0de:10
//! └ HTB          neither band has a limit
//!   ├ :1         sparse flows, served first
//!   │ └ FIFO
//!   └ :2         all others
//!     └ FIFO     found by the tc program
//! ```

mod bands;
mod draining;

use super::Queues;
use crate::Backend;
use crate::plan::{ClassPlan, NO_RIGHT, Plan};
use crate::serve::device::{Device, OUR_HANDLE};
use crate::serve::error::PortError;
use crate::serve::program::config::ClassIds;
use crate::serve::program::{Program, Source};
use crate::serve::statistics::{QueueCounters, Removed};
use crate::serve::wait::{self, Waited};
use bands::{band_classes, bulk_id, bulk_parent, sparse_id};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use vmcc_bpf::shared::port::{PORT_LEAF_FIRST, PORT_ROOT_FIRST};
use vmcc_netlink::{Counters, HtbClass, QueueInfo, os_code};
use vmcc_units::{BitsPerSec, Limit};

const KIND: &str = "htb";
const ROOT_HANDLE: u32 = OUR_HANDLE;
const PORT_CLASS: u32 = ROOT_HANDLE | 1;
const FIRST_CLASS: u32 = ROOT_HANDLE | PORT_ROOT_FIRST;
/// Inverse of `PORT_LEAF_FACTOR` of kernel/shared/port_shared.h, modulo 2^16.
const LEAF_STEP: u32 = 0x4377;
/// Burst of a class, in microseconds at its rate; at least two frames. Timers on a busy machine are
/// late by some tenths of a millisecond; a bucket that is full before its timer fires loses capacity.
const BURST_US: u64 = 2_000;
/// HTB sends a packet per turn at least, however long: turns are fair only if they are no shorter than packets. TCP
/// makes trains of packets that the device segments below the queue: of about a millisecond at the connection's pace,
/// and where it is alone in its class those of this long at the port's rate; two segments at least, 64 kB at most.
/// But a queue that marks above less than its turn is empty before its turn ends, and then it loses the rest: no turn is
/// longer than half of what its queue may hold unmarked.
const TRAIN_US: u64 = 500;
const MAX_TRAIN_BYTES: u64 = 65_536;
/// "No cap", for emptying queues.
const UNCAPPED: BitsPerSec = BitsPerSec::new(1_000_000_000_000);
/// In milliseconds.
const MAX_DRAIN_POLLS: u32 = 2_000;

/// HTB on one port.
#[derive(Debug)]
pub(crate) struct Htb;

fn class_id(class: usize) -> u32 {
    FIRST_CLASS + u32::try_from(class).unwrap_or(0)
}

/// Handle of a class's queue of the kind whose first one has this product.
fn handle(first_product: u32, class: usize) -> u32 {
    let product = first_product + u32::try_from(class).unwrap_or(0);
    ((product * LEAF_STEP) & 0xffff) << 16
}

fn leaf_handle(class: usize) -> u32 {
    handle(PORT_LEAF_FIRST, class)
}

fn burst(rate: BitsPerSec, frame_bytes: u64) -> u64 {
    (rate.bytes_per_sec() / 1_000_000 * BURST_US).max(2 * frame_bytes)
}

/// By how much turns are longer than the plan's quanta.
fn turn_factor(plan: &Plan) -> u32 {
    // Frames of the loopback device are longer than a train gets.
    let train = (plan.rate().bytes_per_sec() / 1_000 * TRAIN_US / 1_000)
        .min(MAX_TRAIN_BYTES)
        .max(2 * plan.frame_bytes);
    let least = plan.classes.iter().map(|class| class.quantum_bytes).min().unwrap_or(1).max(1);
    let unmarked = plan.classes.iter().filter_map(|class| {
        plan.min_threshold_bytes(class).map(|bytes| bytes / 2 / u64::from(class.quantum_bytes.max(1)))
    });
    let most = unmarked.min().unwrap_or(u64::MAX).max(1);
    u32::try_from(train.div_ceil(least.into()).min(most)).unwrap_or(1)
}

fn port_class(rate: BitsPerSec, plan: &Plan) -> HtbClass {
    HtbClass {
        id: PORT_CLASS,
        parent: ROOT_HANDLE,
        rate,
        ceiling: rate,
        burst_bytes: burst(rate, plan.frame_bytes),
        ceil_burst_bytes: burst(rate, plan.frame_bytes),
        quantum_bytes: u32::try_from(plan.frame_bytes).unwrap_or(u32::MAX),
        priority: 0,
    }
}

fn service_class(index: usize, class: &ClassPlan, plan: &Plan) -> HtbClass {
    // HTB serves rights before turns. A late timer makes a class lose some of its right, but nobody loses a turn: so
    // without guarantees everything is lent by the port's class, in turns.
    let right = if plan.guarantees { class.right } else { class.right.min(NO_RIGHT) };
    HtbClass {
        id: class_id(index),
        parent: PORT_CLASS,
        rate: right,
        ceiling: class.ceiling,
        burst_bytes: burst(right, plan.frame_bytes),
        ceil_burst_bytes: burst(class.ceiling, plan.frame_bytes),
        quantum_bytes: class.quantum_bytes.saturating_mul(turn_factor(plan)),
        priority: class.priority,
    }
}

/// A service class without limits.
fn open_class(index: usize, class: &ClassPlan, plan: &Plan) -> HtbClass {
    HtbClass { rate: UNCAPPED, ceiling: UNCAPPED, ..service_class(index, class, plan) }
}

impl Htb {
    fn build(dev: &mut Device, plan: &Plan, program: &Program) -> Result<(), PortError> {
        let made = dev.tc.add_htb(dev.index, ROOT_HANDLE, FIRST_CLASS & 0xffff);
        made.map_err(|e| match os_code(&e) {
            Some(nix::libc::ENOENT) => PortError::Feature {
                port: dev.name.clone(),
                feature: "shape by HTB".to_owned(),
                cause: e.to_string(),
                remedy: "modprobe sch_htb, or boot a kernel with CONFIG_NET_SCH_HTB".to_owned(),
            },
            _ => PortError::kernel(&dev.name, "make HTB its root queue", e),
        })?;
        // A class comes with a queue that its FIFO replaces: nothing may wait in it then, so rates come last.
        Self::set(dev, &port_class(UNCAPPED, plan))?;
        for (index, class) in plan.classes.iter().enumerate() {
            Self::set(dev, &open_class(index, class, plan))?;
            Self::add_queue(dev, index, class, plan)?;
        }
        for (index, class) in plan.classes.iter().enumerate() {
            Self::set(dev, &service_class(index, class, plan))?;
        }
        Self::fall_back(dev, plan, program)?;
        Self::set(dev, &port_class(plan.rate(), plan))
    }

    /// Packets that the port's program has not seen, because somebody's filter let them pass before it, go to the last
    /// class too; those of sparse flows to the class that has their band.
    fn fall_back(dev: &mut Device, plan: &Plan, program: &Program) -> Result<(), PortError> {
        let last = class_id(plan.classes.len().saturating_sub(1));
        let filter = plan.sparse.then(|| bands::load_filter(program)).transpose()?;
        let chosen = filter.as_ref().and_then(|object| object.progs().next());
        let set = dev.tc.set_htb_fallback(dev.index, ROOT_HANDLE, last, chosen.as_ref().map(AsFd::as_fd));
        set.map_err(|e| PortError::kernel(&dev.name, "send what has no class to the last one", e))
    }

    /// With one class there is no other way to go.
    fn fallback_differs(dev: &mut Device, plan: &Plan) -> Result<Option<String>, PortError> {
        let last = plan.classes.len().saturating_sub(1);
        let found = dev.tc.htb_fallback(dev.index, ROOT_HANDLE);
        let found = found.map_err(|e| PortError::kernel(&dev.name, "read the filter of its queue", e))?;
        let differs = last > 0 && found != Some(class_id(last));
        Ok(differs.then(|| {
            "the filter of its HTB queue is gone, or another one: what somebody's own filter let pass before the port's \
             program joins the first class instead of the last, and so do packets of sparse flows"
                .to_owned()
        }))
    }

    fn set(dev: &mut Device, class: &HtbClass) -> Result<(), PortError> {
        let set = dev.tc.set_htb_class(dev.index, class);
        set.map_err(|e| PortError::kernel(&dev.name, format!("set HTB class {:x}", class.id & 0xffff), e))
    }

    fn add(dev: &mut Device, index: usize, class: &ClassPlan, plan: &Plan) -> Result<(), PortError> {
        Self::set(dev, &service_class(index, class, plan))?;
        Self::add_queue(dev, index, class, plan)
    }

    fn add_queue(dev: &mut Device, index: usize, class: &ClassPlan, plan: &Plan) -> Result<(), PortError> {
        if plan.sparse {
            Self::add_bands(dev, index, class, plan)?;
        }
        Self::add_fifo(dev, bulk_parent(index, plan), leaf_handle(index), class)
    }

    fn add_fifo(dev: &mut Device, parent: u32, handle: u32, class: &ClassPlan) -> Result<(), PortError> {
        let added = dev.tc.add_fifo(dev.index, parent, handle, class.limit);
        added.map_err(|e| PortError::kernel(&dev.name, format!("make the queue of class {}", class.name), e))
    }

    fn change_fifo(dev: &mut Device, parent: u32, handle: u32, class: &ClassPlan) -> Result<(), PortError> {
        let changed = dev.tc.change_fifo(dev.index, parent, handle, class.limit);
        changed.map_err(|e| PortError::kernel(&dev.name, format!("change the buffer of {}", class.name), e))
    }

    /// Waits until the queues of these classes are empty.
    fn drain(dev: &mut Device, classes: &[usize]) -> Result<Waited, PortError> {
        wait::until(MAX_DRAIN_POLLS, || {
            let queues = Self::leaves(dev)?;
            Ok(classes.iter().all(|index| counters(&queues, *index).backlog_pkt == 0))
        })
    }

    fn leaves(dev: &mut Device) -> Result<Vec<QueueInfo>, PortError> {
        let queues = dev.tc.queues(dev.index);
        queues.map_err(|e| PortError::kernel(&dev.name, "read its queues", e))
    }

    /// Counters of the queues at these places.
    fn queue_counters(dev: &mut Device, places: Range<usize>) -> Result<Vec<QueueCounters>, PortError> {
        let queues = Self::leaves(dev)?;
        let classes = dev
            .tc
            .classes(dev.index)
            .map_err(|e: io::Error| PortError::kernel(&dev.name, "read its classes", e))?;
        let of_place = |place: usize| {
            let queue = counters(&queues, place);
            let class = classes.iter().find(|c| c.handle == class_id(place));
            let class_drops = class.map_or(0, |c| c.counters.drops);
            QueueCounters {
                backlog_bytes: queue.backlog_bytes,
                backlog_packets: queue.backlog_pkt,
                drops_full: queue.drops,
                drops_other: class_drops.saturating_sub(queue.drops),
            }
        };
        Ok(places.map(of_place).collect())
    }

    /// Lets everything through, so that what waits leaves at once.
    fn open_up(dev: &mut Device, plan: &Plan) -> Result<(), PortError> {
        for (index, class) in plan.classes.iter().enumerate() {
            Self::set(dev, &open_class(index, class, plan))?;
        }
        Self::set(dev, &port_class(UNCAPPED, plan))
    }
}

/// The FIFOs of a class.
fn fifos(queues: &[QueueInfo], class: usize) -> impl Iterator<Item = &QueueInfo> {
    let handles = [leaf_handle(class), bands::sparse_handle(class)];
    queues.iter().filter(move |queue| handles.contains(&queue.handle))
}

/// Counters of a class's FIFOs together.
fn counters(queues: &[QueueInfo], class: usize) -> Counters {
    fifos(queues, class).fold(Counters::default(), |sum, queue| sum.combined(queue.counters))
}

/// A FIFO of bytes cannot become one of packets. Checked for all classes before anything changes.
fn same_units(port: &str, old: &Plan, new: &Plan) -> Result<(), PortError> {
    let in_bytes = |class: &ClassPlan| matches!(class.limit, Limit::Bytes(_));
    let mut both = old.classes.iter().zip(&new.classes);
    let Some((before, after)) = both.find(|(a, b)| in_bytes(a) != in_bytes(b)) else { return Ok(()) };
    let problem = format!(
        "the unit of a buffer (bytes or packets) cannot change while the port is served; that of class `{}` is {} now",
        before.name, before.limit
    );
    let error = PortError::config(port, &after.limit_key, problem);
    Err(error.help("keep the unit, or `vmcc unmark` the port and mark it again"))
}

impl Queues for Htb {
    fn kind(&self) -> Backend {
        Backend::Htb
    }

    fn source(&self) -> Source {
        Source::Leaf
    }

    fn ids(&self, class: usize) -> ClassIds {
        ClassIds { own: class_id(class), sparse: sparse_id(class), placed: bulk_id(class) }
    }

    fn can_change(&self, old: &Plan, new: &Plan) -> bool {
        old.sparse == new.sparse
    }

    fn install(&mut self, dev: &mut Device, plan: &Plan, program: &Program) -> Result<(), PortError> {
        let built = Self::build(dev, plan, program);
        if built.is_err() {
            // The first error tells more than one about undoing it.
            let _ = dev.restore();
        }
        built
    }

    fn change(
        &mut self,
        dev: &mut Device,
        program: &Program,
        old: &Plan,
        new: &Plan,
        switch: &mut dyn FnMut() -> Result<(), PortError>,
    ) -> Result<Vec<Removed>, PortError> {
        same_units(&dev.name, old, new)?;
        let leaving = draining::places(old, new);
        for (index, after) in new.classes.iter().enumerate().take(old.classes.len()) {
            Self::set(dev, &service_class(index, after, new))?;
            Self::change_fifo(dev, bulk_parent(index, new), leaf_handle(index), after)?;
            if new.sparse {
                Self::change_fifo(dev, sparse_id(index), bands::sparse_handle(index), after)?;
            }
        }
        for (index, class) in new.classes.iter().enumerate().skip(old.classes.len()) {
            Self::add(dev, index, class, new)?;
        }
        Self::set(dev, &port_class(new.rate(), new))?;
        Self::fall_back(dev, new, program)?;
        if leaving.is_empty() {
            return switch().map(|()| Vec::new());
        }
        for index in leaving.clone() {
            Self::set(dev, &draining::opened(index, old, new))?;
        }
        for index in 0..new.classes.len() {
            Self::set(dev, &draining::making_room(index, old, new))?;
        }
        switch()?;
        let removed = Self::remove_classes(dev, leaving);
        for (index, class) in new.classes.iter().enumerate() {
            Self::set(dev, &service_class(index, class, new))?;
        }
        removed
    }

    fn remove(&mut self, dev: &mut Device, plan: &Plan) -> Result<(), PortError> {
        if !dev.has_our_queues()? {
            return dev.restore_missing();
        }
        Self::open_up(dev, plan)?;
        // What will not leave goes with the queues.
        let (Waited::Done | Waited::GivenUp) =
            Self::drain(dev, &(0..plan.classes.len()).collect::<Vec<_>>())?;
        dev.restore()
    }

    fn differs(&self, dev: &mut Device, plan: &Plan) -> Result<Option<String>, PortError> {
        if !dev.root()?.is_some_and(|root| root.handle == ROOT_HANDLE && root.kind == KIND) {
            return dev.other_root().map(Some);
        }
        let queues = Self::leaves(dev)?;
        let classes = dev.tc.classes(dev.index);
        let classes = classes.map_err(|e| PortError::kernel(&dev.name, "read its classes", e))?;
        let rates = |wanted: &HtbClass| {
            let found = classes.iter().find(|class| class.handle == wanted.id)?;
            vmcc_netlink::htb_rates(&found.options)
        };
        // The kernel keeps bytes per second.
        let in_bytes =
            |rate: BitsPerSec, ceiling: BitsPerSec| (rate.bytes_per_sec(), ceiling.bytes_per_sec());
        let as_set = |wanted: &HtbClass| {
            rates(wanted).is_some_and(|(rate, ceiling)| {
                in_bytes(rate, ceiling) == in_bytes(wanted.rate, wanted.ceiling)
            })
        };
        if !as_set(&port_class(plan.rate(), plan)) {
            return Ok(Some("the rate of its HTB queue is another one than was set".to_owned()));
        }
        let other = plan.classes.iter().enumerate().find(|(index, class)| {
            let bands = band_classes(*index, plan);
            fifos(&queues, *index).count() != bands.len().max(1)
                || !as_set(&service_class(*index, class, plan))
                || !bands.iter().all(as_set)
        });
        if let Some((_, class)) = other {
            return Ok(Some(format!("the HTB class of `{}` is gone, or not as it was set", class.name)));
        }
        Self::fallback_differs(dev, plan)
    }

    fn counters(&self, dev: &mut Device, plan: &Plan) -> Result<Vec<QueueCounters>, PortError> {
        Self::queue_counters(dev, 0..plan.classes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::resolved;
    use vmcc_bpf::shared::port::{PORT_BANDS_FIRST, PORT_LEAF_BUCKET, PORT_LEAF_FACTOR, PORT_SPARSE_FIRST};

    #[test]
    fn handles_match_the_programs() {
        for class in 0..8 {
            for first in [PORT_LEAF_FIRST, PORT_BANDS_FIRST, PORT_SPARSE_FIRST] {
                let handle = handle(first, class);
                let product = ((handle >> 16) * PORT_LEAF_FACTOR) & 0xffff;
                assert_eq!(product, first + u32::try_from(class).unwrap());
                let bucket = handle.wrapping_mul(0x61C8_8647) >> 28;
                assert_eq!(bucket == PORT_LEAF_BUCKET, first == PORT_LEAF_FIRST, "{handle:x}");
                assert_ne!(handle, ROOT_HANDLE);
            }
        }
    }

    #[test]
    fn quanta_cover_a_train_but_stay_below_the_mark_threshold() {
        let factor = |marking: &str| {
            let text = format!(
                "rate = '100mbit'\nqueue = 'drr'\nmarking = {marking}\n[[class]]\nname = 'a'\nweight = 4\n[[class]]\nname = \
                 'b'\nweight = 2\n[[class]]\nname = 'c'"
            );
            turn_factor(&resolved(&text, 1500))
        };
        // Half a millisecond at 12.5 MB/s is 6250 bytes.
        assert_eq!(factor("{ rule = 'none' }"), 5);
        assert_eq!(factor("{ rule = 'mq-ecn' }"), 5, "nothing is known of the RTT yet");
        // 50 kB for 7 quanta of a frame: two for half of that.
        assert_eq!(factor("{ rule = 'mq-ecn', rtt = '4ms' }"), 2);
        assert_eq!(factor("{ rule = 'tcn', rtt = '1ms' }"), 1, "never below a frame");
        assert_eq!(factor("{ rule = 'threshold', at = '30kB' }"), 2);
    }

    #[test]
    fn quantum_covers_a_frame_longer_than_a_train() {
        assert_eq!(turn_factor(&resolved("rate = '1gbit'", 65_536)), 2);
    }

    #[test]
    fn buffer_keeps_its_unit() {
        let plan = |text: &str| resolved(text, 1500);
        let before = plan("rate = '1mbit'\n[[class]]\nname = 'a'\nbuffer = '9kB'");
        let error =
            same_units("p0", &before, &plan("rate = '1mbit'\nbuffer = '100pkt'")).unwrap_err().to_string();
        assert!(error.contains("`buffer`") && error.contains("class `a` is 9kB"), "{error}");
        let other = plan("rate = '1mbit'\n[[class]]\nname = 'a'\nbuffer = '100pkt'");
        let error = same_units("p0", &before, &other).unwrap_err().to_string();
        assert!(error.contains("`class[0].buffer`"), "{error}");
        same_units("p0", &before, &plan("rate = '1mbit'\nbuffer = '100kB'")).unwrap();
    }

    #[test]
    fn burst_is_two_milliseconds_or_two_frames() {
        assert_eq!(burst(BitsPerSec::new(1_000_000_000), 1514), 250_000);
        assert_eq!(burst(BitsPerSec::new(10_000_000), 1514), 3028);
        assert_eq!(burst(BitsPerSec::new(100_000_000), 1514), 24_000);
    }
}
