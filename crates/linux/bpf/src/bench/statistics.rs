//! The kernel's BPF run-time statistics, and what they themselves take.

use crate::error::ControlError;
use crate::objects::{Log, NOTHING};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{ObjectBuilder, ProgramInput};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

/// Calls of the program that does nothing.
const CALLS: u32 = 100_000;
const LOG_LINES: usize = 12;

/// The kernel measures the run time of BPF programs while this lives.
pub struct Statistics {
    _open: OwnedFd,
}

impl Statistics {
    /// Begins.
    ///
    /// # Errors
    /// Missing privilege, or a kernel before 5.8.
    pub fn enable() -> Result<Self, ControlError> {
        // SAFETY: takes no pointer.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            let cause = std::io::Error::from_raw_os_error(-fd);
            return Err(ControlError::kernel("switch on BPF statistics (needs root and Linux 5.8)", cause));
        }
        // SAFETY: a file descriptor that nobody else owns.
        Ok(Self { _open: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Overhead of a program that does nothing, in nanoseconds per call. The kernel reads its clock before and after
    /// each call, and part of that counts. Every other program's figure includes it as well.
    ///
    /// # Errors
    /// The kernel takes no such program.
    pub fn overhead_ns(&self) -> Result<f64, ControlError> {
        let log = Log::start();
        let failed = |e: libbpf_rs::Error| {
            let cause = format!("{e}\n{}", log.tail(LOG_LINES));
            ControlError::kernel("measure a program that does nothing", cause.trim_end())
        };
        let open = ObjectBuilder::default().open_memory(NOTHING).map_err(failed)?;
        let object = open.load().map_err(failed)?;
        let program = object.progs_mut().next().expect("the object has one program");
        let frame = [0; 64];
        let input = ProgramInput { data_in: Some(&frame), repeat: CALLS, ..Default::default() };
        program.test_run(input).map_err(failed)?;
        let id = libbpf_rs::Program::id_from_fd(program.as_fd()).map_err(failed)?;
        let info = ProgInfoIter::default().find(|info| info.id == id);
        Ok(info.map_or(0.0, |info| info.run_time_ns as f64 / info.run_cnt.max(1) as f64))
    }
}
