//! Segments: tables and indexes by reads, writes, scans, growth; unused indexes; HOT updates.

use super::{Group, Section, files};
use crate::document::{How, IndexStatistics, Measure, TableStatistics};
use crate::figures::{percent, ratio, sum};
use crate::table::{Cell, Table};
use crate::view::{View, top};

const ROWS: usize = 15;
/// Unused indexes below this size are not listed.
const UNUSED_INDEX_BYTES_MIN: f64 = 1_048_576.0;

pub fn sections(view: &View<'_>) -> Vec<Section> {
    if view.document.tables.is_empty() && view.document.indexes.is_empty() {
        let missing = view.missing("table_stat", "the snapshots contain no tables and indexes, or none was used");
        return vec![
            Section::new("segments-logical-reads", Group::Segments, "Segments by Logical Reads").sentence(missing),
        ];
    }
    let mut sections = segment_lists(view);
    sections.extend([writes(view), growth(view), unused_indexes(view), updates(view)]);
    sections
}

/// Blocks of a table and its indexes and TOAST table that were accessed.
pub(super) fn table_gets(table: &TableStatistics) -> Measure {
    let hits = [table.heap_blks_hit, table.idx_blks_hit, table.toast_blks_hit, table.tidx_blks_hit];
    sum([table_reads(table), sum(hits)])
}

/// Blocks of a table and its indexes and TOAST table that were read.
pub(super) fn table_reads(table: &TableStatistics) -> Measure {
    sum([table.heap_blks_read, table.idx_blks_read, table.toast_blks_read, table.tidx_blks_read])
}

/// A table without its indexes, or an index.
enum Segment<'a> {
    Table(&'a TableStatistics),
    Index(&'a IndexStatistics),
}

/// The columns of [`Segment::cells`].
const SEGMENT_COLUMNS: [&str; 6] = ["<Owner", "<Tablespace Name", "<Object Name", "<Database", "<Obj. Type", "Obj#"];

impl Segment<'_> {
    fn cells(&self) -> Vec<Cell> {
        let (database, schema, name, tablespace, kind, oid) = match self {
            Self::Table(t) => (
                &t.database,
                &t.schema,
                &t.name,
                &t.tablespace,
                if t.toast == Some(true) { "TOAST" } else { "TABLE" },
                t.oid,
            ),
            Self::Index(i) => (&i.database, &i.schema, &i.name, &i.tablespace, "INDEX", i.oid),
        };
        vec![
            Cell::text(&**schema),
            Cell::text(&**tablespace),
            Cell::text(&**name),
            Cell::text(&**database),
            Cell::text(kind),
            Cell::integer(oid),
        ]
    }
}

/// The name and the cells of a column.
type Detail = (&'static str, fn(&Segment<'_>) -> Cell);

