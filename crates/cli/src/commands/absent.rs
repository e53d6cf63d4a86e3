//! Stubs of the commands that need the kernel engine, for builds without it.

use crate::args::{AdviseOptions, BenchOptions, TopOptions, UnmarkOptions, UpOptions};
use crate::failure::{Exit, Failure, without_kernel};
use crate::ui::Ui;
use std::path::Path;
use vmcc_cc::Params;

pub(crate) fn advise(_: &AdviseOptions, _: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc advise"))
}

pub(crate) fn load(_: &[Params], _: &UpOptions, _: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc up"))
}

pub(crate) fn agent(_: &Path, _: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc up --config"))
}

pub(crate) fn down(_: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc down"))
}

pub(crate) fn status(_: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc status"))
}

pub(crate) fn top(_: &TopOptions, _: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc top"))
}

pub(crate) fn events(_: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc events"))
}

/// The simulator leaves nothing behind: unfinished result folders are kept on purpose.
pub(crate) fn clean(_: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc clean"))
}

pub(crate) fn unmark(_: &UnmarkOptions, _: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc unmark"))
}

pub(crate) fn bench_kernel(_: &BenchOptions, _: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc bench kernel"))
}

pub(crate) fn bench_port(_: &BenchOptions, _: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc bench port"))
}
