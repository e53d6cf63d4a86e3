//! Joules of processors and memory, which Linux reads from RAPL (`/sys/class/powercap`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmcc_metrics::observed::Energy;

/// Directory of Linux's powercap zones.
pub(crate) const POWERCAP: &str = "/sys/class/powercap";
/// Zones of the registers of processors. Others show the same packages again (`intel-rapl-mmio`).
const PREFIX: &str = "intel-rapl:";
/// Counters come round after a minute at the earliest.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Reasons for which energy is not read here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnergyError {
    #[error("{root} has no zone of a processor package: no RAPL, as in most virtual machines")]
    Absent { root: PathBuf },
    #[error("{path}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path} says {text:?}, which is no number")]
    Malformed { path: PathBuf, text: String },
}

impl EnergyError {
    pub(crate) fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Absent { .. } => {
                Some("measure on a machine whose processors have RAPL: modprobe intel_rapl_msr")
            }
            Self::Unreadable { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("only root may read it")
            }
            Self::Unreadable { .. } | Self::Malformed { .. } => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Domain {
    Package,
    Dram,
}

impl Domain {
    fn of(name: &str) -> Option<Self> {
        match name {
            "dram" => Some(Self::Dram),
            package if package.starts_with("package-") => Some(Self::Package),
            // Parts of a package, and the whole platform.
            _ => None,
        }
    }
}

/// A counter that comes round after `range_uj`.
#[derive(Debug)]
struct Zone {
    domain: Domain,
    counter: PathBuf,
    range_uj: u64,
    last_uj: u64,
    used_uj: u64,
}

impl Zone {
    /// `None` for a zone that is a part of another.
    fn open(folder: &Path) -> Result<Option<Self>, EnergyError> {
        let Some(domain) = Domain::of(&text(&folder.join("name"))?) else { return Ok(None) };
        let counter = folder.join("energy_uj");
        let (range_uj, last_uj) = (number(&folder.join("max_energy_range_uj"))?, number(&counter)?);
        Ok(Some(Self { domain, counter, range_uj, last_uj, used_uj: 0 }))
    }

    fn advance(&mut self) -> Result<(), EnergyError> {
        let now_uj = number(&self.counter)?;
        self.used_uj += match now_uj.checked_sub(self.last_uj) {
            Some(used_uj) => used_uj,
            None => self.range_uj.saturating_sub(self.last_uj) + now_uj,
        };
        self.last_uj = now_uj;
        Ok(())
    }
}

/// The counters, and what has been used since they were opened.
#[derive(Debug)]
pub(crate) struct Rapl(Vec<Zone>);

impl Rapl {
    pub(crate) fn open(root: &Path) -> Result<Self, EnergyError> {
        let absent = || EnergyError::Absent { root: root.to_owned() };
        let entries = fs::read_dir(root).map_err(|_| absent())?.filter_map(Result::ok);
        let zones = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
        let zones: Vec<Option<Zone>> =
            zones.map(|entry| Zone::open(&entry.path())).collect::<Result<_, _>>()?;
        let rapl = Self(zones.into_iter().flatten().collect());
        rapl.used(Domain::Package).is_some().then_some(rapl).ok_or_else(absent)
    }

    fn advance(&mut self) -> Result<(), EnergyError> {
        self.0.iter_mut().try_for_each(Zone::advance)
    }

    /// Joules of all zones of a domain; `None` if there is none.
    fn used(&self, domain: Domain) -> Option<f64> {
        let zones = || self.0.iter().filter(|zone| zone.domain == domain);
        zones().next()?;
        Some(zones().map(|zone| zone.used_uj).sum::<u64>() as f64 / 1e6)
    }

    fn energy(&self) -> Option<Energy> {
        Some(Energy { package_j: self.used(Domain::Package)?, dram_j: self.used(Domain::Dram) })
    }
}

/// Energy used within a window of the run. There is none on a machine without counters, or if they are lost meanwhile.
pub(crate) struct Window {
    root: PathBuf,
    from: Duration,
    to: Duration,
    read_at: Option<Duration>,
    rapl: Option<Rapl>,
}

impl Window {
    pub(crate) fn new(root: &Path, from: Duration, to: Duration) -> Self {
        Self { root: root.to_owned(), from, to, read_at: None, rapl: None }
    }

    /// To be called often.
    pub(crate) fn update(&mut self, elapsed: Duration) {
        let Some(read_at) = self.read_at else {
            if elapsed >= self.from {
                self.rapl = Rapl::open(&self.root).ok();
                self.read_at = Some(elapsed);
            }
            return;
        };
        if read_at < self.to && (elapsed >= self.to || elapsed >= read_at + READ_INTERVAL) {
            self.read_at = Some(elapsed);
            if self.rapl.as_mut().is_some_and(|rapl| rapl.advance().is_err()) {
                self.rapl = None;
            }
        }
    }

