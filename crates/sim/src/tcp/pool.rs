//! Connections of a host to one remote host that detect shared bottlenecks together (`vmcc_cc::Pool`).

use std::array;

use vmcc_cc::{Group, PoolMember, SHARING_PATHS, Slot, SlotFlags};

use super::config::SubflowSpec;
use super::conn::Conn;
use super::membership::Membership;
use super::subflow::{Status, Subflow};
use crate::packet::LinkId;

/// The connections between two hosts, in the direction of their data.
#[derive(Clone, Debug)]
pub(crate) struct SharedRoutes {
    /// The sender's interface on each route.
    interfaces: Vec<LinkId>,
    /// Indices of connections in the shard's table.
    pub(crate) members: Vec<u32>,
    pub(crate) state: vmcc_cc::Pool,
}

impl SharedRoutes {
    /// Adds a connection to the pool of its hosts, which is at `at`, or is made. `None`: it is not comparable with others, because
    /// two of its subflows leave through one interface, or the hosts have more interfaces than a pool has routes.
    pub(crate) fn join(
        pools: &mut Vec<SharedRoutes>,
        at: Option<u32>,
        hosts: (u32, u32),
        (conn, subflows): (u32, &[SubflowSpec]),
        secret: u64,
    ) -> Option<Membership> {
        let own: Vec<LinkId> = subflows.iter().map(|subflow| subflow.interface).collect::<Option<_>>()?;
        let distinct = (1..own.len()).all(|i| !own[..i].contains(&own[i]));
        let known = at.map_or(&[][..], |at| &pools[at as usize].interfaces);
        let new = own.iter().filter(|interface| !known.contains(interface));
        if own.len() < 2 || !distinct || known.len() + new.count() > SHARING_PATHS {
            return None;
        }
        let at = at.unwrap_or_else(|| {
            let state = vmcc_cc::Pool::new(secret ^ u64::from(hosts.0) << 32 ^ u64::from(hosts.1));
            pools.push(SharedRoutes { interfaces: Vec::new(), members: Vec::new(), state });
            (pools.len() - 1) as u32
        });
        let pool = &mut pools[at as usize];
        let mut routes = [0; SHARING_PATHS];
        for (route, interface) in routes.iter_mut().zip(own) {
            let known = pool.interfaces.iter().position(|own| *own == interface);
            *route = known.unwrap_or(pool.interfaces.len()) as u8;
            if known.is_none() {
                pool.interfaces.push(interface);
            }
        }
        pool.members.push(conn);
        Some(Membership { pool: at, routes })
    }

    /// Counts members' votes on the bins that are over, and decides; true if a route is not to be used.
    pub(crate) fn turn(&mut self, conns: &[Conn], subs: &[Subflow], now_us: u64) -> bool {
        self.members.retain(|&conn| !conns[conn as usize].finished);
        let mut rtts = [(0u64, 0u64); SHARING_PATHS];
        let voters = self.members.iter().filter_map(|&conn| {
            let conn = &conns[conn as usize];
            let (sharing, place) = (conn.sharing.as_deref()?, conn.pool.as_deref()?);
            let count = usize::from(conn.count);
            let live = |path: &usize| subs[conn.first as usize + path].status == Status::Established;
            let path: [_; SHARING_PATHS] =
                array::from_fn(|route| place.subflow_on(route, count).filter(live).map(|path| path as u8));
            for (sum, path) in rtts.iter_mut().zip(path).filter_map(|(sum, path)| Some((sum, path?))) {
                let srtt_8us = subs[conn.first as usize + usize::from(path)].rtt.srtt_8us;
                *sum = (sum.0 + u64::from(srtt_8us), sum.1 + 1);
            }
            (path.iter().flatten().count() > 1).then(|| PoolMember::new(sharing, path))
        });
        let voters: Vec<_> = voters.collect();
        let slot = |(sum, count): (u64, u64)| Slot {
            flags: SlotFlags::NONE.with(SlotFlags::ESTABLISHED, count > 0),
            srtt_8us: (sum / count.max(1)) as u32,
            ..Slot::default()
        };
        let routes: Group = rtts.map(slot).into_iter().collect();
        self.state.turn(&routes, &voters, now_us);
        (0..SHARING_PATHS).any(|route| self.state.kept(route).is_some())
    }
}
