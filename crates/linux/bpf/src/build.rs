//! Compiles the BPF objects, one per algorithm of the registry and those of a port, and generates the table of
//! them that the crate embeds.

use std::env;
use std::fmt::Write;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vmcc_registry::{Algorithm, Registry};

mod clang;

/// The queueing discipline keeps packets in maps, which takes the type tags of this clang; without it that one
/// object is left out.
const QDISC_NEEDS_CLANG: u32 = 15;

/// Folders of `kernel/`, whose headers all programs may include.
const KERNEL_FOLDERS: [&str; 5] = ["cc", "port", "probes", "qdisc", "shared"];

struct Toolchain {
    clang: String,
    includes: Vec<PathBuf>,
    root: PathBuf,
    kernel: PathBuf,
    algorithms: PathBuf,
    out: PathBuf,
}

fn main() {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let root = manifest.join("../../..").canonicalize().expect("the workspace is there");
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    let (kernel, algorithms) = (root.join("kernel"), root.join("algorithms"));
    // Relative to the package, so that a build directory that was copied watches its own checkout.
    for watched in ["kernel", "algorithms"] {
        println!("cargo:rerun-if-changed=../../../{watched}");
    }
    println!("cargo:rerun-if-env-changed=CLANG");

    let registry = Registry::load(&algorithms.join("registry.toml")).unwrap_or_else(|e| panic!("{e}"));
    fs::write(out.join("cc_params.h"), registry.c_header()).expect("OUT_DIR is writable");
    let libbpf = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where libbpf's headers are");
    let mut includes: Vec<_> = KERNEL_FOLDERS.iter().map(|folder| kernel.join(folder)).collect();
    fs::write(out.join("sources.rs"), sources(&kernel, Path::new(&libbpf))).expect("OUT_DIR is writable");
    includes.extend([algorithms.join("include"), out.clone(), PathBuf::from(libbpf)]);
    let tools = Toolchain { clang: installed_clang(), includes, root, kernel, algorithms, out };

    tools.compile("port/port.bpf.c", "port.o", &[]);
    tools.compile("port/band.bpf.c", "band.o", &[]);
    tools.compile("probes/activity.bpf.c", "activity.o", &[]);
    tools.compile("probes/cgroup.bpf.c", "cgroup.o", &[]);
    tools.compile("port/hold.bpf.c", "hold.o", &[]);
    tools.compile("probes/live.bpf.c", "live.o", &[]);
    tools.compile("port/marking.bpf.c", "marking.o", &[]);
    tools.compile("probes/nothing.bpf.c", "nothing.o", &[]);
    tools.compile("probes/observe.bpf.c", "observe.o", &[]);
    tools.compile("probes/states.bpf.c", "states.o", &[]);
    tools.compile("probes/upgrade.bpf.c", "upgrade.o", &[]);
    // For the test that compares the types in C with those in Rust.
    tools.compile("shared/layouts.bpf.c", "layouts.o", &[]);
    // For the tests that compare it with the BPF build.
    cc::Build::new()
        .file(tools.kernel.join("port/marking_native.c"))
        .include(tools.kernel.join("shared"))
        .std("c11")
        .compile("vmcc_marking");
    cc::Build::new().file(tools.kernel.join("cc/elapsed_native.c")).std("c11").compile("vmcc_elapsed");
    let qdisc = if tools.clang_major() >= QDISC_NEEDS_CLANG {
        tools.compile("qdisc/qdisc.bpf.c", "qdisc.o", &[]);
        "Some(include_bytes!(concat!(env!(\"OUT_DIR\"), \"/qdisc.o\")))"
    } else {
        "None"
    };
    let mut table = String::from("pub(crate) static OBJECTS: &[Object] = &[\n");
    for algorithm in &registry.algorithms {
        table.push_str(&algorithm_entry(&tools, algorithm));
    }
    table.push_str("];\n\n");
    for (name, object) in [
        ("PORT", "port.o"),
        ("ACTIVITY", "activity.o"),
        ("BAND", "band.o"),
        ("CGROUP", "cgroup.o"),
        ("HOLD", "hold.o"),
        ("LIVE", "live.o"),
        ("NOTHING", "nothing.o"),
        ("OBSERVE", "observe.o"),
        ("STATES", "states.o"),
        ("UPGRADE", "upgrade.o"),
    ] {
        let bytes = format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{object}\"))");
        writeln!(table, "/// Compiled program: {object}.\npub static {name}: &[u8] = {bytes};")
            .expect("writing to a string");
    }
    writeln!(table, "/// Compiled queueing discipline; `None` if clang was too old for it.\npub static QDISC: Option<&[u8]> = {qdisc};").expect("writing to a string");
    fs::write(tools.out.join("objects.rs"), table).expect("OUT_DIR is writable");
}