    pub(crate) fn energy(&self) -> Option<Energy> {
        self.rapl.as_ref()?.energy()
    }
}

fn text(path: &Path) -> Result<String, EnergyError> {
    let read = fs::read_to_string(path);
    read.map(|text| text.trim().to_owned())
        .map_err(|source| EnergyError::Unreadable { path: path.to_owned(), source })
}

fn number(path: &Path) -> Result<u64, EnergyError> {
    let text = text(path)?;
    text.parse().map_err(|_| EnergyError::Malformed { path: path.to_owned(), text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const RANGE_UJ: u64 = 262_143_328_850;

    fn zone(root: &TempDir, folder: &str, name: &str, energy_uj: u64) {
        let folder = root.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        for (file, value) in [
            ("name", name.to_owned()),
            ("energy_uj", energy_uj.to_string()),
            ("max_energy_range_uj", RANGE_UJ.to_string()),
        ] {
            fs::write(folder.join(file), value + "\n").unwrap();
        }
    }

    /// Two packages, one memory, and what is not to be added to them.
    fn machine() -> TempDir {
        let root = tempfile::tempdir().unwrap();
        zone(&root, "intel-rapl:0", "package-0", 1_000_000);
        zone(&root, "intel-rapl:0:0", "core", 500_000);
        zone(&root, "intel-rapl:0:1", "dram", 2_000_000);
        zone(&root, "intel-rapl:1", "package-1", RANGE_UJ - 3_000_000);
        zone(&root, "intel-rapl:2", "psys", 9_000_000);
        zone(&root, "intel-rapl-mmio:0", "package-0", 1_000_000);
        fs::create_dir(root.path().join("intel-rapl")).unwrap();
        root
    }

    fn count(root: &TempDir, folder: &str, energy_uj: u64) {
        fs::write(root.path().join(folder).join("energy_uj"), format!("{energy_uj}\n")).unwrap();
    }

    #[test]
    fn package_joules_are_summed_across_counter_wraps() {
        let root = machine();
        let mut rapl = Rapl::open(root.path()).unwrap();
        assert_eq!(rapl.energy(), Some(Energy { package_j: 0.0, dram_j: Some(0.0) }));
        count(&root, "intel-rapl:0", 5_000_000);
        count(&root, "intel-rapl:0:0", 4_000_000);
        count(&root, "intel-rapl:1", RANGE_UJ - 1_000_000);
        rapl.advance().unwrap();
        count(&root, "intel-rapl:1", 500_000);
        count(&root, "intel-rapl:0:1", 2_250_000);
        rapl.advance().unwrap();
        assert_eq!(rapl.energy(), Some(Energy { package_j: 4.0 + 3.5, dram_j: Some(0.25) }));
    }

    #[test]
    fn window_counts_its_own_joules_only() {
        let root = machine();
        let mut window = Window::new(root.path(), Duration::from_secs(1), Duration::from_secs(4));
        for (second, counter_uj) in [(0, 3), (1, 10), (2, 20), (3, 30), (4, 40), (5, 100)] {
            count(&root, "intel-rapl:0", counter_uj * 1_000_000);
            window.update(Duration::from_secs(second));
        }
        assert_eq!(window.energy().unwrap().package_j, 30.0);
    }

    #[test]
    fn missing_energy_counters_are_explained() {
        let root = tempfile::tempdir().unwrap();
        let absent = Rapl::open(&root.path().join("powercap")).unwrap_err();
        assert!(absent.to_string().contains("powercap has no zone"), "{absent}");
        zone(&root, "intel-rapl:0:0", "core", 1);
        assert!(
            matches!(Rapl::open(root.path()), Err(EnergyError::Absent { .. })),
            "a part is not the package"
        );

        let root = machine();
        count(&root, "intel-rapl:0", 1);
        fs::write(root.path().join("intel-rapl:0/energy_uj"), "none").unwrap();
        let malformed = Rapl::open(root.path()).unwrap_err().to_string();
        assert!(malformed.contains("intel-rapl:0/energy_uj says \"none\""), "{malformed}");

        fs::remove_file(root.path().join("intel-rapl:0/energy_uj")).unwrap();
        assert!(matches!(Rapl::open(root.path()), Err(EnergyError::Unreadable { .. })));
        let denied =
            EnergyError::Unreadable { path: "x".into(), source: io::ErrorKind::PermissionDenied.into() };
        assert_eq!(denied.remedy(), Some("only root may read it"));

        let mut window = Window::new(Path::new("/nowhere"), Duration::ZERO, Duration::from_secs(1));
        window.update(Duration::ZERO);
        window.update(Duration::from_secs(1));
        assert_eq!(window.energy(), None);
    }

    #[test]
    fn counters_lost_during_a_run_give_no_joules() {
        let root = machine();
        let mut window = Window::new(root.path(), Duration::ZERO, Duration::from_secs(2));
        window.update(Duration::ZERO);
        fs::remove_dir_all(root.path().join("intel-rapl:1")).unwrap();
        window.update(Duration::from_secs(2));
        assert_eq!(window.energy(), None);
    }
}
