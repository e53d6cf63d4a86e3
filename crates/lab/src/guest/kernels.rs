//! The kernels that guests can boot, as `scripts/fetch-kernels.sh` prepared them.

use super::GuestError;
use std::path::{Path, PathBuf};

/// Store of root's kernels, for all users.
const SYSTEM_STORE: &str = "/var/cache/vmcc/kernels";

/// A kernel with its initramfs and modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelImage {
    release: String,
    dir: PathBuf,
}

impl KernelImage {
    /// Release as `uname -r` prints it, for example `6.1.0-50-cloud-amd64`.
    pub fn release(&self) -> &str {
        &self.release
    }

    pub(super) fn image(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    pub(super) fn initrd(&self) -> PathBuf {
        self.dir.join("initrd")
    }

    /// The directory that holds `lib/modules`.
    pub(super) fn module_root(&self) -> &Path {
        &self.dir
    }

    /// Numbers of the release, for ordering: 6.12 is newer than 6.1.
    fn version(&self) -> Vec<u64> {
        let numbers = self.release.split(['.', '-', '+']).map_while(|part| part.parse().ok());
        numbers.take(4).collect()
    }

    fn is_of(&self, series: &str) -> bool {
        self.release.strip_prefix(series).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// The kernels prepared on this machine, oldest first.
pub fn kernels() -> Vec<KernelImage> {
    let mut found = stores().iter().flat_map(|store| kernels_in(store)).collect::<Vec<_>>();
    // Stable, so that of two equal releases the user's own one stays.
    found.sort_by_key(KernelImage::version);
    found.dedup_by(|a, b| a.release == b.release);
    found
}

/// The newest prepared kernel of a series: `6.1`, `7`, or a whole release.
///
/// # Errors
/// None is prepared.
pub fn kernel(series: &str) -> Result<KernelImage, GuestError> {
    let all = kernels();
    let found = all.iter().map(KernelImage::release).collect::<Vec<_>>().join(", ");
    match all.into_iter().rfind(|kernel| kernel.is_of(series)) {
        Some(kernel) => Ok(kernel),
        None if found.is_empty() => Err(none_at_all()),
        None => Err(GuestError::NoKernel { series: series.to_owned(), found }),
    }
}

/// The newest prepared kernel.
///
/// # Errors
/// None is prepared.
pub fn newest_kernel() -> Result<KernelImage, GuestError> {
    kernels().pop().ok_or_else(none_at_all)
}

fn none_at_all() -> GuestError {
    let searched = stores().iter().map(|store| store.display().to_string()).collect::<Vec<_>>();
    GuestError::NoKernels { searched: searched.join(" and ") }
}

/// Stores that are searched for kernels; must agree with `scripts/fetch-kernels.sh`.
fn stores() -> Vec<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(only) = set("VMCC_KERNELS") {
        return vec![only];
    }
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let own = cache.map(|cache| cache.join("vmcc/kernels"));
    own.into_iter().chain([PathBuf::from(SYSTEM_STORE)]).collect()
}

fn kernels_in(store: &Path) -> Vec<KernelImage> {
    let Ok(entries) = store.read_dir() else { return Vec::new() };
    let images = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let kernel = KernelImage { release: entry.file_name().into_string().ok()?, dir: entry.path() };
        // The initramfs is written last, so its presence means that the rest is complete.
        (kernel.release.starts_with(|c: char| c.is_ascii_digit()) && kernel.initrd().is_file())
            .then_some(kernel)
    });
    images.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(releases: &[&str]) -> tempfile::TempDir {
        let store = tempfile::tempdir().expect("a temporary directory");
        for release in releases {
            let dir = store.path().join(release);
            std::fs::create_dir(&dir).expect("a directory");
            std::fs::write(dir.join("initrd"), "").expect("a file");
        }
        store
    }

    #[test]
    fn kernel_series_match_whole_numbers() {
        let store =
            store(&["6.1.0-50-cloud-amd64", "6.12.107+deb13-cloud-amd64", "6.18.15+deb13-cloud-amd64"]);
        let of = |series: &str| kernels_in(store.path()).iter().filter(|kernel| kernel.is_of(series)).count();
        assert_eq!(
            (of("6.1"), of("6.12"), of("6"), of("6.18.15+deb13-cloud-amd64"), of("7")),
            (1, 1, 3, 1, 0)
        );
    }

    #[test]
    fn kernel_versions_are_compared_numerically() {
        let store =
            store(&["6.9.1-cloud-amd64", "6.12.107+deb13-cloud-amd64", "7.0.2-cloud-amd64", "6.12.94-x"]);
        let mut found = kernels_in(store.path());
        found.sort_by_key(KernelImage::version);
        let releases = found.iter().map(KernelImage::release).collect::<Vec<_>>();
        assert_eq!(
            releases,
            ["6.9.1-cloud-amd64", "6.12.94-x", "6.12.107+deb13-cloud-amd64", "7.0.2-cloud-amd64"]
        );
    }

    #[test]
    fn incomplete_kernel_folder_is_ignored() {
        let store = store(&[]);
        std::fs::create_dir(store.path().join("6.1.0-50-cloud-amd64")).expect("a directory");
        std::fs::create_dir(store.path().join(".fetch.abc")).expect("a directory");
        assert_eq!(kernels_in(store.path()), []);
    }
}
