//! `kernel/shared/shared.h`: a loaded algorithm, its tables and events, and a recorded step.

use super::{shared_constants, shared_structs};
use vmcc_cc::{Event, Group, Host, MAX_PARAMS, MAX_PATHS, Sharing};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

const NAME_BYTES: usize = 16;
/// `members` of an entry that is being deleted.
pub(crate) const MP_GROUP_DEAD: u64 = u64::MAX;

shared_constants! {
    "mp_count" {
        MP_COUNT_ECE = 1,
        MP_COUNT_LOSS = 2,
        MP_COUNT_RTO = 3,
        MP_COUNT_NO_ECN = 4,
        MP_COUNT_MENDED = 5,
        MP_COUNTERS = 8,
    }
    "mp_ops_macros" {
        MP_OPS_FLAGS = 80,
        TCP_CONG_NEEDS_ACCECN = 4,
    }
}

shared_structs! {
    /// Parameters in the order and fixed point of the registry.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct RawParams as "cc_params" {
        v: [u64; MAX_PARAMS],
    }

    /// One per loaded algorithm: parameters, and who registered it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Config as "mp_config" {
        interface_version: u32,
        /// 0: it outlives its process.
        owner_pid: u32,
        ops_map_id: u32,
        groups_map_id: u32,
        events_map_id: u32,
        counters_map_id: u32,
        build: u64,
        name: [u8; NAME_BYTES],
        params: RawParams,
        accounts_map_id: u32,
        account_connections: u32,
        owner_start: u32,
        initial_netns: u32,
    }

    /// Shared resources in use by one user or namespace.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Account as "mp_account" {
        connections: u64,
        uncoupled: u64,
        second: u64,
        requests: u64,
        requests_lost: u64,
        beyond: u64,
    }

    /// By `MP_COUNT_...`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Counts as "mp_counters" {
        count: [u64; MP_COUNTERS as usize],
    }

    /// The paths of one connection.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct GroupEntry as "mp_group" {
        group: Group,
        members: u64,
        token: u32,
        netns: u32,
        account: u64,
        made_ns: u64,
        socket: [u64; MAX_PATHS],
    }

    /// The same of an algorithm that detects.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct WatchedEntry as "mp_watched_group" {
        group: GroupEntry,
        sharing: Sharing,
        several: u32,
    }

    /// The two ends of a path, ports in host byte order.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Ends as "mp_ends" {
        family: u16,
        local_port: u16,
        remote_port: u16,
        reserved: u16,
        local_addr: [u8; 16],
        remote_addr: [u8; 16],
    }

    /// An algorithm decided to close a path.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct CloseEvent as "mp_close_event" {
        time_ns: u64,
        cookie: u64,
        bytes_acked: u64,
        token: u32,
        netns: u32,
        interface: u32,
        slot: u16,
        peer: u16,
        ends: Ends,
        peer_ends: Ends,
    }

    /// One step of a recorded trace: in, and out.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
    struct ReplayStep as "replay_step" {
        event: Event,
        host: Host,
        group: Group,
        params: RawParams,
        begin: u32,
        has_group: u32,
    }
}

impl Config {
    /// The value of the map; `None` if it is none of ours.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let config = Self::read_from_bytes(bytes).ok()?;
        config.checked_name().is_some().then_some(config)
    }

    /// In the kernel.
    pub(crate) fn kernel_name(&self) -> &str {
        self.checked_name().unwrap_or_default()
    }

    fn checked_name(&self) -> Option<&str> {
        let end = self.name.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&self.name[..end]).ok()
    }
}

/// A name as C keeps it, cut if it must be; the last byte stays zero.
pub(crate) fn name(text: &str) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    let kept = text.len().min(NAME_BYTES - 1);
    name[..kept].copy_from_slice(&text.as_bytes()[..kept]);
    name
}
