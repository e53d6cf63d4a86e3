//! `vmcc reproduce`: the papers' figures as claims.

mod figures;
mod list;
mod overview;
mod select;

use crate::args::ReproduceOptions;
use crate::failure::{Exit, Failure};
use crate::ui::Ui;

pub(crate) fn reproduce(options: &ReproduceOptions, ui: &Ui) -> Result<Exit, Failure> {
    match options.what.as_deref() {
        None => list::list(options.out.as_deref(), ui),
        Some(what) => figures::reproduce(what, &select::chosen(what)?, options, ui),
    }
}
