//! Servers in the machine: programs that listen and hold what others fetch, until the lab reports that all clients are done.

use super::exchange::held_file;
use crate::Error;
use crate::guest::take;
use crate::registry::Record;
use crate::spec::{LabSpec, server_port};
use crate::topology::Topology;
use crate::workload::{self, End, Programs};
use std::fs;
use std::path::Path;

/// The programs of flows that are fetched from this host.
pub(super) struct Serving {
    /// With the labels of their traffic.
    servers: Vec<(String, End)>,
    over: bool,
}

impl Serving {
    /// Starts them, and leaves for the lab what their clients compare with. Their namespaces have the flows' congestion control by now.
    pub(super) fn begin(
        (spec, host): (&LabSpec, usize),
        programs: &Programs,
        topology: &Topology,
        record: &mut Record,
        (directory, number): (&Path, u32),
    ) -> Result<Self, Error> {
        let mut servers = Vec::new();
        for (index, flow) in spec.flows.iter().enumerate().filter(|(_, flow)| flow.server() == host) {
            let workload = workload::of(flow, programs);
            let server = workload.serve(topology.ends(index).0, server_port(index), record)?;
            if let Some(data) = workload.data(&server) {
                let copy = directory.join(held_file(number, index));
                fs::copy(&data, &copy).map_err(|e| Error::file(copy, e))?;
            }
            servers.push((flow.label.clone(), server));
        }
        Ok(Self { over: servers.is_empty(), servers })
    }

    /// True if no client fetches any more.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Looks whether the lab has said so, and whether all are still there.
    pub(super) fn look(&mut self, directory: &Path, number: u32) -> Result<(), Error> {
        if self.over || take::<()>(directory, &format!("{number}.over")).is_some() {
            self.over = true;
            return Ok(());
        }
        for (label, server) in &mut self.servers {
            if let Some(ended) = server.output()? {
                let cause = format!("what listens has ended: {} [{}]", ended.stderr, ended.status);
                return Err(Error::Measurement {
                    what: format!("traffic {label}"),
                    cause,
                    remedy: super::sending::LOOK_AT.to_owned(),
                });
            }
        }
        Ok(())
    }
}
