//! `cellar awr read --parquet`: all reports of a command as two Parquet files, `reports.parquet` and `cells.parquet`.
//!
//! docs/reading-oracle-reports.md describes the columns. Cells are written in row groups of [`GROUP_ROWS`], so that memory does not
//! grow with the number of reports. A file appears under its name when it is complete.

use crate::awr::source::Failure;
use cellar_awr::oracle::model::Report;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const GROUP_ROWS: usize = 256 * 1024;
/// Name and type of a column; an optional column can be null.
type Definition = (&'static str, Type, bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Integer,
    Long,
    Number,
    Text,
}

const REPORTS: [Definition; 24] = [
    ("report", Type::Integer, false),
    ("file", Type::Text, false),
    ("kind", Type::Text, false),
    ("form", Type::Text, false),
    ("encoding", Type::Text, false),
    ("bytes", Type::Long, false),
    ("db_name", Type::Text, true),
    ("db_id", Type::Long, true),
    ("unique_name", Type::Text, true),
    ("container", Type::Text, true),
    ("release", Type::Text, true),
    ("instances", Type::Text, true),
    ("hosts", Type::Text, true),
    ("begin_snap", Type::Long, true),
    ("begin_time", Type::Text, true),
    ("end_snap", Type::Long, true),
    ("end_time", Type::Text, true),
    ("elapsed_us", Type::Number, true),
    ("db_time_us", Type::Number, true),
    ("cpus", Type::Number, true),
    ("memory_bytes", Type::Number, true),
    ("cells", Type::Long, false),
    ("unplaced", Type::Long, false),
    ("warnings", Type::Integer, false),
];

const CELLS: [Definition; 12] = [
    ("report", Type::Integer, false),
    ("heading", Type::Text, false),
    ("table", Type::Integer, false),
    ("row", Type::Integer, false),
    ("line", Type::Integer, false),
    ("label", Type::Text, true),
    ("column", Type::Integer, false),
    ("column_group", Type::Text, true),
    ("column_name", Type::Text, true),
    ("text", Type::Text, false),
    ("value", Type::Number, true),
    ("unit", Type::Text, true),
];

/// The schema of a file in Parquet's notation.
fn schema(definitions: &[Definition]) -> String {
    let field = |(name, kind, optional): &Definition| {
        let repetition = if *optional { "OPTIONAL" } else { "REQUIRED" };
        match kind {
            Type::Integer => format!("{repetition} INT32 {name};"),
            Type::Long => format!("{repetition} INT64 {name};"),
            Type::Number => format!("{repetition} DOUBLE {name};"),
            Type::Text => format!("{repetition} BYTE_ARRAY {name} (STRING);"),
        }
    };
    format!("message cellar {{ {} }}", definitions.iter().map(field).collect::<Vec<_>>().join(" "))
}

/// A value of a row.
enum Value {
    Null,
    Integer(usize),
    Long(u64),
    Number(f64),
    Text(ByteArray),
}

impl Value {
    /// Null for an empty text.
    fn known(text: &str) -> Self {
        if text.is_empty() { Self::Null } else { Self::Text(text.into()) }
    }

    fn number(number: Option<f64>) -> Self {
        number.map_or(Self::Null, Self::Number)
    }

    fn long(number: Option<u64>) -> Self {
        number.map_or(Self::Null, Self::Long)
    }
}

/// The values of a column of the row group. Only the list of the column's type is filled.
#[derive(Default)]
struct Column {
    integers: Vec<i32>,
    longs: Vec<i64>,
    numbers: Vec<f64>,
    texts: Vec<ByteArray>,
    /// 1 for a value, 0 for null.
    levels: Vec<i16>,
}

impl Column {
    fn push(&mut self, value: Value) {
        self.levels.push(i16::from(!matches!(value, Value::Null)));
        match value {
            Value::Null => {}
            Value::Integer(value) => self.integers.push(i32::try_from(value).unwrap_or(i32::MAX)),
            Value::Long(value) => self.longs.push(i64::try_from(value).unwrap_or(i64::MAX)),
            Value::Number(value) => self.numbers.push(value),
            Value::Text(value) => self.texts.push(value),
        }
    }
}

/// A file that is being written.
struct Output {
    path: PathBuf,
    part: PathBuf,
    writer: SerializedFileWriter<BufWriter<File>>,
    definitions: &'static [Definition],
    columns: Vec<Column>,
}

impl Output {
    fn create(folder: &Path, name: &str, definitions: &'static [Definition]) -> Result<Self, Failure> {
        let path = folder.join(name);
        let part = folder.join(format!("{name}.part"));
        let file = File::create(&part).map_err(|error| could_not_write(&part, &error))?;
        let schema = parse_message_type(&schema(definitions)).map_err(|error| could_not_write(&path, &error))?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = SerializedFileWriter::new(BufWriter::new(file), Arc::new(schema), Arc::new(properties))
            .map_err(|error| could_not_write(&path, &error))?;
        let columns = definitions.iter().map(|_| Column::default()).collect();
        Ok(Self { path, part, writer, definitions, columns })
    }

