//! The files of a new algorithm: a coupled one that works, its vectors, and a scenario that compares it with LIA.

use crate::error::ExternalError;
use crate::source::{self, Source};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use vmcc_cc::INTERFACE_VERSION;

const FILES: [(&str, &str); 3] = [
    ("c", include_str!("../template/foo.c")),
    ("csv", include_str!("../template/foo.csv")),
    ("toml", include_str!("../template/foo.toml")),
];

/// Writes `NAME.c`, `NAME.csv` and `NAME.toml` into a folder; returns their paths. No file is overwritten.
///
/// # Errors
/// The name is not that of an algorithm, is taken, or a file is there or cannot be written.
pub fn create(name: &str, folder: &Path) -> Result<[PathBuf; 3], ExternalError> {
    if !source::is_name(name) {
        return Err(ExternalError::Name { name: name.to_owned() });
    }
    let path = |extension: &str| folder.join(format!("{name}.{extension}"));
    Source::parse(&path("c"), &filled(FILES[0].1, name))?.check_name()?;
    let failed = |path: &Path, source| ExternalError::Write { path: path.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let paths = FILES.map(|(extension, _)| path(extension));
    if let Some(there) = paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(ExternalError::Exists { path: there.clone() });
    }
    for (path, (_, text)) in paths.iter().zip(FILES) {
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        file.and_then(|mut file| file.write_all(filled(text, name).as_bytes()))
            .map_err(|error| failed(path, error))?;
    }
    Ok(paths)
}

fn filled(text: &str, name: &str) -> String {
    text.replace("FOO_INTERFACE_VERSION", &INTERFACE_VERSION.to_string())
        .replace("FOO", &name.to_uppercase())
        .replace("foo", name)
}
