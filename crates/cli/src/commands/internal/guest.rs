//! `vmcc internal guest`: any program in a guest; its output and exit code are ours.

use crate::args::GuestProgram;
use crate::failure::{Exit, Failure, engine_failure};
use crate::interrupt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmcc_lab::guest::{self, Accel, Guest, GuestError, GuestOptions, Stream};

pub(crate) fn program(options: &GuestProgram) -> Result<Exit, Failure> {
    let failed = |error: GuestError| engine_failure(&error.into());
    let kernel = match &options.kernel {
        Some(series) => guest::kernel(series),
        None => guest::newest_kernel(),
    };
    let kernel = kernel.map_err(failed)?;
    let defaults = GuestOptions::default();
    let guest = Guest::new(GuestOptions {
        cpus: options.cpus.unwrap_or(defaults.cpus),
        taps: options.taps.clone(),
        time_limit: Duration::from_secs(options.time_limit),
        shared_dir: options.share.as_deref().map(absolute).transpose()?,
        stop: Some(interrupt::listen()?),
        accel: accel(options),
        ..defaults
    });
    let mut pass_on = |stream: Stream, bytes: &[u8]| {
        // A reader that went away does not stop the guest; its exit code still counts.
        let _ = match stream {
            Stream::Stdout => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
            Stream::Stderr => io::stderr().write_all(bytes),
        };
    };
    let (program, arguments) = options.program.split_first().ok_or_else(|| Failure::usage("no program"))?;
    let output = guest.run_streaming(&kernel, program, arguments, &mut pass_on).map_err(failed)?;
    std::process::exit(output.exit_code)
}

fn accel(options: &GuestProgram) -> Option<Accel> {
    let counted = options.count_instructions.then_some(Accel::Counted);
    counted.or(options.emulate.then_some(Accel::Emulation))
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|e| Failure::usage(format!("--share {}: {e}", path.display())))
}
