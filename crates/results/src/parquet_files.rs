//! Flow records and time series as Parquet, for pandas, Polars, DuckDB and the report.
//!
//! Both files start with the columns `case`, `run`, `seed` and one `set.<key>` column per swept key: a number
//! column when every case gives a number, else text. Compression is Snappy, which every reader has.

use crate::{FlowRecord, RunOutput, Series, Settings};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use vmcc_files::ReadError;

/// Rows converted at a time: bounds the memory that conversion takes beside the run's own buffers.
const BATCH_ROWS: usize = 65_536;

/// Why a Parquet file could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The file could not be opened, written or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The content is not what this version writes.
    #[error("{}: not a table of this version of vmcc ({reason})", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
}

impl TableError {
    fn from_parquet(path: &Path, error: ParquetError) -> Self {
        match error {
            ParquetError::External(inner) => match inner.downcast::<io::Error>() {
                Ok(source) => Self::Io { path: path.to_owned(), source: *source },
                Err(other) => Self::Format { path: path.to_owned(), reason: other.to_string() },
            },
            other => Self::Format { path: path.to_owned(), reason: other.to_string() },
        }
    }

    fn from_arrow(path: &Path, error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, source) => Self::Io { path: path.to_owned(), source },
            other => Self::Format { path: path.to_owned(), reason: other.to_string() },
        }
    }
}

/// The swept keys of a whole result, with the type each has over all cases.
#[derive(Debug, Clone, PartialEq)]
pub struct SetColumns(Vec<(String, DataType)>);

impl SetColumns {
    /// Looks at every case: a key is a number column when each case that has it gives a number.
    pub fn of(cases: &[Settings]) -> Self {
        let mut columns: Vec<(String, DataType)> = Vec::new();
        for (key, value) in cases.iter().flatten() {
            let found = columns.iter_mut().find(|(name, _)| name == key);
            match (found, value.is_number()) {
                (None, true) => columns.push((key.clone(), DataType::Float64)),
                (None, false) => columns.push((key.clone(), DataType::Utf8)),
                (Some(column), false) => column.1 = DataType::Utf8,
                (Some(_), true) => {}
            }
        }
        Self(columns)
    }
}

/// Which run the rows belong to.
#[derive(Debug, Clone, Copy)]
pub struct RunKey<'a> {
    /// Index of the case.
    pub case: u32,
    /// Index of the run within the case.
    pub run: u32,
    /// Seed of the run.
    pub seed: u64,
    /// What the case sets.
    pub set: &'a Settings,
}

/// Writes the flow records of one run to a new file at `path`.
///
/// # Errors
/// When the file cannot be written.
pub fn write_flows(
    path: &Path,
    columns: &SetColumns,
    key: RunKey<'_>,
    output: &RunOutput,
) -> Result<(), TableError> {
    let mut writer = Writer::create(path, schema(columns, flow_fields()))?;
    for chunk in output.flows.chunks(BATCH_ROWS) {
        let mut arrays = key_arrays(columns, key, chunk.len());
        arrays.extend(flow_arrays(chunk));
        writer.write_arrays(arrays)?;
    }
    writer.finish()
}

/// Writes the time series of one run to a new file at `path`.
///
/// # Errors
/// When the file cannot be written.
pub fn write_series(
    path: &Path,
    columns: &SetColumns,
    key: RunKey<'_>,
    series: &Series,
) -> Result<(), TableError> {
    let mut writer = Writer::create(path, schema(columns, series_fields()))?;
    for start in (0..series.len()).step_by(BATCH_ROWS) {
        let rows = BATCH_ROWS.min(series.len() - start);
        let points = || series.range(start..start + rows);
        let mut arrays = key_arrays(columns, key, rows);
        arrays.push(Arc::new(UInt64Array::from_iter_values(points().map(|p| p.t_us))));
        arrays.push(Arc::new(StringArray::from_iter_values(points().map(|p| p.entity))));
        arrays.push(Arc::new(StringArray::from_iter_values(points().map(|p| p.metric))));
        arrays.push(Arc::new(Float64Array::from_iter_values(points().map(|p| p.value))));
        writer.write_arrays(arrays)?;
    }
    writer.finish()
}

