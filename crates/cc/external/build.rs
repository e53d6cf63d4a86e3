//! Embeds the headers that an algorithm includes, and the registry: the program compiles algorithms without its source tree.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    // Relative to the package, so that a build directory that was copied watches its own checkout.
    for watched in ["include", "registry.toml"] {
        println!("cargo:rerun-if-changed=../../../algorithms/{watched}");
    }
    let include = manifest.join("../../../algorithms/include").canonicalize().expect("the headers are there");
    let mut headers = Vec::new();
    collect(&include, &mut headers);
    headers.sort();
    let mut text = String::from(
        "/// Headers by their path below the include folder.\nstatic HEADERS: &[(&str, &str)] = &[\n",
    );
    for header in headers {
        let name = header.strip_prefix(&include).expect("found there");
        writeln!(
            text,
            "    ({:?}, include_str!({:?})),",
            name.display().to_string(),
            header.display().to_string()
        )
        .expect("writing to a string");
    }
    text.push_str("];\n");
    fs::write(out.join("headers.rs"), text).expect("OUT_DIR is writable");
}

fn collect(folder: &Path, headers: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        match path.extension() {
            _ if path.is_dir() => collect(&path, headers),
            Some(extension) if extension == "h" => headers.push(path),
            _ => {}
        }
    }
}