    fn push<const N: usize>(&mut self, row: [Value; N]) -> Result<(), Failure> {
        debug_assert_eq!(N, self.columns.len());
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.push(value);
        }
        match self.columns[0].levels.len() >= GROUP_ROWS {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes the rows so far as a row group.
    fn flush(&mut self) -> Result<(), Failure> {
        if self.columns[0].levels.is_empty() {
            return Ok(());
        }
        let columns = std::mem::take(&mut self.columns);
        self.columns = columns.iter().map(|_| Column::default()).collect();
        write_group(&mut self.writer, self.definitions, &columns).map_err(|error| could_not_write(&self.path, &error))
    }

    fn finish(mut self) -> Result<(), Failure> {
        self.flush()?;
        self.writer.close().map_err(|error| could_not_write(&self.path, &error))?;
        std::fs::rename(&self.part, &self.path).map_err(|error| could_not_write(&self.path, &error))
    }
}

fn write_group(
    writer: &mut SerializedFileWriter<BufWriter<File>>,
    definitions: &[Definition],
    columns: &[Column],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for ((_, kind, optional), column) in definitions.iter().zip(columns) {
        let Some(mut out) = group.next_column()? else { break };
        let levels = optional.then_some(column.levels.as_slice());
        match kind {
            Type::Integer => out.typed::<Int32Type>().write_batch(&column.integers, levels, None)?,
            Type::Long => out.typed::<Int64Type>().write_batch(&column.longs, levels, None)?,
            Type::Number => out.typed::<DoubleType>().write_batch(&column.numbers, levels, None)?,
            Type::Text => out.typed::<ByteArrayType>().write_batch(&column.texts, levels, None)?,
        };
        out.close()?;
    }
    group.close()?;
    Ok(())
}

fn could_not_write(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::error(format!("could not write \"{}\": {error}", path.display()))
}

/// The files of a command.
pub struct ParquetFiles {
    reports: Output,
    cells: Output,
    count: usize,
    cell_count: u64,
}

impl ParquetFiles {
    /// Creates the folder and the files.
    pub fn create(folder: &Path) -> Result<Self, Failure> {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::error(format!("could not create \"{}\": {error}", folder.display())))?;
        Ok(Self {
            reports: Output::create(folder, "reports.parquet", &REPORTS)?,
            cells: Output::create(folder, "cells.parquet", &CELLS)?,
            count: 0,
            cell_count: 0,
        })
    }

    pub fn add(&mut self, report: &Report) -> Result<(), Failure> {
        self.count += 1;
        self.add_report(report)?;
        for section in report.sections() {
            let heading = ByteArray::from(section.heading());
            for table in section.tables() {
                self.add_table(&heading, table)?;
            }
        }
        Ok(())
    }

    fn add_report(&mut self, report: &Report) -> Result<(), Failure> {
        let header = &report.header;
        let names = |name: fn(&cellar_awr::oracle::model::Instance) -> &str| {
            let names: Vec<&str> = header.instances.iter().map(name).filter(|name| !name.is_empty()).collect();
            Value::known(&names.join(","))
        };
        self.reports.push([
            Value::Integer(self.count),
            Value::Text(report.name.as_str().into()),
            Value::Text(report.kind.name().into()),
            Value::Text(report.form.name().into()),
            Value::Text(report.encoding.into()),
            Value::Long(report.bytes),
            Value::known(&header.db_name),
            Value::long(header.db_id),
            Value::known(&header.unique_name),
            Value::known(&header.container),
            Value::known(&header.release),
            names(|instance| &instance.name),
            names(|instance| &instance.host),
            Value::long(header.begin.snap_id),
            Value::known(&header.begin.time),
            Value::long(header.end.snap_id),
            Value::known(&header.end.time),
            Value::number(header.elapsed_us),
            Value::number(header.db_time_us),
            Value::number(header.cpus),
            Value::number(header.memory_bytes),
            Value::Long(report.counts.read),
            Value::Long(report.counts.unplaced),
            Value::Integer(report.warnings.len()),
        ])
    }

    /// Adds the cells of a table that are not blank.
    fn add_table(&mut self, heading: &ByteArray, table: cellar_awr::oracle::model::Table<'_>) -> Result<(), Failure> {
        // A text is shared by the cells of a column or a row: clones do not copy the bytes.
        let text = |text: &str| (!text.is_empty()).then(|| ByteArray::from(text));
        let columns: Vec<(Option<ByteArray>, Option<ByteArray>)> =
            table.columns().map(|column| (text(column.group()), text(column.name()))).collect();
        let known = |text: &Option<ByteArray>| text.clone().map_or(Value::Null, Value::Text);
        for (number, row) in table.rows().enumerate() {
            let label = text(row.text(0));
            for (column, cell) in row.cells().enumerate().filter(|(_, cell)| !cell.is_empty()) {
                let value = row.value(column);
                let (group, name) = columns.get(column).map_or((&None, &None), |(group, name)| (group, name));
                self.cells.push([
                    Value::Integer(self.count),
                    Value::Text(heading.clone()),
                    Value::Integer(table.index()),
                    Value::Integer(number),
                    Value::Integer(row.line() as usize),
                    known(&label),
                    Value::Integer(column),
                    known(group),
                    known(name),
                    Value::Text(cell.into()),
                    Value::number(value.map(|value| value.number)),
                    Value::known(value.map_or("", |value| value.unit.base())),
                ])?;
                self.cell_count += 1;
            }
        }
        Ok(())
    }

    /// Completes the files, and returns a line about them. Without a report, there are no files.
    pub fn finish(self) -> Result<String, Failure> {
        if self.count == 0 {
            for part in [&self.reports.part, &self.cells.part] {
                std::fs::remove_file(part).map_err(|error| could_not_write(part, &error))?;
            }
            return Ok(String::new());
        }
        let line = format!(
            "{}: {} reports; {}: {} cells\n",
            self.reports.path.display(),
            self.count,
            self.cells.path.display(),
            self.cell_count
        );
        self.reports.finish()?;
        self.cells.finish()?;
        Ok(line)
    }
}