/// Copies the rows of `parts`, in order, into one new file at `path`. All parts must have the same columns.
///
/// # Errors
/// When a part cannot be read, the parts differ, or the file cannot be written.
pub fn concatenate(path: &Path, parts: &[PathBuf]) -> Result<(), TableError> {
    let Some(first) = parts.first() else { return Ok(()) };
    let mut writer = Writer::create(path, builder(first)?.schema().clone())?;
    for part in parts {
        for batch in read_columns(part, &[])? {
            writer.write(&batch.map_err(|e| TableError::from_arrow(part, e))?)?;
        }
    }
    writer.finish()
}

/// Opens a file to read the named columns (all when `names` is empty), batch by batch.
///
/// # Errors
/// When the file cannot be opened or is not Parquet.
pub fn read_columns(path: &Path, names: &[&str]) -> Result<ParquetRecordBatchReader, TableError> {
    let builder = builder(path)?;
    let mask = if names.is_empty() {
        ProjectionMask::all()
    } else {
        ProjectionMask::columns(builder.parquet_schema(), names.iter().copied())
    };
    builder
        .with_projection(mask)
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|e| TableError::from_parquet(path, e))
}

fn builder(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>, TableError> {
    let file = vmcc_files::open_regular(path).map_err(|e| match e {
        ReadError::Io(source) => TableError::Io { path: path.to_owned(), source },
        other => TableError::Format { path: path.to_owned(), reason: other.to_string() },
    })?;
    ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| TableError::from_parquet(path, e))
}

/// A file that remembers the first error of the system: the Parquet library passes some on as text only, and a
/// full disk must be told from a fault.
struct Remembering {
    file: File,
    first_error: Arc<OnceLock<i32>>,
}

impl Remembering {
    fn noted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(code) = result.as_ref().map_err(|e| e.raw_os_error().unwrap_or(0)) {
            // Only the first one counts.
            let _ = self.first_error.set(code);
        }
        result
    }
}

impl Write for Remembering {
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
struct Writer<'a> {
    path: &'a Path,
    schema: SchemaRef,
    inner: ArrowWriter<Remembering>,
    first_error: Arc<OnceLock<i32>>,
}