fn algorithm_entry(tools: &Toolchain, algorithm: &Algorithm) -> String {
    let name = &algorithm.name;
    let source = tools.algorithms.join("src").join(format!("{name}.c"));
    let defines = clang::defines(algorithm, &source);
    let program = tools.compile(clang::WRAPPER, &format!("cc_{name}.o"), &defines);
    tools.compile(clang::REPLAY, &format!("replay_{name}.o"), &defines);
    let build = clang::fingerprint(&fs::read(program).expect("just written"));
    let mut entry = String::new();
    writeln!(
        entry,
        "    Object {{ name: {name:?}, build: {build:#018x}, \
         program: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/cc_{name}.o\")), \
         replay: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/replay_{name}.o\")) }},"
    )
    .expect("writing to a string");
    entry
}

impl Toolchain {
    /// Its major version; 0 if it does not say.
    fn clang_major(&self) -> u32 {
        let words = ["-E", "-P", "-x", "c", "-"];
        let child =
            Command::new(&self.clang).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = child else { return 0 };
        let asked = child.stdin.take().map(|mut stdin| stdin.write_all(b"__clang_major__\n"));
        match (asked, child.wait_with_output()) {
            (Some(Ok(())), Ok(output)) => String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0),
            _ => 0,
        }
    }

    fn compile(&self, source: &str, object: &str, defines: &[String]) -> PathBuf {
        let target = self.out.join(object);
        let mut command = Command::new(&self.clang);
        command.args(clang::OPTIONS).arg("-Werror").args(defines);
        for mapped in [&self.out, &self.root] {
            command.arg(format!("-ffile-prefix-map={}=.", mapped.display()));
        }
        for include in &self.includes {
            command.arg("-I").arg(include);
        }
        command.arg(self.kernel.join(source)).arg("-o").arg(&target);
        let output = command.output().unwrap_or_else(|e| panic!("cannot run {}: {e}", self.clang));
        assert!(
            output.status.success(),
            "{} failed on {source} ({object}):\n{}",
            self.clang,
            String::from_utf8_lossy(&output.stderr)
        );
        target
    }
}

fn installed_clang() -> String {
    clang::find().expect(
        "no clang found to compile the BPF programs: install clang (14 or newer), or set CLANG to one",
    )
}

/// The table of the sources that an algorithm's program is compiled from, by their path below `kernel/`: the wrapper, its headers, and
/// libbpf's.
fn sources(kernel: &Path, libbpf: &Path) -> String {
    let mut table = String::from("static SOURCES: &[(&str, &str)] = &[\n");
    for (folder, name) in
        [(kernel.join("cc"), "cc"), (kernel.join("shared"), "shared"), (libbpf.join("bpf"), "bpf")]
    {
        let entries = fs::read_dir(&folder).expect("a readable folder");
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
        files.retain(|file| {
            file.to_string_lossy().ends_with(".h")
                || name == "cc" && file.to_string_lossy().ends_with(".bpf.c")
        });
        files.sort();
        for file in files {
            let below = format!("{name}/{}", file.file_name().expect("a file").to_string_lossy());
            writeln!(table, "    ({below:?}, include_str!({:?})),", file.display().to_string())
                .expect("writing to a string");
        }
    }
    table.push_str("];\n");
    table
}
