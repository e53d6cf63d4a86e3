//! Flow records and time series as Parquet, for pandas, Polars, DuckDB and the report.
//!
//! Both files start with the columns `case_index`, `run`, `seed` and one `set_<key>` column per swept key: a number
//! column when every case gives a number, else text. No name needs quotes in SQL. The file's metadata has unit and meaning of
//! each column, as JSON under the key `column.<name>`. Compression is Snappy, which every reader has.
//!
//! | module | job |
//! |---|---|
//! | `cell` | column types, and batches of cells in Parquet's own form |
//! | `columns` | the columns of each file |
//! | `write` | files from columns or from other files |
//! | `read` | batches of rows from files |

mod cell;
mod columns;
mod read;
mod write;

pub use columns::{RunKey, SetColumns, plain_text};
pub use read::{Batch, Batches, read_columns};

use crate::{RunOutput, Series};
use parquet::errors::ParquetError;
use std::io;
use std::path::{Path, PathBuf};
use vmcc_metrics::catalogue::Place;

/// Rows converted at a time: bounds the memory that conversion takes beside the run's own buffers.
const BATCH_ROWS: usize = 65_536;

/// Failure to write or read a Parquet file.
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
    let mut all = columns.of_run(key);
    all.extend(columns::of_flows(&output.flows));
    write::table(path, &all, output.flows.len(), columns.described(Place::Flow, &all))
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
    let mut all = columns.of_run(key);
    all.extend(columns::of_series(series));
    write::table(path, &all, series.len(), columns.described(Place::Series, &all))
}

