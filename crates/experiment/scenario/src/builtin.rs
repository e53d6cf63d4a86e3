//! The scenarios that come with vmcc.

use std::sync::LazyLock;

use include_dir::{Dir, include_dir};

static FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../../scenarios");

/// A scenario that comes with vmcc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builtin {
    /// Its name: the file's path without ending, such as `demo` or `examples/incast`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

static BUILTINS: LazyLock<Vec<Builtin>> = LazyLock::new(|| {
    let mut found = Vec::new();
    collect(&FILES, &mut found);
    found.sort_by_key(|b| b.name);
    found
});

fn collect(dir: &'static Dir<'static>, found: &mut Vec<Builtin>) {
    for file in dir.files() {
        let name = file.path().to_str().and_then(|path| path.strip_suffix(".toml"));
        if let (Some(name), Some(text)) = (name, file.contents_utf8()) {
            found.push(Builtin { name, text });
        }
    }
    dir.dirs().for_each(|inner| collect(inner, found));
}

/// All of them, by name.
pub fn all() -> &'static [Builtin] {
    &BUILTINS
}

/// The one of this name.
pub fn find(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|b| b.name == name)
}
