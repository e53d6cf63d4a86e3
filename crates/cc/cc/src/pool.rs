//! Connections of a host to one remote host that detect shared bottlenecks together: `detect/pool.h`.

use crate::SHARING_PATHS;
use crate::abi::{Decision, Event, Group, Sharing};
use std::marker::PhantomData;
use std::mem::{offset_of, size_of};

/// Marks a route on which a member has no path: any number that is none of a path.
const NO_PATH: u8 = 0xff;
/// Set in [`Sharing::shift`] of a member: `CC_SHARING_POOLED`.
const POOLED: u32 = 1 << 31;

/// One route of a pool: `struct cc_pool_route`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Route {
    members: u32,
    windows_pkt: u32,
    flight_pkt: u32,
    moved_pkt: u32,
    since: u32,
    kept: u8,
    narrow: u8,
    unused: u16,
}

/// All connections between two hosts, as the detector of shared bottlenecks sees them: `struct cc_pool`.
///
/// Routes are numbered like the paths of a connection, below [`SHARING_PATHS`].
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Pool {
    secret: u64,
    sharing: Sharing,
    bin: u32,
    mixed: u32,
    active: u32,
    route: [Route; SHARING_PATHS],
}

/// A connection of a pool: `struct cc_pool_member`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PoolMember<'a> {
    sharing: *const Sharing,
    path: [u8; SHARING_PATHS],
    lent: PhantomData<&'a Sharing>,
}

impl<'a> PoolMember<'a> {
    /// A connection with the path of each route; `None` where it has none.
    pub fn new(sharing: &'a Sharing, path: [Option<u8>; SHARING_PATHS]) -> Self {
        Self { sharing, path: path.map(|path| path.unwrap_or(NO_PATH)), lent: PhantomData }
    }
}

unsafe extern "C" {
    fn vmcc_pool_vote(votes: *const u16, count: u32) -> u16;
    fn vmcc_pool_due(pool: *const Pool, now_us: u64) -> u32;
    fn vmcc_pool_turn(
        pool: *mut Pool,
        routes: *const Group,
        members: *const PoolMember<'_>,
        count: u32,
        now_us: u64,
    );
    fn vmcc_pool_on_ack(
        event: *const Event,
        group: *const Group,
        pool: *mut Pool,
        route: u32,
        own: *mut Sharing,
        decision: *mut Decision,
    );
}

impl Pool {
    /// A pool without members. The secret decides when routes probe; nobody outside the host may know it.
    pub fn new(secret: u64) -> Self {
        let route = [Route::default(); SHARING_PATHS];
        Self { secret, sharing: Sharing::default(), bin: 0, mixed: 0, active: 0, route }
    }

    /// Value of a route's bin by its members' values; 0 if fewer than three are known, that is, not 0.
    pub fn vote(votes: &[u16]) -> u16 {
        // SAFETY: the C code reads as many values as there are.
        unsafe { vmcc_pool_vote(votes.as_ptr(), u32::try_from(votes.len()).unwrap_or(u32::MAX)) }
    }

    /// True if a bin is over: [`turn`](Self::turn) has something to do.
    #[inline]
    pub fn is_due(&self, now_us: u64) -> bool {
        // SAFETY: a live reference to the layout that `pool.h` declares; it is only read.
        unsafe { vmcc_pool_due(self, now_us) > 0 }
    }

    /// Counts the members' votes on the bins that are over, and decides. `routes` has a slot for each route: established if
    /// members have live paths on it, with their mean RTT. Each member has a path on two routes or more.
    pub fn turn(&mut self, routes: &Group, members: &[PoolMember<'_>], now_us: u64) {
        let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
        // SAFETY: live references to the layouts that `cc.h` and `pool.h` declare. The C code writes only the pool and keeps no
        // pointer; members' pointers are to what they borrow.
        unsafe { vmcc_pool_turn(self, routes, members.as_ptr(), count, now_us) };
    }

    /// Sets whether this connection follows the pool's clock and trials, before its own
    /// [`detect`](crate::Algorithm::detect): it does while the pool has enough members.
    #[inline]
    pub fn lead(&self, own: &mut Sharing) {
        own.shift = if self.active != 0 { self.sharing.shift | POOLED } else { own.shift & !POOLED };
    }

    /// An ACK of a member's path on `route`, after its own [`detect`](crate::Algorithm::detect). Joins the trial that runs.
    /// Adds to its decision only where members disagree, and then by what this connection knows itself.
    #[inline]
    pub fn on_ack(
        &mut self,
        event: &Event,
        group: &Group,
        route: usize,
        own: &mut Sharing,
        decision: &mut Decision,
    ) {
        if self.active != 0 {
            // SAFETY: as in `turn`; the C code writes the pool, `own` and the decision.
            unsafe { vmcc_pool_on_ack(event, group, self, route as u32, own, decision) };
        }
    }

    /// The route that is kept instead of this one, if both share a bottleneck.
    #[inline]
    pub fn kept(&self, route: usize) -> Option<usize> {
        usize::from(self.route.get(route)?.kept).checked_sub(1)
    }

    /// Evidence and responses of the routes, like those of a connection's paths.
    pub fn evidence(&self) -> &Sharing {
        &self.sharing
    }
}

const _: () = {
    assert!(size_of::<Pool>() == 816 && offset_of!(Pool, bin) == 612 && offset_of!(Pool, route) == 624);
    assert!(size_of::<Route>() == 24 && offset_of!(Route, kept) == 20);
    assert!(size_of::<PoolMember<'_>>() == 16 && offset_of!(PoolMember<'_>, path) == 8);
};
