//! How a port is not as it was set: the kernel is looked at, as others may have changed it since.

use super::error::PortError;
use super::half;
use super::program;
use super::record;
use super::served::Served;
use super::site::Site;
use super::{budget, signed};
use std::sync::PoisonError;
use vmcc_port::{Backend, PortStats};

const HALF: &str =
    "a process was killed while it changed it: its queues may be neither as before nor as after that";
const NO_PROGRAM: &str = "its program is gone: nothing is put into classes, nothing is marked";
const NO_INGRESS: &str = "the program that sees what comes in is gone: RTTs are not measured";
const NO_RECORD: &str =
    "what there is of vmcc's is not whole, and nothing says what it was; `vmcc unmark` removes it";

impl Served {
    /// What differs on the port itself, for people.
    pub(super) fn differences(&self) -> Result<Vec<String>, PortError> {
        if self.half {
            // Somebody is at it, or was.
            let held = record::is_held(self.site_index())?;
            return Ok(if held { Vec::new() } else { vec![HALF.to_owned()] });
        }
        let mut site = self.site.lock().unwrap_or_else(PoisonError::into_inner);
        let mut differences = Vec::from_iter(self.queues.differs(&mut site, &self.plan)?);
        // ACKs come in at the ports of a budget, not at its device.
        let measures = self.plan.measures_rtt() && !budget::is_bucket(&self.name);
        if measures && !program::measures(self.index) {
            differences.push(NO_INGRESS.to_owned());
        }
        Ok(differences)
    }
}

/// A port that something of ours is on, or should be, and that is not served as a whole.
pub(super) fn damaged(port: &str) -> Result<PortStats, PortError> {
    let mut site = Site::open(port)?;
    let none = || PortError::NotAttached { port: port.to_owned() };
    if record::is_held(site.index)? {
        // Somebody is about to serve it, or to end that.
        return Err(none());
    }
    let (content, _) = half::peek(&mut site)?;
    let difference = match content {
        Some(content) if content.half => HALF.to_owned(),
        Some(content) => match content.member {
            Some(member) => budget::differs(&mut site, &member.vm)?,
            None if content.queues && !site.has_our_queues()? => {
                format!("{NO_PROGRAM}; so are its queues: nothing caps it")
            }
            None => NO_PROGRAM.to_owned(),
        },
        None if half::has_ours(&mut site)? => NO_RECORD.to_owned(),
        None => return Err(none()),
    };
    Ok(PortStats {
        port: port.to_owned(),
        backend: Backend::Auto,
        differences: vec![difference],
        ..PortStats::default()
    })
}

/// The ports of the calling thread's network namespace that something of ours is on, or should be, by number.
pub(super) fn ours() -> Result<Vec<u32>, PortError> {
    let failed = |e| PortError::kernel("", "list ports", e);
    let mut tc = vmcc_netlink::TrafficControl::open().map_err(failed)?;
    let mut found = record::recorded()?;
    found.extend(tc.ports_with_root(super::site::OUR_HANDLE).map_err(failed)?);
    for link in vmcc_netlink::Links::open().and_then(|mut links| links.list()).map_err(failed)? {
        let index = signed(link.index);
        let programs = || program::is_attached(index) || program::measures(index);
        if found.contains(&link.index) || programs() || budget::has_redirect(&mut tc, link.index) {
            found.push(link.index);
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}
