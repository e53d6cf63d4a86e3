//! Deliveries of connections over time.

use super::Flow;
use crate::tcp::{ConnRecord, Connections, Directory};
use crate::transport::Part;

/// By connection.
#[derive(Debug)]
pub(super) struct Delivered {
    /// Bytes delivered so far.
    bytes: Vec<u64>,
    /// Bytes that arrived on each subflow so far, one connection's after the other's.
    arrived: Vec<u64>,
    /// Bytes within the window.
    pub(super) window: Vec<u64>,
}

impl Delivered {
    pub(super) fn new(flows: &[Flow]) -> Delivered {
        let none = vec![0; flows.len()];
        let arrived = vec![0; flows.iter().map(|flow| usize::from(flow.subflows)).sum()];
        Delivered { bytes: none.clone(), arrived, window: none }
    }

    /// Books what came since the last reading.
    pub(super) fn settle(
        &mut self,
        directory: &Directory,
        (flows, paths): (&[Flow], &[Option<u32>]),
        hosts: &[&Connections],
        part: &mut Part,
    ) {
        let mut arrived = self.arrived.iter_mut();
        for (index, flow) in flows.iter().enumerate() {
            let bytes: u64 = flow.carrying().map(|id| directory.delivered_bytes(id, hosts)).sum();
            let new = bytes - std::mem::replace(&mut self.bytes[index], bytes);
            part.traffic[flow.traffic as usize] += new;
            if part.inside {
                self.window[index] += new;
            }
            let records: Vec<ConnRecord> = flow.carrying().map(|id| directory.flow(id, hosts)).collect();
            for ((subflow, path), arrived) in paths[flow.subflows()].iter().enumerate().zip(&mut arrived) {
                let of = |record: &ConnRecord| record.subflows[subflow].receiver.bytes;
                let bytes = records.iter().map(of).sum();
                let new = bytes - std::mem::replace(arrived, bytes);
                part.add_on_path(path.map(|path| path as usize), flow.competing, new);
            }
        }
    }
}
