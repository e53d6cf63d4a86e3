//! Exchanging a port's root queueing discipline: what leaves the port meanwhile waits elsewhere.
//!
//! The kernel takes a port's queue out of use before it puts another there (also when clsact comes or goes), and drops
//! what arrives until every CPU has noticed (`dev_deactivate`): a fraction of a millisecond on an idle machine, tens on a
//! busy one. So packets make a detour in the meantime, some ten milliseconds, through a queue that is shut, and leave
//! through the new queue. They come out on one CPU while others go on sending: a few are overtaken at the end.
//!
//! ```text
//! port ─ hold.bpf.c ────────┐                    ┌─ port, its programs, its new queue
//!                           └─ shut queue ─ veth ┘
//! ```
//!
//! The links of the programs end with this process, so one that is killed here leaves a port that works; the devices go
//! when the next that looks at the port finds them ([`remove_left`]). Held packets lose what belongs to the socket that
//! sent them: a class chosen by `skb->priority` or by cgroup does not know them, and they join the last class.
//!
//! It takes tcx (Linux 6.6) and an Ethernet port. Elsewhere the exchange loses what arrives meanwhile.

mod detour;

use super::device::{Device, is_shared_device};
use super::signed;
use super::wait::{self, Waited};
use crate::serve::tcx;
use detour::{ADDRESS, Detour};
use libbpf_rs::{Link, MapCore, Object, ObjectBuilder};
use std::convert::Infallible;
use std::io;
use vmcc_bpf::objects::{HOLD, Log};
use vmcc_bpf::shared::hold::Settings;
use vmcc_bpf::shared::{self, FIRST};
use vmcc_netlink::Counters;
use zerocopy::IntoBytes;

pub(super) use detour::remove_left;

/// Drain timeout of a queue, in milliseconds.
const MAX_POLLS: u32 = 1_000;

/// Runs `exchange` while packets that leave the port wait; its argument says whether they do. `budget` is the device that
/// they go through before or after it.
pub(super) fn during<T>(
    dev: &mut Device,
    budget: Option<u32>,
    exchange: impl FnOnce(&mut Device, bool) -> T,
) -> T {
    // The device of a budget has no ports yet, or none any more.
    if !dev.ethernet || is_shared_device(&dev.name) {
        return exchange(dev, false);
    }
    // A port that cannot be held loses what arrives in the meantime; that is no reason to refuse it.
    let hold = Hold::begin(dev, budget).ok();
    let exchanged = exchange(dev, hold.is_some());
    if let Some(hold) = hold {
        hold.end(dev);
    }
    exchanged
}

/// A port whose packets wait.
struct Hold {
    object: Object,
    detour: Detour,
    out: Link,
    back: Link,
}

impl Hold {
    fn begin(dev: &mut Device, budget: Option<u32>) -> io::Result<Self> {
        let detour = Detour::make(dev)?;
        let object = load(dev.index, &detour, budget).map_err(io::Error::other)?;
        let back = tcx::attach_first(&object, "vmcc_hold_back", signed(detour.back))?;
        detour.shut()?;
        let out = tcx::attach_first(&object, "vmcc_hold", signed(dev.index))?;
        Ok(Self { object, detour, out, back })
    }

    /// Lets everything go, first what waits and then what comes; nobody is left to tell if that fails.
    fn end(self, dev: &mut Device) {
        let Self { object, detour, out, back } = self;
        let held = queue(dev, &detour).map_or(0, |queue| queue.sent_pkt + queue.backlog_pkt);
        // Before the queue is open: what comes back before that makes another round.
        if set_open(&object).is_ok() {
            let _ = detour.open(dev);
        }
        let Ok(Waited::Done | Waited::GivenUp) =
            wait::until(MAX_POLLS, || Ok::<_, Infallible>(came_out(&object) >= held));
        drop(out);
        let Ok(Waited::Done | Waited::GivenUp) = wait::until(MAX_POLLS, || {
            let queue = queue(dev, &detour);
            let empty = |queue: Counters| queue.backlog_pkt == 0 && came_out(&object) >= queue.sent_pkt;
            Ok::<_, Infallible>(queue.is_none_or(empty))
        });
        drop(back);
    }
}

fn load(port: u32, detour: &Detour, budget: Option<u32>) -> libbpf_rs::Result<Object> {
    let _log = Log::start();
    let mut open = ObjectBuilder::default().name("vmcc_hold")?.open_memory(HOLD)?;
    let settings = Settings {
        port,
        device: detour.device,
        back: detour.back,
        budget: budget.unwrap_or(u32::MAX),
        address: ADDRESS,
        reserved: [0; 2],
    };
    for mut map in open.maps_mut().filter(|map| map.name().to_string_lossy().ends_with(".rodata")) {
        map.set_initial_value(settings.as_bytes())?;
    }
    open.load()
}

fn set_open(object: &Object) -> libbpf_rs::Result<()> {
    let map = object.maps().find(|map| map.name() == ".data.open").expect("the object defines it");
    shared::write(&map, FIRST, &1_u32)
}

/// Counters of the detour's queue; `None` if the kernel does not report them.
fn queue(dev: &mut Device, detour: &Detour) -> Option<Counters> {
    dev.tc.root(detour.device).ok().flatten().map(|root| root.counters)
}

/// Packets that have come out at the detour's other end; `u64::MAX` if the kernel does not report them.
fn came_out(object: &Object) -> u64 {
    let map = object.maps().find(|map| map.name() == ".data.out").expect("the object defines it");
    shared::read(&map, FIRST).ok().flatten().unwrap_or(u64::MAX)
}
