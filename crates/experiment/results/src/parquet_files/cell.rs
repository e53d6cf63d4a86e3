//! Types of columns, and batches of cells in the form that Parquet reads and writes: the values that are
//! present, and for an optional column which ones are.

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::writer::SerializedColumnWriter;
use parquet::schema::types::Type;

/// Type of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    UInt32,
    UInt64,
    Float64,
    Bool,
    Text,
}

impl Kind {
    /// Entry of the file's schema.
    pub(super) fn field(self, name: &str, optional: bool) -> Result<Type> {
        let unsigned = |bit_width| Some(LogicalType::Integer { bit_width, is_signed: false });
        let (physical, logical) = match self {
            Self::UInt32 => (Physical::INT32, unsigned(32)),
            Self::UInt64 => (Physical::INT64, unsigned(64)),
            Self::Float64 => (Physical::DOUBLE, None),
            Self::Bool => (Physical::BOOLEAN, None),
            Self::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let repetition = if optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        Type::primitive_type_builder(name, physical)
            .with_logical_type(logical)
            .with_repetition(repetition)
            .build()
    }
}

/// Values of one column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Values {
    /// 32-bit integers; unsigned ones keep their bits.
    Int32(Vec<i32>),
    /// 64-bit integers; unsigned ones keep their bits.
    Int64(Vec<i64>),
    Double(Vec<f64>),
    Bool(Vec<bool>),
    Bytes(Vec<ByteArray>),
}

/// Cells of one column in consecutive rows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cells {
    /// Values of the cells that have one.
    pub(super) values: Values,
    /// For an optional column, 1 for each cell that has a value and 0 for each that has none.
    pub(super) present: Option<Vec<i16>>,
}

impl Cells {
    pub(super) fn required<T: Cell>(cells: impl Iterator<Item = T>) -> Self {
        Self { values: T::values(cells.collect()), present: None }
    }

    pub(super) fn optional<T: Cell>(cells: impl Iterator<Item = Option<T>>) -> Self {
        let mut present = Vec::with_capacity(cells.size_hint().0);
        let values = cells.inspect(|cell| present.push(i16::from(cell.is_some()))).flatten().collect();
        Self { values: T::values(values), present: Some(present) }
    }

    /// Number of cells, with and without value.
    pub(super) fn len(&self) -> usize {
        self.present.as_ref().map_or_else(|| self.values.len(), Vec::len)
    }

    /// Appends the cells to a column that is being written.
    pub(super) fn write_to(&self, writer: &mut SerializedColumnWriter<'_>) -> Result<()> {
        let present = self.present.as_deref();
        match &self.values {
            Values::Int32(values) => writer.typed::<Int32Type>().write_batch(values, present, None),
            Values::Int64(values) => writer.typed::<Int64Type>().write_batch(values, present, None),
            Values::Double(values) => writer.typed::<DoubleType>().write_batch(values, present, None),
            Values::Bool(values) => writer.typed::<BoolType>().write_batch(values, present, None),
            Values::Bytes(values) => writer.typed::<ByteArrayType>().write_batch(values, present, None),
        }
        .map(drop)
    }

    /// Reads at most `rows` cells of a column whose cells may be absent if `optional`.
    pub(super) fn read_from(reader: &mut ColumnReader, rows: usize, optional: bool) -> Result<Self> {
        fn typed<T: DataType>(
            reader: &mut ColumnReaderImpl<T>,
            rows: usize,
            present: &mut Vec<i16>,
        ) -> Result<Vec<T::T>> {
            let mut values = Vec::new();
            reader.read_records(rows, Some(present), None, &mut values)?;
            Ok(values)
        }
        let mut levels = Vec::new();
        let present = &mut levels;
        let values = match reader {
            ColumnReader::BoolColumnReader(r) => Values::Bool(typed(r, rows, present)?),
            ColumnReader::Int32ColumnReader(r) => Values::Int32(typed(r, rows, present)?),
            ColumnReader::Int64ColumnReader(r) => Values::Int64(typed(r, rows, present)?),
            ColumnReader::DoubleColumnReader(r) => Values::Double(typed(r, rows, present)?),
            ColumnReader::ByteArrayColumnReader(r) => Values::Bytes(typed(r, rows, present)?),
            _ => return Err(ParquetError::General("a column of a type that vmcc does not write".into())),
        };
        Ok(Self { values, present: optional.then_some(levels) })
    }
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::Int32(values) => values.len(),
            Self::Int64(values) => values.len(),
            Self::Double(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::Bytes(values) => values.len(),
        }
    }
}

/// A type that cells of a column have in Rust.
pub(super) trait Cell: Sized {
    /// Type of the column.
    const KIND: Kind;

    /// Cells in Parquet's form.
    fn values(cells: Vec<Self>) -> Values;
}

/// A type of cells that can be read back.
pub(super) trait Readable: Cell {
    /// The cells, if they are of this type.
    fn read(values: &Values) -> Option<Vec<Self>>;
}

impl Cell for u32 {
    const KIND: Kind = Kind::UInt32;

    fn values(cells: Vec<Self>) -> Values {
        Values::Int32(cells.into_iter().map(u32::cast_signed).collect())
    }
}

impl Readable for u32 {
    fn read(values: &Values) -> Option<Vec<Self>> {
        let Values::Int32(values) = values else { return None };
        Some(values.iter().map(|v| v.cast_unsigned()).collect())
    }
}

impl Cell for u64 {
    const KIND: Kind = Kind::UInt64;

    fn values(cells: Vec<Self>) -> Values {
        Values::Int64(cells.into_iter().map(u64::cast_signed).collect())
    }
}

impl Readable for u64 {
    fn read(values: &Values) -> Option<Vec<Self>> {
        let Values::Int64(values) = values else { return None };
        Some(values.iter().map(|v| v.cast_unsigned()).collect())
    }
}

impl Cell for f64 {
    const KIND: Kind = Kind::Float64;

    fn values(cells: Vec<Self>) -> Values {
        Values::Double(cells)
    }
}

impl Readable for f64 {
    fn read(values: &Values) -> Option<Vec<Self>> {
        let Values::Double(values) = values else { return None };
        Some(values.clone())
    }
}

impl Cell for bool {
    const KIND: Kind = Kind::Bool;

    fn values(cells: Vec<Self>) -> Values {
        Values::Bool(cells)
    }
}

impl Readable for bool {
    fn read(values: &Values) -> Option<Vec<Self>> {
        let Values::Bool(values) = values else { return None };
        Some(values.clone())
    }
}

impl Cell for &str {
    const KIND: Kind = Kind::Text;

    fn values(cells: Vec<Self>) -> Values {
        Values::Bytes(cells.into_iter().map(ByteArray::from).collect())
    }
}

impl Cell for String {
    const KIND: Kind = Kind::Text;

    fn values(cells: Vec<Self>) -> Values {
        Values::Bytes(cells.into_iter().map(|text| ByteArray::from(text.into_bytes())).collect())
    }
}

impl Readable for String {
    fn read(values: &Values) -> Option<Vec<Self>> {
        let Values::Bytes(values) = values else { return None };
        values.iter().map(|v| v.as_utf8().ok().map(str::to_owned)).collect()
    }
}
