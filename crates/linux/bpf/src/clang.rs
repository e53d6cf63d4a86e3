//! Options of clang for an algorithm in the kernel. The build script and [`crate::compile`] share this file.

use std::path::Path;
use std::process::{Command, Stdio};
use vmcc_registry::Algorithm;

/// Tried in this order unless `CLANG` names one.
const CLANGS: [&str; 9] =
    ["clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14", "clang"];

/// Options of every program. Unrolled, the loops over paths spill more registers than the stack of a BPF program holds. Debug
/// information has no paths of this machine: the same source gives the same object.
pub(crate) const OPTIONS: [&str; 14] = [
    "-target",
    "bpf",
    "-mcpu=v3",
    "-g",
    "-O2",
    "-ffreestanding",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-unused-function",
    "-Wno-missing-field-initializers",
    "-fno-unroll-loops",
    "-fdebug-compilation-dir=.",
    "-c",
];

/// Program of the struct_ops wrapper, below `kernel/`.
pub(crate) const WRAPPER: &str = "cc/cc.bpf.c";
/// Program that replays recorded events, below `kernel/`.
pub(crate) const REPLAY: &str = "cc/replay.bpf.c";

/// Definitions with which the wrapper becomes that of `algorithm`, whose C is in `source`.
pub(crate) fn defines(algorithm: &Algorithm, source: &Path) -> [String; 7] {
    [
        format!("-DCC_ALG={}", algorithm.name),
        format!("-DCC_ALG_SOURCE=\"{}\"", source.display()),
        format!("-DCC_KERNEL_NAME=\"{}\"", algorithm.kernel_name),
        format!("-DCC_COUPLED={}", u8::from(algorithm.coupled)),
        format!("-DCC_NEEDS_ECN={}", u8::from(algorithm.needs_ecn)),
        format!("-DCC_DETECTS={}", u8::from(algorithm.detects)),
        format!("-DCC_PACES={}", u8::from(algorithm.paces)),
    ]
}

/// The clang of this machine: `CLANG`, or the newest that runs.
pub(crate) fn find() -> Option<String> {
    if let Ok(named) = std::env::var("CLANG") {
        return Some(named);
    }
    let works = |name: &&str| {
        let mut version = Command::new(name);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    CLANGS.into_iter().find(works).map(str::to_owned)
}

/// FNV-1a: tells builds of an algorithm, or paths of cgroups, apart; nothing more.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
