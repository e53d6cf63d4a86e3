//! Stubs of what needs the kernel, for builds without it.

use super::options::Asked;
use crate::args::MarkOptions;
use crate::failure::{Exit, Failure, without_kernel};
use crate::ui::Ui;

pub(super) fn serve(_: &str, _: &Asked, _: bool, _: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc mark"))
}

pub(super) fn list(_: &MarkOptions, _: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc mark --list"))
}

pub(super) fn stats(_: &str, _: &MarkOptions, _: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc mark --stats"))
}

pub(super) fn repair(_: &str, _: &Ui) -> Result<Exit, Failure> {
    Err(without_kernel("vmcc mark --repair"))
}
