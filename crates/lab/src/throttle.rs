//! Hosts whose programs have a quota of processor time, as containers with a limit have.
//!
//! A throttled host has a cgroup of its own, into which each of its programs is put before it begins. While the quota of a
//! period is used up they stand still; the kernel goes on acknowledging and sending again for them. Quotas are kept by the
//! `cpu` controller, in version 2 of cgroups (`cpu.max`) or in version 1 (`cpu.cfs_quota_us`), whichever has it.

use crate::registry::Record;
use crate::spec::{LabSpec, Throttle};
use crate::topology::Topology;
use crate::{Error, Netns};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_units::Nanos;

const CONTROLLERS: &str = "cgroup.controllers";
const MISSING: &str = "there is no hierarchy with the controller `cpu`; mount version 2 of cgroups (`mount -t cgroup2 none /sys/fs/cgroup`) in a kernel with CONFIG_CFS_BANDWIDTH";
/// Processes that were killed may take that long to be gone.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The quotas of a run. Dropping it removes the cgroups, which must be empty by then.
#[derive(Debug)]
pub(crate) struct Throttles {
    /// One per throttled host.
    cgroups: Vec<(usize, Cgroup)>,
    /// Changes to come, in order of time.
    changes: Vec<Change>,
}

#[derive(Debug)]
struct Change {
    at: Nanos,
    host: usize,
    /// Quota and period; `None` ends it.
    limit: Option<(Nanos, Nanos)>,
}

impl Throttles {
    /// Makes the cgroups and has the hosts' programs put into them.
    pub(crate) fn prepare(spec: &LabSpec, topology: &Topology, record: &mut Record) -> Result<Self, Error> {
        let mut throttles = Self { cgroups: Vec::new(), changes: changes(&spec.throttles) };
        for Throttle { host, .. } in &spec.throttles {
            if throttles.cgroups.iter().any(|(other, _)| other == host) {
                continue;
            }
            let name = format!("vmcc-{}-{}", record.run_id(), spec.hosts[*host]);
            let cgroup = Cgroup::create(&name, record)?;
            topology.stacks_of(*host).for_each(|netns: &Netns| netns.put_programs_in(&cgroup.path));
            throttles.cgroups.push((*host, cgroup));
        }
        Ok(throttles)
    }

    /// Does what is due.
    pub(crate) fn update(&mut self, elapsed: Duration) -> Result<(), Error> {
        let due = self.changes.iter().take_while(|change| change.at.to_duration() <= elapsed).count();
        for change in self.changes.drain(..due) {
            if let Some((_, cgroup)) = self.cgroups.iter().find(|(host, _)| *host == change.host) {
                cgroup.limit(change.limit)?;
            }
        }
        Ok(())
    }
}

/// Quota in force from each start or end of a quota on: the one that began last of those that have not ended.
fn changes(throttles: &[Throttle]) -> Vec<Change> {
    let begins = throttles.iter().map(|t| (t.at, t.host));
    let mut moments: Vec<_> =
        begins.chain(throttles.iter().filter_map(|t| Some((t.until?, t.host)))).collect();
    moments.sort_unstable();
    moments.dedup();
    let change = |(at, host)| {
        let holds = |t: &&Throttle| t.host == host && t.at <= at && t.until.is_none_or(|until| until > at);
        let last = throttles.iter().filter(holds).max_by_key(|t| t.at);
        Change { at, host, limit: last.map(|t| (t.quota, t.period)) }
    };
    moments.into_iter().map(change).collect()
}

#[derive(Debug)]
struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    fn create(name: &str, record: &mut Record) -> Result<Self, Error> {
        let path = hierarchy()?.join(name);
        record.add_cgroup(&path)?;
        fs::create_dir(&path)
            .map_err(|e| Error::kernel("creating", format!("cgroup {}", path.display()), e))?;
        Ok(Self { path })
    }

    fn limit(&self, limit: Option<(Nanos, Nanos)>) -> Result<(), Error> {
        let micros = |time: Nanos| time.get() / 1000;
        let set = |file: &str, value: String| {
            let path = self.path.join(file);
            let failed = |e| Error::kernel("setting", format!("{}={value}", path.display()), e);
            fs::write(&path, &value).map_err(failed)
        };
        if self.path.join("cpu.max").exists() {
            let value = limit.map(|(quota, period)| format!("{} {}", micros(quota), micros(period)));
            return set("cpu.max", value.unwrap_or_else(|| "max".to_owned()));
        }
        let Some((quota, period)) = limit else { return set("cpu.cfs_quota_us", "-1".to_owned()) };
        // The quota before was for another period: without one any period is allowed.
        set("cpu.cfs_quota_us", "-1".to_owned())?;
        set("cpu.cfs_period_us", micros(period).to_string())?;
        set("cpu.cfs_quota_us", micros(quota).to_string())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Programs that are killed end sooner with time to do so; what cannot be removed even so holds nothing.
        let _ = self.limit(None);
        let _ = remove(&self.path);
    }
}

/// Removes a cgroup of whose processes all were killed. It may be gone already.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match fs::remove_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && began.elapsed() < REMOVE_TIMEOUT => {
                thread::sleep(POLL_INTERVAL);
            }
            done => return done,
        }
    }
}

/// Hierarchy in which cgroups can have CPU quotas.
fn hierarchy() -> Result<PathBuf, Error> {
    let missing =
        || Error::kernel("making", "cgroups with quotas of processor time", io::Error::other(MISSING));
    let has = |root: &PathBuf| match fs::read_to_string(root.join(CONTROLLERS)) {
        Ok(controllers) => controllers.split_whitespace().any(|name| name == "cpu"),
        // Version 1, which is there only with its controller.
        Err(_) => root.join("cpu.cfs_quota_us").exists() || root.join("cpu.shares").exists(),
    };
    let root = vmcc_system::cpu_steal::hierarchies().into_iter().find(has).ok_or_else(missing)?;
    let given = root.join("cgroup.subtree_control");
    if given.exists() {
        let failed = |e| Error::kernel("setting", format!("{}=+cpu", given.display()), e);
        fs::write(&given, "+cpu").map_err(failed)?;
    }
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_quota_is_bounded_by_its_parent() {
        let (seconds, ms) = (Nanos::from_secs, Nanos::from_millis);
        let of = |at, until: Option<u64>, host, quota| Throttle {
            at: seconds(at),
            until: until.map(seconds),
            host,
            quota: ms(quota),
            period: ms(100),
        };
        let changes =
            changes(&[of(0, Some(4), 0, 5), of(1, Some(2), 0, 2), of(2, None, 1, 7), of(4, None, 0, 9)]);
        let found: Vec<_> = changes.iter().map(|c| (c.at, c.host, c.limit.map(|limit| limit.0))).collect();
        let expected = [(0, 0, 5), (1, 0, 2), (2, 0, 5), (2, 1, 7), (4, 0, 9)];
        assert_eq!(found, expected.map(|(at, host, quota)| (seconds(at), host, Some(ms(quota)))));
        assert_eq!(super::changes(&[of(0, Some(1), 0, 5)]).last().and_then(|c| c.limit), None);
    }
}
