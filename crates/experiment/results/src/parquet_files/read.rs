//! Rows of files, batch by batch.

use super::cell::{Cells, Readable};
use super::{BATCH_ROWS, TableError};
use parquet::column::reader::ColumnReader;
use parquet::errors::Result as ParquetResult;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::{ColumnDescriptor, SchemaDescPtr};
use std::fs::File;
use std::path::{Path, PathBuf};
use vmcc_config::ReadError;

/// Opens a file to read the named columns (all when `names` is empty), batch by batch.
///
/// # Errors
/// When the file cannot be opened or is not Parquet.
pub fn read_columns(path: &Path, names: &[&str]) -> Result<Batches, TableError> {
    let file = open(path)?;
    let columns = selected(&file.metadata().file_metadata().schema_descr_ptr(), names);
    Ok(Batches { path: path.to_owned(), file, columns, next_group: 0, group: Vec::new(), rows_left: 0 })
}

pub(super) fn open(path: &Path) -> Result<SerializedFileReader<File>, TableError> {
    let file = vmcc_config::open_regular(path).map_err(|e| match e {
        ReadError::Io(source) => TableError::Io { path: path.to_owned(), source },
        other => TableError::Format { path: path.to_owned(), reason: other.to_string() },
    })?;
    SerializedFileReader::new(file).map_err(|e| TableError::from_parquet(path, e))
}

/// Returns true if a column's cells may be absent.
pub(super) fn is_optional(column: &ColumnDescriptor) -> bool {
    column.max_def_level() > 0
}

fn selected(schema: &SchemaDescPtr, names: &[&str]) -> Vec<Selected> {
    let columns = schema.columns().iter().enumerate();
    columns
        .filter(|(_, column)| names.is_empty() || names.contains(&column.name()))
        .map(|(index, column)| Selected {
            index,
            name: column.name().to_owned(),
            optional: is_optional(column),
        })
        .collect()
}

/// A column to read.
struct Selected {
    index: usize,
    name: String,
    optional: bool,
}

/// Batches of the rows of a file, in order.
pub struct Batches {
    path: PathBuf,
    file: SerializedFileReader<File>,
    columns: Vec<Selected>,
    next_group: usize,
    /// Readers of the current row group, in the order of `columns`.
    group: Vec<ColumnReader>,
    rows_left: usize,
}

impl Batches {
    fn read(&mut self) -> ParquetResult<Option<Batch>> {
        while self.rows_left == 0 {
            if self.next_group == self.file.num_row_groups() {
                return Ok(None);
            }
            let group = self.file.get_row_group(self.next_group)?;
            self.next_group += 1;
            self.rows_left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
            self.group = self
                .columns
                .iter()
                .map(|column| group.get_column_reader(column.index))
                .collect::<ParquetResult<_>>()?;
        }
        let rows = self.rows_left.min(BATCH_ROWS);
        self.rows_left -= rows;
        let readers = self.group.iter_mut().zip(&self.columns);
        let columns = readers
            .map(|(reader, column)| {
                let cells = Cells::read_from(reader, rows, column.optional)?;
                Ok((column.name.clone(), cells))
            })
            .collect::<ParquetResult<_>>()?;
        Ok(Some(Batch { rows, columns }))
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.read().map_err(|e| TableError::from_parquet(&self.path, e)).transpose()?;
        Some(batch.and_then(
            |batch| match batch.columns.iter().find(|(_, cells)| cells.len() != batch.rows) {
                None => Ok(batch),
                Some((name, _)) => Err(TableError::Format {
                    path: self.path.clone(),
                    reason: format!("column \"{name}\" has fewer rows than its row group"),
                }),
            },
        ))
    }
}

/// Consecutive rows of a file.
pub struct Batch {
    rows: usize,
    columns: Vec<(String, Cells)>,
}

impl Batch {
    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Cells of a column without absent cells; nothing if there is no such column of this type.
    #[expect(private_bounds, reason = "the types are listed in `cell`, and are Rust's own")]
    pub fn required<T: Readable>(&self, name: &str) -> Option<Vec<T>> {
        let cells = self.cells(name)?;
        let values = T::read(&cells.values)?;
        (values.len() == self.rows).then_some(values)
    }

    /// Cells of a column; nothing if there is no such column of this type.
    #[expect(private_bounds, reason = "the types are listed in `cell`, and are Rust's own")]
    pub fn optional<T: Readable>(&self, name: &str) -> Option<Vec<Option<T>>> {
        let cells = self.cells(name)?;
        let mut values = T::read(&cells.values)?.into_iter();
        Some(match &cells.present {
            None => values.map(Some).collect(),
            Some(present) => {
                present.iter().map(|level| if *level > 0 { values.next() } else { None }).collect()
            }
        })
    }

    fn cells(&self, name: &str) -> Option<&Cells> {
        self.columns.iter().find(|(column, _)| column == name).map(|(_, cells)| cells)
    }
}
