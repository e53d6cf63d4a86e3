//! Cgroups that had to wait because their quota of processor time (`cpu.max`) was used up.
//!
//! What a container's processes send and read waits with them; what the kernel does for their connections, such as
//! acknowledging and sending again, does not.

use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

const MOUNTS: &str = "/proc/self/mountinfo";
const STAT: &str = "cpu.stat";
/// More folders are not looked at: each costs two system calls.
const MAX_FOLDERS: usize = 20_000;

/// A cgroup that was throttled at least once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Throttled {
    /// Its path below the root of the hierarchy; empty for that root, which a container sees of its own.
    pub cgroup: String,
    /// In how many periods of its quota.
    pub periods: u64,
    /// For how long, added up over the processors on which it waited.
    pub time_us: u64,
}

/// The roots of the hierarchies that may keep quotas of processor time: version 2, and version 1 with its controller.
pub fn hierarchies() -> Vec<PathBuf> {
    mounted(&fs::read_to_string(MOUNTS).unwrap_or_default())
}

/// Those of this machine that can be seen from here, the longest throttled first. Empty where no quotas are kept.
pub fn throttled() -> Vec<Throttled> {
    let mut found: Vec<Throttled> = hierarchies().iter().flat_map(|root| below(root)).collect();
    found.sort_by(|a, b| b.time_us.cmp(&a.time_us).then_with(|| a.cgroup.cmp(&b.cgroup)));
    found
}

/// Mount points of hierarchies that may have the `cpu` controller: version 2 is one for all, version 1 names its controllers. One
/// that is mounted in several places, as containers have the host's, is there once: where most of it can be seen.
fn mounted(mounts: &str) -> Vec<PathBuf> {
    let hierarchy = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut words = kind.split(' ');
        let is_it = match words.next()? {
            "cgroup2" => true,
            "cgroup" => words.next_back()?.split(',').any(|option| option == "cpu"),
            _ => false,
        };
        // The device, what part of it, and where (proc_pid_mountinfo(5)).
        let [_, _, device, part, place, ..] = mount.split(' ').collect::<Vec<_>>()[..] else { return None };
        is_it.then(|| (device.to_owned(), part.len(), unescaped(place)))
    };
    let mut found: Vec<(String, usize, PathBuf)> = Vec::new();
    for (device, part, place) in mounts.lines().filter_map(hierarchy) {
        match found.iter_mut().find(|(other, ..)| *other == device) {
            Some(same) if part < same.1 => *same = (device, part, place),
            Some(_) => {}
            None => found.push((device, part, place)),
        }
    }
    found.into_iter().map(|(.., place)| place).collect()
}

/// A path of mountinfo: the kernel writes spaces, tabs, newlines and backslashes as a backslash and three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal =
            after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn below(root: &Path) -> Vec<Throttled> {
    let (mut left, mut found) = (vec![root.to_owned()], Vec::new());
    let mut seen = 0;
    while let Some(folder) = left.pop().filter(|_| seen < MAX_FOLDERS) {
        seen += 1;
        if let Ok(text) = fs::read_to_string(folder.join(STAT)) {
            let cgroup = folder.strip_prefix(root).unwrap_or(&folder).display().to_string();
            found.extend(counted(&text).map(|(periods, time_us)| Throttled { cgroup, periods, time_us }));
        }
        // One that went away meanwhile has nothing in it.
        let inside = fs::read_dir(&folder).into_iter().flatten().flatten();
        left.extend(inside.filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()));
    }
    found
}

/// Periods and microseconds; `None` if it never was. Version 1 says nanoseconds.
fn counted(stat: &str) -> Option<(u64, u64)> {
    let value = |name: &str| {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == name)?.1.trim().parse::<u64>().ok()
    };
    let periods = value("nr_throttled").filter(|periods| *periods > 0)?;
    Some((periods, value("throttled_usec").or_else(|| value("throttled_time").map(|ns| ns / 1000))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_v1_and_v2_mounts_are_found() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:3 - cgroup cgroup rw,cpu,cpuacct\n\
                      33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                      34 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let places = ["/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/unified"];
        assert_eq!(mounted(mounts), places.map(PathBuf::from));
    }

    #[test]
    fn hierarchy_mounted_twice_is_listed_once() {
        let mounts = "31 23 0:28 /pods/a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
                      32 31 0:28 / /host/my\\040c\\134g rw shared:3 - cgroup2 cgroup2 rw\n\
                      33 31 0:28 / /again rw - cgroup2 cgroup2 rw\n\
                      34 31 0:29 / /cpu rw - cgroup cgroup rw,cpu\n";
        assert_eq!(mounted(mounts), ["/host/my c\\g", "/cpu"].map(PathBuf::from));
    }

    #[test]
    fn throttled_cgroups_are_listed_at_any_depth() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("", "usage_usec 1\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"),
            ("pods/a", "usage_usec 7\nnr_periods 9\nnr_throttled 3\nthrottled_usec 250000\n"),
            ("pods/b", "nr_periods 9\nnr_throttled 2\nthrottled_time 1500000\n"),
            ("pods/c", "usage_usec 7\n"),
        ] {
            fs::create_dir_all(root.path().join(path)).unwrap();
            fs::write(root.path().join(path).join(STAT), text).unwrap();
        }
        let mut found = below(root.path());
        found.sort_by(|a, b| a.cgroup.cmp(&b.cgroup));
        let of = |cgroup: &str, periods, time_us| Throttled { cgroup: cgroup.to_owned(), periods, time_us };
        assert_eq!(found, [of("pods/a", 3, 250_000), of("pods/b", 2, 1500)]);
    }
}
