//! `vmcc reproduce`: the papers' figures as claims.

mod figure;
mod figures;
mod list;
mod overview;
mod pages;
mod select;

use crate::args::ReproduceOptions;
use crate::failure::{Exit, Failure};
use crate::ui::Ui;
use serde_json::json;

pub(crate) fn reproduce(options: &ReproduceOptions, ui: &Ui) -> Result<Exit, Failure> {
    let names = options.what.as_deref().map(select::chosen).transpose()?;
    if let (true, Some(out)) = (options.table, &options.out) {
        let table = pages::table(out, names.as_deref())?;
        ui.answer(&json!({ "table": table }), || table.clone());
        return Ok(Exit::Done);
    }
    match (options.what.as_deref(), names) {
        (Some(what), Some(names)) => figures::reproduce(what, &names, options, ui),
        _ => list::list(options.out.as_deref(), ui),
    }
}
