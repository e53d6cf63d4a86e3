//! The ports of the virtual switches, served as on any host: scheduled, capped and marked by `vmcc-bpf`.

use crate::Error;
use crate::netns;
use crate::spec::{LabSpec, OfPaths};
use crate::topology::{PortPlace, Topology};
use vmcc_port::PortStats;
use vmcc_port::{Port, PortError};
use vmcc_scenario::model::Marking;

/// A port that is served. Dropping it detaches.
struct Served {
    port: Port,
    paths: OfPaths,
    marks: bool,
}

/// The ports of a run. Dropping them gives the ports back; removing their namespaces does, too.
pub(crate) struct Ports(Vec<Served>);

/// Paths and counters of a port.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PortRecord {
    pub(crate) paths: OfPaths,
    /// True if any of its rules marks.
    pub(crate) marks: bool,
    pub(crate) stats: PortStats,
}

/// Begins to serve every port of the topology.
pub(crate) fn attach(spec: &LabSpec, topology: &Topology) -> Result<Ports, Error> {
    let attach = |place: &PortPlace| {
        let attached = Port::attach_in(&netns::path_of(&place.namespace), &place.port, &place.config);
        let port = attached.map_err(|e| refused(spec, place, &e))?;
        let ports_own = place.config.marking.unwrap_or(Marking::None);
        let rules = place.config.classes.iter().map(|class| class.marking.unwrap_or(ports_own));
        let marks = ports_own != Marking::None || rules.into_iter().any(|m| m != Marking::None);
        Ok(Served { port, paths: place.paths.clone(), marks })
    };
    topology.ports().iter().map(attach).collect::<Result<_, Error>>().map(Ports)
}

impl Ports {
    /// The empty set, where there are no ports.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// Records of all ports, in the topology's order.
    pub(crate) fn records(&self) -> Result<Vec<PortRecord>, Error> {
        let record = |served: &Served| {
            let stats = served.port.stats().map_err(|e| unreadable(&e))?;
            Ok(PortRecord { paths: served.paths.clone(), marks: served.marks, stats })
        };
        self.0.iter().map(record).collect()
    }

    /// The state of one port now.
    pub(crate) fn stats(&self, index: usize) -> Result<PortStats, Error> {
        self.0[index].port.stats().map_err(|e| unreadable(&e))
    }

    /// The port that stands for a path; where none does, the first that the path has.
    pub(crate) fn first_of(&self, path: usize) -> Option<usize> {
        OfPaths::ports_of(path, self.0.iter().map(|served| &served.paths)).first().copied()
    }
}

fn unreadable(error: &PortError) -> Error {
    Error::Measurement {
        what: "reading a port's counters".to_owned(),
        cause: error.to_string(),
        remedy: "`vmcc doctor` says what this kernel lacks".to_owned(),
    }
}

fn refused(spec: &LabSpec, place: &PortPlace, error: &PortError) -> Error {
    Error::KernelFeature {
        feature: match place.paths.carries.first().map(|path| &spec.paths[*path]) {
            Some(path) => format!("the port {} of path {}", place.port, path.name),
            None => format!("the port {} in {}", place.port, place.namespace),
        },
        cause: error.to_string(),
        remedy: "`vmcc doctor` says what is missing".to_owned(),
    }
}
