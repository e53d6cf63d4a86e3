//! ECN marking on the bottleneck ports.

use crate::measure::Marks;
use crate::netns;
use crate::spec::{FRAME_BYTES, LabSpec};
use crate::topology::{BOTTLENECK_PORT, Topology};
use crate::{Error, Path};
use vmcc_host::mark::{MarkError, Marker, Threshold};
use vmcc_units::Bytes;

/// The markers of a run: one per path, where that path marks. Dropping detaches them.
pub(crate) struct Markers(Vec<Option<Marker>>);

/// Starts marking on every path that asks for it.
pub(crate) fn attach(spec: &LabSpec, topology: &Topology) -> Result<Markers, Error> {
    let attach = |(index, path): (usize, &Path)| {
        let Some(threshold) = path.marking else { return Ok(None) };
        let bytes = threshold.bytes(path.rate, Bytes::new(FRAME_BYTES)).ok_or_else(|| {
            Error::spec(format!("topology.paths[{}].marking", path.name), format!("{threshold} is too large"))
        })?;
        let namespace = topology.middle(index).name();
        let attached =
            Marker::attach_in(&netns::path_of(namespace), BOTTLENECK_PORT, Threshold::Bytes(bytes.get()));
        attached.map(Some).map_err(|e| refused(path, &e))
    };
    spec.paths.iter().enumerate().map(attach).collect::<Result<_, _>>().map(Markers)
}

impl Markers {
    /// What each marker did, by path.
    pub(crate) fn counts(&self) -> Result<Vec<Option<Marks>>, Error> {
        let count = |marker: &Option<Marker>| {
            let Some(marker) = marker else { return Ok(None) };
            let counters = marker.counters().map_err(|e| Error::Measurement {
                what: "counting marks".to_owned(),
                cause: e.to_string(),
                remedy: "`vmcc doctor` says what this kernel lacks".to_owned(),
            })?;
            Ok(Some(Marks { marked: counters.marked, not_ect: counters.not_ect }))
        };
        self.0.iter().map(count).collect()
    }
}

fn refused(path: &Path, error: &MarkError) -> Error {
    Error::KernelFeature {
        feature: format!("marking on path {}", path.name),
        cause: error.to_string(),
        remedy: "`vmcc doctor` says what is missing; or leave `marking` out".to_owned(),
    }
}
