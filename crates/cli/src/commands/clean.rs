//! `vmcc clean`: what crashed runs left behind.

use crate::failure::{Exit, Failure};
use crate::ui::Ui;

#[cfg(feature = "kernel")]
pub(crate) fn clean(ui: &Ui) -> Result<Exit, Failure> {
    crate::kernel::clean::clean(ui)
}

/// The simulator leaves nothing behind: unfinished result folders are kept on purpose.
#[cfg(not(feature = "kernel"))]
pub(crate) fn clean(_: &Ui) -> Result<Exit, Failure> {
    Err(crate::failure::without_kernel("vmcc clean"))
}
