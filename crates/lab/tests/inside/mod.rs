//! Tests of this binary that run inside a guest, where the kernel has what the host's lacks.

use std::time::Duration;
use vmcc_lab::guest::{Guest, GuestOptions, Stream, kernel};

/// Runs tests of the caller's `module_path!()` whose names begin with one of `prefixes` (they are `#[ignore]`d outside)
/// under a guest kernel, all in one guest.
pub(crate) fn run_inside(module: &str, series: &str, prefixes: &[&str], limit: Duration) {
    run_inside_as(module, series, prefixes, GuestOptions { time_limit: limit, ..GuestOptions::default() });
}

/// As [`run_inside`], in a guest of one's own choice.
pub(crate) fn run_inside_as(module: &str, series: &str, prefixes: &[&str], options: GuestOptions) {
    let image = kernel(series).unwrap_or_else(|e| panic!("{e}"));
    let program = std::env::current_exe().expect("this binary");
    let (_, module) = module.split_once("::").expect("a module of this binary");
    let tests = prefixes.iter().map(|prefix| format!("{module}::{prefix}"));
    let options_of_tests = ["--ignored", "--nocapture", "--test-threads=1"].map(str::to_owned);
    let arguments: Vec<String> = tests.chain(options_of_tests).collect();
    println!("kernel {}:", image.release());
    let mut out = Vec::new();
    // As it comes: of a guest that hangs one wants to know where.
    let mut show = |stream, text: &[u8]| {
        out.extend_from_slice(if stream == Stream::Stdout { text } else { &[] });
        print!("{}", String::from_utf8_lossy(text));
    };
    let output = Guest::new(options).run_streaming(&image, program, arguments, &mut show);
    let output = output.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(output.exit_code, 0, "see above");
    assert!(!String::from_utf8_lossy(&out).contains("running 0 tests"), "no test of that name");
}
