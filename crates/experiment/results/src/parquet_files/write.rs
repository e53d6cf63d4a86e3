//! Files from columns, and from the rows of other files.

use super::cell::Cells;
use super::columns::Column;
use super::read::{is_optional, open};
use super::{BATCH_ROWS, TableError};
use parquet::basic::Compression;
use parquet::column::reader::ColumnReader;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Rows of a row group, at most, if they come from columns.
const GROUP_ROWS: usize = 1 << 20;

/// Files whose rows may share a row group: bounds the open files.
const GROUP_FILES: usize = 64;

/// Writes the first `rows` rows of `columns` to a new file, and `metadata` beside them.
pub(super) fn table(
    path: &Path,
    columns: &[Column<'_>],
    rows: usize,
    metadata: Vec<(String, String)>,
) -> Result<(), TableError> {
    let fields = columns.iter().map(|c| Ok(Arc::new(c.kind.field(&c.name, c.optional)?)));
    let schema = fields
        .collect::<ParquetResult<_>>()
        .and_then(|fields| Type::group_type_builder("schema").with_fields(fields).build())
        .map_err(|e| TableError::from_parquet(path, e))?;
    let metadata = metadata.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect();
    let mut file = NewFile::create(path, Arc::new(schema), Some(metadata))?;
    for group in (0..rows).step_by(GROUP_ROWS) {
        let end = rows.min(group + GROUP_ROWS);
        file.write_group(|index, writer| {
            for start in (group..end).step_by(BATCH_ROWS) {
                let cells = (columns[index].cells)(start..end.min(start + BATCH_ROWS));
                cells.write_to(writer)?;
            }
            Ok(())
        })?;
    }
    file.finish()
}

/// Copies the rows of `parts`, in order, into one new file at `path`.
pub(super) fn concatenation(path: &Path, parts: &[PathBuf]) -> Result<(), TableError> {
    let Some(first) = parts.first() else { return Ok(()) };
    let opened = open(first)?;
    let schema = schema_of(&opened);
    let metadata = opened.metadata().file_metadata().key_value_metadata().cloned();
    let mut file = NewFile::create(path, schema.clone(), metadata)?;
    let mut group: Vec<SerializedFileReader<File>> = Vec::new();
    let mut rows = 0;
    for part in parts {
        let reader = open(part)?;
        if schema_of(&reader) != schema {
            return Err(TableError::Format {
                path: part.clone(),
                reason: format!("its columns are not those of {}", first.display()),
            });
        }
        rows += usize::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or(0);
        group.push(reader);
        if rows >= GROUP_ROWS || group.len() == GROUP_FILES {
            file.copy_group(&group)?;
            group.clear();
            rows = 0;
        }
    }
    if rows > 0 {
        file.copy_group(&group)?;
    }
    file.finish()
}

fn schema_of(file: &SerializedFileReader<File>) -> TypePtr {
    file.metadata().file_metadata().schema_descr().root_schema_ptr()
}

/// A file that keeps the first error of the system: the Parquet library passes some on as text only, and a full
/// disk must be told from a fault.
struct ErrorKeeper {
    file: File,
    first_error: Arc<OnceLock<i32>>,
}

impl ErrorKeeper {
    fn noted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(code) = result.as_ref().map_err(|e| e.raw_os_error().unwrap_or(0)) {
            // Only the first one counts.
            let _ = self.first_error.set(code);
        }
        result
    }
}

impl Write for ErrorKeeper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.file.write(bytes);
        self.noted(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.file.flush();
        self.noted(result)
    }
}

/// A file being written; keeps the path for messages.
struct NewFile<'a> {
    path: &'a Path,
    inner: SerializedFileWriter<ErrorKeeper>,
    first_error: Arc<OnceLock<i32>>,
}

impl<'a> NewFile<'a> {
    fn create(path: &'a Path, schema: TypePtr, metadata: Option<Vec<KeyValue>>) -> Result<Self, TableError> {
        let file =
            File::create_new(path).map_err(|source| TableError::Io { path: path.to_owned(), source })?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(metadata)
            .set_created_by(concat!("vmcc ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let first_error = Arc::new(OnceLock::new());
        let file = ErrorKeeper { file, first_error: Arc::clone(&first_error) };
        let inner = SerializedFileWriter::new(file, schema, Arc::new(properties))
            .map_err(|e| failure(path, &first_error, e))?;
        Ok(Self { path, inner, first_error })
    }

    /// Writes one row group; `column` writes the cells of the column with that index.
    fn write_group(
        &mut self,
        column: impl FnMut(usize, &mut SerializedColumnWriter<'_>) -> ParquetResult<()>,
    ) -> Result<(), TableError> {
        self.try_write_group(column).map_err(|e| failure(self.path, &self.first_error, e))
    }

    fn try_write_group(
        &mut self,
        mut column: impl FnMut(usize, &mut SerializedColumnWriter<'_>) -> ParquetResult<()>,
    ) -> ParquetResult<()> {
        let mut group = self.inner.next_row_group()?;
        let mut index = 0;
        while let Some(mut writer) = group.next_column()? {
            column(index, &mut writer)?;
            writer.close()?;
            index += 1;
        }
        group.close().map(drop)
    }

    /// Writes all rows of files with the same columns as one row group.
    fn copy_group(&mut self, files: &[SerializedFileReader<File>]) -> Result<(), TableError> {
        self.write_group(|index, writer| files.iter().try_for_each(|file| copy_column(file, index, writer)))
    }

    fn finish(self) -> Result<(), TableError> {
        let path = self.path;
        let file = self.inner.into_inner().map_err(|e| failure(path, &self.first_error, e))?.file;
        file.sync_all().map_err(|source| TableError::Io { path: path.to_owned(), source })
    }
}

fn copy_column(
    file: &SerializedFileReader<File>,
    index: usize,
    writer: &mut SerializedColumnWriter<'_>,
) -> ParquetResult<()> {
    let optional = is_optional(&file.metadata().file_metadata().schema_descr().column(index));
    for group in 0..file.num_row_groups() {
        let mut reader: ColumnReader = file.get_row_group(group)?.get_column_reader(index)?;
        loop {
            let cells = Cells::read_from(&mut reader, BATCH_ROWS, optional)?;
            if cells.len() == 0 {
                break;
            }
            cells.write_to(writer)?;
        }
    }
    Ok(())
}

fn failure(path: &Path, first_error: &OnceLock<i32>, error: ParquetError) -> TableError {
    match first_error.get() {
        Some(code) => TableError::Io { path: path.to_owned(), source: io::Error::from_raw_os_error(*code) },
        None => TableError::from_parquet(path, error),
    }
}