/// A list of segments ordered by one figure.
struct List {
    id: &'static str,
    title: &'static str,
    column: &'static str,
    note: &'static str,
    key: fn(&Segment<'_>) -> Measure,
    cell: fn(Measure) -> Cell,
    /// One more column.
    detail: Option<Detail>,
    how: How,
}

const LISTS: [List; 8] = [
    List {
        id: "segments-logical-reads",
        title: "Segments by Logical Reads",
        column: "Logical Reads",
        note: "in blocks",
        key: |segment| match segment {
            Segment::Table(t) => sum([t.heap_blks_hit, t.heap_blks_read]),
            Segment::Index(i) => sum([i.idx_blks_hit, i.idx_blks_read]),
        },
        cell: Cell::count,
        detail: None,
        how: How::Counted,
    },
    List {
        id: "segments-physical-reads",
        title: "Segments by Physical Reads",
        column: "Physical Reads",
        note: "in blocks; the operating system's cache may serve a read",
        key: |segment| match segment {
            Segment::Table(t) => t.heap_blks_read,
            Segment::Index(i) => i.idx_blks_read,
        },
        cell: Cell::count,
        detail: None,
        how: How::Counted,
    },
    List {
        id: "segments-table-scans",
        title: "Segments by Table Scans",
        column: "Table Scans",
        note: "sequential scans",
        key: |segment| match segment {
            Segment::Table(t) => t.seq_scan,
            Segment::Index(_) => None,
        },
        cell: Cell::count,
        detail: None,
        how: How::Counted,
    },
    List {
        id: "segments-sequential-rows",
        title: "Segments by Rows of Sequential Scans",
        column: "Rows Scanned",
        note: "rows that sequential scans returned: the volume that Smart Scan or an index could save",
        key: |segment| match segment {
            Segment::Table(t) => t.seq_tup_read,
            Segment::Index(_) => None,
        },
        cell: Cell::count,
        detail: None,
        how: How::Counted,
    },
    List {
        id: "segments-changes",
        title: "Segments by DB Blocks Changes",
        column: "Rows Changed",
        note: "rows inserted, updated and deleted; PostgreSQL counts rows where Oracle counts block changes",
        key: |segment| match segment {
            Segment::Table(t) => sum([t.n_tup_ins, t.n_tup_upd, t.n_tup_del]),
            Segment::Index(_) => None,
        },
        cell: Cell::count,
        detail: None,
        how: How::Counted,
    },
    List {
        id: "segments-smart-scan",
        title: "Segments by Smart Scan Eligible Bytes",
        column: "Eligible",
        note: "bytes of the table under Smart Scan, those that the storage index excluded included",
        key: |segment| match segment {
            Segment::Table(t) => t.eligible_bytes,
            Segment::Index(_) => None,
        },
        cell: Cell::bytes,
        detail: None,
        how: How::Counted,
    },
    List {
        id: "segments-row-lock-waits",
        title: "Segments by Row Lock Waits",
        column: "Row Lock Waits",
        note: "sampled: waits for a row or for the transaction that locked the row; a wait shorter than the sample period can be \
               missed, and the time is samples x sample period",
        key: |segment| match segment {
            Segment::Table(t) => t.row_lock_waits,
            Segment::Index(_) => None,
        },
        cell: Cell::count,
        detail: Some(("Wait Time (s)", |segment| match segment {
            Segment::Table(t) => Cell::seconds(t.row_lock_us, 1),
            Segment::Index(_) => Cell::Absent,
        })),
        how: How::Sampled,
    },
    List {
        id: "segments-index-scans",
        title: "Segments by Index Scans",
        column: "Index Scans",
        note: "",
        key: |segment| match segment {
            Segment::Table(_) => None,
            Segment::Index(i) => i.idx_scan,
        },
        cell: Cell::count,
        detail: None,
        how: How::Counted,
    },
];

fn segment_lists(view: &View<'_>) -> Vec<Section> {
    let document = view.document;
    let segments = || document.tables.iter().map(Segment::Table).chain(document.indexes.iter().map(Segment::Index));
    let mut sections = Vec::new();
    for list in &LISTS {
        let total = sum(segments().map(|segment| (list.key)(&segment)));
        let mut columns = SEGMENT_COLUMNS.to_vec();
        columns.extend([list.column, "%Total"]);
        columns.extend(list.detail.map(|(column, _)| column));
        columns.push("<How");
        let table = Table::new(&columns).with_rows(
            top(segments(), ROWS, |segment| (list.key)(segment)).into_iter().map(|segment| {
                let value = (list.key)(&segment);
                let mut row = segment.cells();
                row.push((list.cell)(value));
                row.push(Cell::percent(percent(value, total), 2));
                row.extend(list.detail.map(|(_, cell)| cell(&segment)));
                row.push(Cell::How(list.how, None));
                row
            }),
        );
        if table.rows.is_empty() {
            continue;
        }
        let mut section = Section::new(list.id, Group::Segments, list.title);
        if !list.note.is_empty() {
            section = section.note(list.note);
        }
        sections.push(section.table(table.without_empty_columns()));
    }
    sections
}

/// PostgreSQL does not count writes by relation; cells do.
fn writes(view: &View<'_>) -> Section {
    let relations = || files::files(view).filter(|file| !file.table.is_empty());
    let total = sum(files::classes(view).map(|file| file.write_bytes));
    let columns = [&SEGMENT_COLUMNS[..5], &["Physical Write Reqs", "Physical Writes", "%Total", "<How"]].concat();
    let table =
        Table::new(&columns).with_rows(top(relations(), ROWS, |file| file.write_bytes).into_iter().map(|file| {
            let (name, kind) = match (&*file.index, &*file.class) {
                ("", "toast") => (&*file.table, "TOAST"),
                ("", "sequence") => (&*file.table, "SEQUENCE"),
                ("", _) => (&*file.table, "TABLE"),
                (index, _) => (index, "INDEX"),
            };
            let mut row = [&*file.schema, &*file.tablespace, name, &*file.database, kind].map(Cell::text).to_vec();
            let blocks = file.write_bytes.map(|bytes| bytes / view.document.block_bytes());
            let share = Cell::percent(percent(file.write_bytes, total), 2);
            row.extend([
                Cell::count(file.writes),
                Cell::count(blocks.map(f64::round)),
                share,
                Cell::How(How::Counted, None),
            ]);
            row
        }));
    let missing = match view.document.cell_files.is_empty() {
        true => files::no_classes(view),
        false => "No table or index on a cell was written.".to_owned(),
    };
    Section::new("segments-physical-writes", Group::Segments, "Segments by Physical Writes")
        .note("in blocks, counted by the cells; %Total - as a percentage of the writes of all files of the cluster on cells, WAL included")
        .table_or(table.without_empty_columns(), missing)
}

fn growth(view: &View<'_>) -> Section {
    let grown = |begin: Measure, end: Measure| end.zip(begin).map(|(end, begin)| end - begin);
    let document = view.document;
    let mut rows: Vec<(f64, Vec<Cell>)> = Vec::new();
    let mut add = |segment: Segment<'_>, begin: Measure, end: Measure| {
        if let Some(growth) = grown(begin, end).filter(|growth| *growth != 0.0) {
            let mut row = segment.cells();
            row.extend([Cell::bytes(begin), Cell::bytes(end), Cell::Bytes(growth)]);
            rows.push((growth, row));
        }
    };
    document.tables.iter().for_each(|table| add(Segment::Table(table), table.size_begin, table.size_end));
    document.indexes.iter().for_each(|index| add(Segment::Index(index), index.size_begin, index.size_end));
    rows.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    rows.truncate(ROWS);
    let mut columns = SEGMENT_COLUMNS.to_vec();
    columns.extend(["Size Begin", "Size End", "Growth"]);
    let table = Table::new(&columns).with_rows(rows.into_iter().map(|(_, row)| row)).without_empty_columns();
    Section::new("segments-growth", Group::Segments, "Segments by Growth")
        .table_or(table, "No table or index grew or shrank between the snapshots.")
}

