//! Tables for people.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use std::ops::Range;

/// A table of left-aligned columns without borders.
pub(crate) fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(header.to_vec());
    table
}

/// Aligns all columns from `first` on to the right.
pub(crate) fn align_right_from(table: &mut Table, first: usize) {
    align_right(table, first..usize::MAX);
}

/// Aligns these columns to the right.
pub(crate) fn align_right(table: &mut Table, columns: Range<usize>) {
    for (_, column) in table.column_iter_mut().enumerate().filter(|(index, _)| columns.contains(index)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// The text without the blanks that padding leaves at the ends of lines.
pub(crate) fn render(table: &Table) -> String {
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
