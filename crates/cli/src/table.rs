//! Tables for people.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// A table of left-aligned columns without borders.
pub(crate) fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(header.to_vec());
    table
}

/// Aligns all columns from `first` on to the right.
pub(crate) fn align_right_from(table: &mut Table, first: usize) {
    for column in table.column_iter_mut().skip(first) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// The text without the blanks that padding leaves at the ends of lines.
pub(crate) fn render(table: &Table) -> String {
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