fn unused_indexes(view: &View<'_>) -> Section {
    let unused = view.document.indexes.iter().filter(|index| {
        index.idx_scan == Some(0.0)
            && index.is_unique == Some(false)
            && index.size_end.is_some_and(|bytes| bytes >= UNUSED_INDEX_BYTES_MIN)
    });
    let table = Table::new(&["<Database", "<Owner", "<Table", "<Index", "Size", "Growth"]).with_rows(
        top(unused, ROWS, |index| index.size_end).into_iter().map(|index| {
            let growth = index.size_end.zip(index.size_begin).map(|(end, begin)| end - begin);
            vec![
                Cell::text(&*index.database),
                Cell::text(&*index.schema),
                Cell::text(&*index.table),
                Cell::text(&*index.name),
                Cell::bytes(index.size_end),
                Cell::bytes(growth),
            ]
        }),
    );
    Section::new("unused-indexes", Group::Segments, "Unused Indexes")
        .note("not scanned between the snapshots, not unique, at least 1 MB; check a longer period and the standbys before dropping")
        .table_or(table.without_empty_columns(), "No index of at least 1 MB was unused between the snapshots.")
}

fn updates(view: &View<'_>) -> Section {
    let columns = ["<Database", "<Owner", "<Table", "Updates", "HOT", "%HOT", "New Page", "%New Page"];
    let table = Table::new(&columns).with_rows(
        top(view.document.tables.iter(), ROWS, |table| table.n_tup_upd).into_iter().map(|table| {
            vec![
                Cell::text(&*table.database),
                Cell::text(&*table.schema),
                Cell::text(&*table.name),
                Cell::count(table.n_tup_upd),
                Cell::count(table.n_tup_hot_upd),
                Cell::percent(ratio(table.n_tup_hot_upd, table.n_tup_upd).map(|share| 100.0 * share), 1),
                Cell::count(table.n_tup_newpage_upd),
                Cell::percent(percent(table.n_tup_newpage_upd, table.n_tup_upd), 1),
            ]
        }),
    );
    Section::new("hot-updates", Group::Segments, "HOT and New-Page Updates")
        .note("A HOT update needs no index entry. A new-page update found no free space on the page: lower fillfactor")
        .table_or(table.without_empty_columns(), "No row was updated between the snapshots.")
}
