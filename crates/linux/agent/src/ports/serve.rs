//! Serving a port, or changing how it is served.

use crate::{Error, needs_root};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vmcc_port::{Backend, PortConfig, PortStats};
use vmcc_port::{Port, PortError};

/// Interval at which [`Served::hold`] checks whether to stop, and whether its port is gone.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A port that is served. Dropped, it is no longer; [`Served::keep`] leaves it served.
pub struct Served {
    port: Port,
    /// Settings, with those that the configuration leaves to the port.
    pub settings: PortConfig,
    /// Its counters right after it was set.
    pub stats: PortStats,
    /// Reason for the choice of this backend.
    pub backend_reason: String,
    /// Changes, if the port was served before.
    pub changed: Option<Changed>,
}

/// Result of a change of a served port.
#[derive(Debug, Default)]
pub struct Changed {
    /// Classes that it had and has no longer.
    pub removed_classes: Vec<String>,
    /// Packets that waited in them and did not leave in time.
    pub dropped_packets: u64,
}

/// Serves a port, or changes how it is served. With `held` the caller means to end that with its process, which a port
/// that stays served refuses.
///
/// # Errors
/// The settings are wrong, or this port or kernel cannot have them. What was served before goes on as it was.
pub fn serve(name: &str, config: &PortConfig, held: bool) -> Result<Served, Error> {
    needs_root(format!("port {name}: serving it needs root"))?;
    match Port::attach(name, config) {
        Ok(port) => {
            let (settings, stats) = (port.with_defaults(config)?, port.stats()?);
            Ok(Served::new(port, settings, stats, None))
        }
        Err(PortError::AlreadyAttached { .. }) => change(name, config, held),
        Err(error) => Err(error.into()),
    }
}

/// Goes on with a port that is served and that nobody holds.
fn change(name: &str, config: &PortConfig, held: bool) -> Result<Served, Error> {
    let mut port = Port::adopt(name)?;
    if held && port.is_kept() {
        port.keep();
        return Err(Error::StaysServed { port: name.to_owned() });
    }
    // Only to name those that go; that they cannot be read shows below.
    let before = port.stats().map_or_else(|_| Vec::new(), |stats| stats.classes);
    let before: Vec<String> = before.into_iter().map(|class| class.name).collect();
    // Whatever fails from here on: it goes on as before, or as it is set now. Dropped, it would end, and others may
    // rely on it.
    let set = port
        .reconfigure(config)
        .and_then(|dropped| Ok((dropped, port.with_defaults(config)?, port.stats()?)));
    match set {
        Ok((dropped_packets, settings, stats)) => {
            let changed = Changed { removed_classes: removed(&before, &stats), dropped_packets };
            Ok(Served::new(port, settings, stats, Some(changed)))
        }
        Err(error) => {
            port.keep();
            Err(error.into())
        }
    }
}

/// The classes that a port had before and has no longer.
fn removed(before: &[String], now: &PortStats) -> Vec<String> {
    let gone = |name: &&String| now.classes.iter().all(|class| class.name != **name);
    before.iter().filter(gone).cloned().collect()
}

impl Served {
    fn new(port: Port, settings: PortConfig, stats: PortStats, changed: Option<Changed>) -> Self {
        let backend_reason = backend_reason(&settings, stats.backend);
        Self { port, settings, stats, backend_reason, changed }
    }

    /// Leaves it served when this process ends.
    pub fn keep(self) {
        self.port.keep();
    }

    /// Serves it until `stop` is set, then ends that and returns its last counters. Calls `look` several times a second.
    ///
    /// # Errors
    /// The port goes away, or what was there before cannot be put back.
    pub fn hold(self, stop: &AtomicBool, look: &mut dyn FnMut(&Port)) -> Result<PortStats, Error> {
        let name = self.port.name().to_owned();
        let index = nix::net::if_::if_nametoindex(name.as_str());
        while !stop.load(Ordering::SeqCst) {
            // Not just any port of this name: it may come back as another one.
            if index.is_err() || nix::net::if_::if_nametoindex(name.as_str()) != index {
                drop(self.port);
                let _ = vmcc_port::forget_gone();
                return Err(Error::PortGone { port: name });
            }
            look(&self.port);
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(self.port.detach()?)
    }
}

/// Reason for the choice of this backend.
fn backend_reason(config: &PortConfig, chosen: Backend) -> String {
    match (config.backend, chosen) {
        (_, Backend::Auto) => "no rate and one class: the queue that is there stays".to_owned(),
        (Backend::Auto, Backend::Bpf) => "the best that loads".to_owned(),
        (Backend::Auto, Backend::Htb) => match vmcc_port::usable(Backend::Bpf) {
            Err(reason) => format!("bpf: {reason}"),
            Ok(()) => "what suits these settings".to_owned(),
        },
        _ => "as asked".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmcc_port::ClassStats;

    #[test]
    fn removed_classes_are_those_absent_now() {
        let class = |name: &str| ClassStats { name: name.into(), ..ClassStats::default() };
        let now = PortStats { classes: vec![class("a"), class("c")], ..PortStats::default() };
        let before = ["a", "b", "d"].map(str::to_owned);
        assert_eq!(removed(&before, &now), ["b", "d"]);
    }
}