impl<'a> Writer<'a> {
    fn create(path: &'a Path, schema: SchemaRef) -> Result<Self, TableError> {
        let file =
            File::create_new(path).map_err(|source| TableError::Io { path: path.to_owned(), source })?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("vmcc ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let first_error = Arc::new(OnceLock::new());
        let file = Remembering { file, first_error: Arc::clone(&first_error) };
        let inner = ArrowWriter::try_new(file, schema.clone(), Some(properties))
            .map_err(|e| failure(path, &first_error, e))?;
        Ok(Self { path, schema, inner, first_error })
    }

    fn write_arrays(&mut self, arrays: Vec<ArrayRef>) -> Result<(), TableError> {
        let batch = RecordBatch::try_new(self.schema.clone(), arrays)
            .map_err(|e| TableError::from_arrow(self.path, e))?;
        self.write(&batch)
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), TableError> {
        self.inner.write(batch).map_err(|e| failure(self.path, &self.first_error, e))
    }

    fn finish(self) -> Result<(), TableError> {
        let path = self.path;
        let file = self.inner.into_inner().map_err(|e| failure(path, &self.first_error, e))?.file;
        file.sync_all().map_err(|source| TableError::Io { path: path.to_owned(), source })
    }
}

fn failure(path: &Path, first_error: &OnceLock<i32>, error: ParquetError) -> TableError {
    match first_error.get() {
        Some(code) => TableError::Io { path: path.to_owned(), source: io::Error::from_raw_os_error(*code) },
        None => TableError::from_parquet(path, error),
    }
}

fn schema(columns: &SetColumns, own: Vec<Field>) -> SchemaRef {
    let mut fields = vec![
        Field::new("case", DataType::UInt32, false),
        Field::new("run", DataType::UInt32, false),
        Field::new("seed", DataType::UInt64, false),
    ];
    fields.extend(columns.0.iter().map(|(key, kind)| Field::new(format!("set.{key}"), kind.clone(), true)));
    fields.extend(own);
    Arc::new(Schema::new(fields))
}

fn key_arrays(columns: &SetColumns, key: RunKey<'_>, rows: usize) -> Vec<ArrayRef> {
    let mut arrays: Vec<ArrayRef> = vec![
        Arc::new(UInt32Array::from_value(key.case, rows)),
        Arc::new(UInt32Array::from_value(key.run, rows)),
        Arc::new(UInt64Array::from_value(key.seed, rows)),
    ];
    for (name, kind) in &columns.0 {
        let value = key.set.get(name);
        arrays.push(match kind {
            DataType::Float64 => {
                let number = value.and_then(Value::as_f64);
                Arc::new(Float64Array::from_iter(std::iter::repeat_n(number, rows)))
            }
            _ => {
                let text = value.map(plain_text);
                Arc::new(StringArray::from_iter(std::iter::repeat_n(text, rows)))
            }
        });
    }
    arrays
}

/// A setting as a person writes it: text without quotes, anything else as JSON.
pub fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn series_fields() -> Vec<Field> {
    vec![
        Field::new("t_us", DataType::UInt64, false),
        Field::new("entity", DataType::Utf8, false),
        Field::new("metric", DataType::Utf8, false),
        Field::new("value", DataType::Float64, false),
    ]
}

fn flow_fields() -> Vec<Field> {
    use DataType::{Boolean, Float64, UInt32, UInt64, Utf8};
    let fields = [
        ("flow", UInt64, false),
        ("traffic", Utf8, false),
        ("from", Utf8, false),
        ("to", Utf8, false),
        ("cc", Utf8, false),
        ("subflows", UInt32, false),
        ("start_us", UInt64, false),
        ("end_us", UInt64, true),
        ("size_bytes", UInt64, true),
        ("delivered_bytes", UInt64, false),
        ("completed", Boolean, false),
        ("measured", Boolean, false),
        ("goodput_bps", Float64, true),
        ("fct_us", Float64, true),
        ("rtt_mean_us", Float64, true),
        ("rtt_p50_us", Float64, true),
        ("rtt_p99_us", Float64, true),
        ("retransmits", UInt64, true),
        ("timeouts", UInt64, true),
        ("ce_marks", UInt64, true),
    ];
    fields.map(|(name, kind, nullable)| Field::new(name, kind, nullable)).to_vec()
}

/// In the order of [`flow_fields`].
fn flow_arrays(flows: &[FlowRecord]) -> Vec<ArrayRef> {
    fn text(flows: &[FlowRecord], field: impl Fn(&FlowRecord) -> &str) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(flows.iter().map(field)))
    }
    fn count(flows: &[FlowRecord], field: impl Fn(&FlowRecord) -> Option<u64>) -> ArrayRef {
        Arc::new(UInt64Array::from_iter(flows.iter().map(field)))
    }
    fn number(flows: &[FlowRecord], field: impl Fn(&FlowRecord) -> Option<f64>) -> ArrayRef {
        Arc::new(Float64Array::from_iter(flows.iter().map(field)))
    }
    vec![
        count(flows, |f| Some(f.flow)),
        text(flows, |f| &f.traffic),
        text(flows, |f| &f.from),
        text(flows, |f| &f.to),
        text(flows, |f| &f.cc),
        Arc::new(UInt32Array::from_iter_values(flows.iter().map(|f| f.subflows))),
        count(flows, |f| Some(f.start_us)),
        count(flows, |f| f.end_us),
        count(flows, |f| f.size_bytes),
        count(flows, |f| Some(f.delivered_bytes)),
        Arc::new(BooleanArray::from_iter(flows.iter().map(|f| Some(f.completed)))),
        Arc::new(BooleanArray::from_iter(flows.iter().map(|f| Some(f.measured)))),
        number(flows, |f| f.goodput_bps),
        number(flows, |f| f.fct_us),
        number(flows, |f| f.rtt_mean_us),
        number(flows, |f| f.rtt_p50_us),
        number(flows, |f| f.rtt_p99_us),
        count(flows, |f| f.retransmits),
        count(flows, |f| f.timeouts),
        count(flows, |f| f.ce_marks),
    ]
}
