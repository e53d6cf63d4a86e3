//! The shared object of an algorithm.

use crate::error::ExternalError;
use crate::source::Source;
use libloading::Library;
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hasher};
use std::mem::size_of;
use std::path::Path;
use vmcc_cc::{
    Algorithm, Decision, Event, Group, Host, INTERFACE_VERSION, MAX_PARAMS, Path as PathState, Slot,
};
use vmcc_registry::Algorithm as Entry;

/// `struct cc_external`.
#[repr(C)]
struct Exported {
    interface_version: u32,
    size_bytes: [u32; 7],
    ops: *const c_void,
}

/// Sizes that this program expects, in the order of [`Exported::size_bytes`].
const SIZES: [usize; 7] = [
    size_of::<Event>(),
    size_of::<Slot>(),
    size_of::<Group>(),
    size_of::<PathState>(),
    size_of::<[u64; MAX_PARAMS]>(),
    size_of::<Decision>(),
    size_of::<Host>(),
];

/// Loads a shared object for the rest of the process and registers its algorithm.
pub(crate) fn register(source: &Source, library: &Path) -> Result<Algorithm, ExternalError> {
    let path = || source.path.clone();
    let failed = |problem: String| ExternalError::Load {
        path: path(),
        folder: library.parent().unwrap_or(library).to_owned(),
        problem,
    };
    let bytes = std::fs::read(library).map_err(|error| failed(error.to_string()))?;
    // SAFETY: the object was compiled from the user's file, whose code is to be run. It has no constructors but those that the file
    // declares, and the check has loaded it before in a process of its own.
    let loaded = unsafe { Library::new(library) }.map_err(|error| failed(error.to_string()))?;
    // SAFETY: `external.h` defines the symbol with this type; the version and sizes in it are compared before the table is used.
    let exported = unsafe { loaded.get::<*const Exported>(c"vmcc_algorithm") };
    let exported = *exported.map_err(|error| failed(error.to_string()))?;
    // SAFETY: the symbol's address is that of a constant of the library, which stays loaded from here on.
    let exported = unsafe { &*exported };
    std::mem::forget(loaded);
    compare(source, exported)?;
    // SAFETY: version and sizes are those of this program, and the table is constant; the check has called every hook.
    unsafe { Algorithm::register(&source.entry, exported.ops, hash(&bytes, &source.entry)) }
        .map_err(|source| ExternalError::Taken { path: path(), source })
}

fn compare(source: &Source, found: &Exported) -> Result<(), ExternalError> {
    let expected = (INTERFACE_VERSION, SIZES);
    let sizes = found.size_bytes.map(|bytes| bytes as usize);
    if (found.interface_version as usize, sizes) == expected {
        return Ok(());
    }
    let text = |version: usize, sizes: &[usize]| format!("version {version}, structs of {sizes:?} bytes");
    Err(ExternalError::Interface {
        path: source.path.clone(),
        found: text(found.interface_version as usize, &sizes),
        expected: text(expected.0, &expected.1),
    })
}

/// Tells builds of an algorithm apart, nothing more: the code, and the description, which has the parameters' defaults and scales.
fn hash(bytes: &[u8], entry: &Entry) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.write(format!("{entry:?}").as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that is resumed with another default would mix two algorithms.
    #[test]
    fn build_hash_covers_the_description() {
        let text = "title = \"t\"\nsource = \"s\"\ncoupled = true\nneeds_ecn = false\n[[param]]\nname = \"gain\"\nunit = \"1\"\n\
                    default = 0.5\nmin = 0.0\nmax = 1.0\nq = 16\ncite = \"c\"\ndoc = \"d\"\n";
        let build = |text: &str| hash(b"code", &Entry::parse("a", text).expect("well-formed"));
        assert_eq!(build(text), build(text));
        for (from, to) in [("0.5", "0.25"), ("q = 16", "q = 8"), ("coupled = true", "coupled = false")] {
            assert_ne!(build(text), build(&text.replace(from, to)), "{to}");
        }
        assert_ne!(build(text), hash(b"other", &Entry::parse("a", text).expect("well-formed")));
    }

    #[test]
    fn interface_mismatch_is_refused_with_both_versions() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a.c");
        let text = "/* vmcc\n title = \"t\"\n source = \"s\"\n coupled = true\n needs_ecn = false\n*/\n";
        std::fs::write(&path, text).expect("written");
        let source = Source::read(&path).expect("well-formed");
        let size_bytes = SIZES.map(|bytes| bytes as u32);
        let exported =
            |interface_version, size_bytes| Exported { interface_version, size_bytes, ops: std::ptr::null() };
        let version = INTERFACE_VERSION as u32;
        compare(&source, &exported(version, size_bytes)).expect("the same");
        let error = compare(&source, &exported(version + 1, size_bytes)).expect_err("newer").to_string();
        assert!(error.contains(&format!("(version {}", version + 1)), "{error}");
        let mut other = size_bytes;
        other[3] += 8;
        assert!(compare(&source, &exported(version, other)).is_err(), "a longer struct cc_path");
    }
}
