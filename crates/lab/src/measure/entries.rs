//! Figures of single entries of traffic, and of the hosts that send.

use super::{Transferred, Window, retransmits, rtt};
use crate::series::labels;
use crate::spec::LabSpec;
use std::collections::BTreeMap;
use vmcc_metrics::{Extra, stats};

pub(super) fn extras(
    spec: &LabSpec,
    window: Window,
    transfers: &[Transferred<'_>],
) -> BTreeMap<String, Extra> {
    let mut extra = BTreeMap::new();
    for label in labels(spec) {
        let of_entry = || transfers.iter().filter(|transfer| transfer.flow.label == label);
        let mut put = |metric: &str, value: Option<Extra>| {
            extra.extend(value.map(|value| (format!("traffic.{label}.{metric}"), value)));
        };
        put("goodput_bps", Some(Extra::Number(of_entry().map(|t| rate(window, t)).sum())));
        let again: u64 = of_entry().map(|t| t.counter(retransmits)).sum();
        put("retransmits", Some(Extra::Number(again as f64)));
        let tracks = of_entry().flat_map(|t| t.tracks.iter().copied());
        put("rtt_us", rtt(window, tracks).map(Extra::Dist));
    }
    let mut tenants = BTreeMap::new();
    for transfer in transfers {
        *tenants.entry(transfer.flow.from).or_insert(0.0) += rate(window, transfer);
    }
    let jain = stats::jain(&tenants.into_values().collect::<Vec<f64>>());
    extra.extend(jain.map(|jain| ("tenant_jain".to_owned(), Extra::Number(jain))));
    extra
}

/// Over the flow's own time within the window.
fn rate(window: Window, transfer: &Transferred<'_>) -> f64 {
    window.active(transfer.flow).bps(transfer.bytes_within(window))
}