/// Copies the rows of `parts`, in order, into one new file at `path`. All parts must have the same columns.
///
/// # Errors
/// When a part cannot be read, the parts differ, or the file cannot be written.
pub fn concatenate(path: &Path, parts: &[PathBuf]) -> Result<(), TableError> {
    write::concatenation(path, parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowRecord, Settings};
    use parquet::file::reader::FileReader;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;
    use vmcc_metrics::unit::Unit;

    const RUNS: u32 = 70;

    fn write_run(path: &Path, run: u32, flows: usize) {
        let set = Settings::from_iter([("cc".into(), json!("lia")), ("connections".into(), json!(3))]);
        let flows = (0..flows as u64).map(|flow| FlowRecord {
            flow,
            cc: "lia".into(),
            fct_us: flow.is_multiple_of(3).then_some(flow as f64),
            end_us: (!flow.is_multiple_of(3)).then_some(u64::MAX - flow),
            completed: flow.is_multiple_of(2),
            ..FlowRecord::default()
        });
        let output = RunOutput { flows: flows.collect(), ..RunOutput::default() };
        let key = RunKey { case: u32::MAX, run, seed: u64::MAX, set: &set };
        write_flows(path, &SetColumns::of(std::slice::from_ref(&set)), key, &output).unwrap();
    }

    fn check_run(path: &Path, runs: &[(u32, usize)]) {
        let mut expected = runs.iter().flat_map(|(run, flows)| (0..*flows as u64).map(|flow| (*run, flow)));
        for batch in read_columns(path, &[]).unwrap() {
            let batch = batch.unwrap();
            let (run, flow) = (batch.required::<u32>("run").unwrap(), batch.required::<u64>("flow").unwrap());
            let (fct, end) =
                (batch.optional::<f64>("fct_us").unwrap(), batch.optional::<u64>("end_us").unwrap());
            let completed = batch.required::<bool>("completed").unwrap();
            let set = batch.optional::<String>("set_cc").unwrap();
            assert_eq!(batch.required::<u32>("case_index").unwrap(), vec![u32::MAX; batch.num_rows()]);
            assert_eq!(batch.required::<u64>("seed").unwrap(), vec![u64::MAX; batch.num_rows()]);
            for row in 0..batch.num_rows() {
                assert_eq!(Some((run[row], flow[row])), expected.next());
                assert_eq!(fct[row], flow[row].is_multiple_of(3).then_some(flow[row] as f64));
                assert_eq!(end[row], (!flow[row].is_multiple_of(3)).then_some(u64::MAX - flow[row]));
                assert_eq!(completed[row], flow[row].is_multiple_of(2));
                assert_eq!(set[row].as_deref(), Some("lia"));
            }
        }
        assert_eq!(expected.next(), None);
    }

    #[test]
    fn rows_of_several_batches_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flows.parquet");
        write_run(&path, 0, 2 * BATCH_ROWS + 1);
        check_run(&path, &[(0, 2 * BATCH_ROWS + 1)]);
    }

    #[test]
    fn concatenation_keeps_the_order_of_more_files_than_share_a_row_group() {
        let folder = tempfile::tempdir().unwrap();
        let part = |run| folder.path().join(format!("{run}.parquet"));
        // Some parts have no rows.
        let runs: Vec<(u32, usize)> = (0..RUNS).map(|run| (run, (run % 4) as usize)).collect();
        for (run, flows) in &runs {
            write_run(&part(*run), *run, *flows);
        }
        let parts: Vec<PathBuf> = runs.iter().map(|(run, _)| part(*run)).collect();
        let whole = folder.path().join("flows.parquet");
        concatenate(&whole, &parts).unwrap();
        check_run(&whole, &runs);
    }

    fn metadata(path: &Path) -> BTreeMap<String, String> {
        let file = read::open(path).unwrap();
        let entries = file.metadata().file_metadata().key_value_metadata().unwrap();
        entries.iter().map(|entry| (entry.key.clone(), entry.value.clone().unwrap())).collect()
    }

    #[test]
    fn files_describe_unit_and_meaning_of_every_column() {
        let folder = tempfile::tempdir().unwrap();
        let (flows, series) = (folder.path().join("flows"), folder.path().join("series"));
        write_run(&flows, 0, 1);
        let set = Settings::from_iter([("host.cc".into(), json!("lia"))]);
        let key = RunKey { case: 0, run: 0, seed: 0, set: &set };
        let columns = SetColumns::of(std::slice::from_ref(&set));
        write_series(&series, &columns, key, &Series::default()).unwrap();
        let whole = folder.path().join("whole");
        concatenate(&whole, &[flows]).unwrap();
        for path in [&whole, &series] {
            let described = metadata(path);
            let file = read::open(path).unwrap();
            for column in file.metadata().file_metadata().schema_descr().columns() {
                let entry: Value =
                    serde_json::from_str(&described[&format!("column.{}", column.name())]).unwrap();
                assert!(
                    entry["meaning"].as_str().is_some_and(|meaning| meaning.len() > 8),
                    "{}",
                    column.name()
                );
                let unit = Unit::of_name(column.name()).map_or("", Unit::symbol);
                assert!(unit.is_empty() || entry["unit"] == unit, "{}: {entry}", column.name());
            }
        }
        assert!(metadata(&series)["column.set_host_cc"].contains("`host.cc`"));
    }

    #[test]
    fn set_columns_need_no_quotes_and_are_distinct() {
        let keys = ["traffic.a-b.cc", "traffic.a_b.cc", "Traffic.a.b.cc", "\u{fc}", "-"];
        let set = Settings::from_iter(keys.map(|key| (key.to_owned(), json!(1))));
        let columns =
            SetColumns::of(std::slice::from_ref(&set)).of_run(RunKey { case: 0, run: 0, seed: 0, set: &set });
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let plain = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        assert!(names.iter().all(plain), "{names:?}");
        assert_eq!(
            names[3..],
            ["set_traffic_a_b_cc", "set_traffic_a_b_cc_2", "set_Traffic_a_b_cc_3", "set__", "set___2"]
        );
    }

    #[test]
    fn concatenation_refuses_files_with_other_columns() {
        let folder = tempfile::tempdir().unwrap();
        let (flows, series) = (folder.path().join("flows"), folder.path().join("series"));
        write_run(&flows, 0, 1);
        let set = Settings::new();
        let key = RunKey { case: 0, run: 0, seed: 0, set: &set };
        write_series(&series, &SetColumns::of(&[]), key, &Series::default()).unwrap();
        let error = concatenate(&folder.path().join("whole"), &[flows, series.clone()]).unwrap_err();
        assert!(error.to_string().contains(&series.display().to_string()), "{error}");
    }

    #[test]
    fn columns_of_another_type_are_reported_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flows.parquet");
        write_run(&path, 0, 3);
        let batch = read_columns(&path, &["flow", "fct_us"]).unwrap().next().unwrap().unwrap();
        assert_eq!(batch.required::<u32>("flow"), None);
        assert_eq!(batch.required::<f64>("fct_us"), None, "some cells are absent");
        assert_eq!(batch.optional::<u64>("end_us"), None, "was not read");
    }

    #[test]
    fn damaged_files_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flows.parquet");
        write_run(&path, 0, 100);
        let whole = std::fs::read(&path).unwrap();
        for end in (0..whole.len()).step_by(7) {
            std::fs::write(&path, &whole[..end]).unwrap();
            assert!(read_columns(&path, &[]).is_err(), "{end} of {} bytes", whole.len());
        }
    }
}
