//! Compiles every algorithm of the registry natively and generates the Rust table.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use vmcc_registry::{Algorithm, Registry};

fn main() {
    let algorithms =
        Path::new(&env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("../../../algorithms");
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    // Relative to the package, so that a build directory that was copied watches its own checkout.
    println!("cargo:rerun-if-changed=../../../algorithms");

    let registry = Registry::load(&algorithms.join("registry.toml")).unwrap_or_else(|e| panic!("{e}"));
    fs::write(out.join("cc_params.h"), registry.c_header()).expect("OUT_DIR is writable");
    fs::write(out.join("table.rs"), registry.rust_table()).expect("OUT_DIR is writable");
    fs::write(out.join("limits.rs"), limits(&algorithms.join("include/cc.h"))).expect("OUT_DIR is writable");

    let mut build = cc::Build::new();
    build
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .flag_if_supported("-ffreestanding")
        .flag_if_supported("-Wno-unused-function")
        .include(algorithms.join("include"))
        .include(&out);
    // The simulator calls these tens of millions of times per second, also in its debug tests.
    build.opt_level(if env::var_os("CARGO_FEATURE_SANITIZE").is_some() { 1 } else { 2 });
    if env::var_os("CARGO_FEATURE_SANITIZE").is_some() {
        build.flag("-fsanitize=undefined").flag("-fsanitize-undefined-trap-on-error");
    }
    for alg in &registry.algorithms {
        build.file(translation_unit(&out, &algorithms, alg));
    }
    build.file(algorithms.join("pool_native.c"));
    build.compile("vmcc_algorithms");
}

/// Limits that size the structs of `cc.h`, as Rust constants: the header is their only home.
fn limits(header: &Path) -> String {
    let text = fs::read_to_string(header).expect("the header is there");
    let value = |name: &str| -> usize {
        let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|words| words.starts_with(&["#define", name])).expect("cc.h defines it");
        line[2].parse().expect("a plain number")
    };
    let limits = [
        ("INTERFACE_VERSION", "CC_INTERFACE_VERSION", "Version of the interface of `cc.h`"),
        ("MAX_PATHS", "CC_MAX_PATHS", "Paths a connection can have"),
        ("MAX_PARAMS", "CC_MAX_PARAMS", "Parameters an algorithm can have"),
        ("SHARING_PATHS", "CC_SHARING_PATHS", "Paths, by slot, that detection compares with each other"),
    ];
    let constant = |(name, c, doc): (&str, &str, &str)| {
        format!("/// {doc}: `{c}`.\npub const {name}: usize = {};\n", value(c))
    };
    limits.map(constant).concat()
}

/// One file per algorithm: its source, and the driver of `host.h` around it.
fn translation_unit(out: &Path, algorithms: &Path, algorithm: &Algorithm) -> PathBuf {
    let name = &algorithm.name;
    let source = algorithms.join("src").join(format!("{name}.c"));
    assert!(source.is_file(), "registry.toml names `{name}`, but {} does not exist", source.display());
    let file = out.join(format!("unit_{name}.c"));
    let text = format!(
        "#define CC_DETECTS {}\n#include \"{}\"\n#include \"host.h\"\n\nCC_HOST_OPS({name});\n",
        u8::from(algorithm.detects),
        source.display()
    );
    fs::write(&file, text).expect("OUT_DIR is writable");
    file
}
