//! Connections to a cell.

use std::ffi::CString;
use std::os::raw::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::ptr;

use cellar_format::stats::ScanStats;
use cellar_format::wire::{
    BatchMode, BlockRange, CompressProgress, ConsumerGroups, DatabaseNames, DueUnit, ErrorReport, FileIoCount,
    FileIoQuery, FileTypeIoCount, HeapTid, HeapTids, Hello, LeafLinks, LevelUnits, NAME_BYTES_MAX, Passthru, RowEntry,
    XidState,
};

use super::error::{self, CellarError, ErrorText};
use super::request::CellarRequest;
use super::{items, string};
use crate::batch::Batch;
use crate::connection::{Connection, Event};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum CellarEvent {
    WaitReadable,
    WaitWritable,
    Batch,
    Passthru,
    XidQuery,
    RangeDone,
    Failed,
    FileIo,
    WaitConnect,
    RangeProgress,
    CompressProgress,
    CompressDone,
    Units,
    DueUnits,
    FileTypeIo,
    Group,
    LeafLinks,
    HeapTids,
}

#[repr(C)]
pub struct CellarColumn {
    nulls: *const u8,
    values: *const c_char,
    offsets: *const u32,
    data: *const c_char,
    stride: u32,
}

#[repr(C)]
pub struct CellarRow {
    tuple: *const u8,
    bytes: u32,
    block: u32,
    line_pointer: u16,
}

#[repr(C)]
pub struct CellarBatch {
    rows: u32,
    ncolumns: u16,
    whole_rows: bool,
    groups: bool,
    distinct_groups: bool,
    columns: *const CellarColumn,
}

/// A connection with the data of its last event of each kind.
pub struct CellarConnection {
    connection: Connection,
    checked: Option<Batch>,
    batch: CellarBatch,
    columns: Vec<CellarColumn>,
    passthru: Option<Passthru>,
    xids: Vec<u32>,
    stats: ScanStats,
    file_io: Vec<FileIoCount>,
    file_type_io: Vec<FileTypeIoCount>,
    compression: CompressProgress,
    levels: Vec<LevelUnits>,
    due: Vec<DueUnit>,
    group: CString,
    links: Option<LeafLinks>,
    tids: Vec<u64>,
    failure: Option<ErrorReport>,
    error: ErrorText,
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_connect(
    socket_path: *const c_char,
    backend_pid: u32,
    database: u32,
    system_identifier: u64,
    incarnation: u64,
    error: *mut CellarError,
) -> *mut CellarConnection {
    // SAFETY: the header requires a NUL-terminated string.
    let path = PathBuf::from(unsafe { string(socket_path) });
    let hello = Hello { backend_pid, database, system_identifier, incarnation };
    match Connection::open(&path, hello) {
        Ok(connection) => Box::into_raw(Box::new(CellarConnection::new(connection))),
        Err(report) => {
            // SAFETY: the header requires a place for the error.
            unsafe { ptr::write(error, error::last(&report)) };
            ptr::null_mut()
        }
    }
}

/// A database or a process, with a name.
#[repr(C)]
pub struct CellarName {
    number: u32,
    name: *const c_char,
}

/// # Safety
/// `names` points to `count` names that are NUL-terminated strings.
unsafe fn names(names: *const CellarName, count: usize) -> Vec<(u32, String)> {
    // SAFETY: the caller passes as many names.
    let names = unsafe { items(names, count) };
    let name = |CellarName { number, name }: &CellarName| {
        // SAFETY: the caller's names are NUL-terminated.
        let mut name = unsafe { string(*name) };
        // Bytes that are not UTF-8 have been replaced by longer characters.
        let is_end = |at: &usize| name.is_char_boundary(*at);
        let end = (0..=NAME_BYTES_MAX.min(name.len())).rev().find(is_end).unwrap_or(0);
        name.truncate(end);
        (*number, name)
    };
    names.iter().map(name).filter(|(_, name)| !name.is_empty()).collect()
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_tell_names(
    connection: &mut CellarConnection,
    roots: *const *const c_char,
    nroots: usize,
    databases: *const CellarName,
    ndatabases: usize,
) {
    // SAFETY: the header requires as many NUL-terminated strings.
    let roots = unsafe { items(roots, nroots) }.iter().map(|root| unsafe { string(*root) }).collect();
    // SAFETY: the header requires as many names.
    let databases = unsafe { names(databases, ndatabases) };
    connection.connection.tell_names(DatabaseNames { roots, databases });
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_tell_groups(
    connection: &mut CellarConnection,
    processes: *const CellarName,
    nprocesses: usize,
) {
    // SAFETY: the header requires as many names.
    let processes = unsafe { names(processes, nprocesses) };
    connection.connection.tell_all_groups(ConsumerGroups { processes });
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_tell_own_group(connection: &mut CellarConnection, pid: u32, group: *const c_char) {
    // SAFETY: the header requires a NUL-terminated string.
    let group = unsafe { string(group) };
    connection.connection.tell_group(ConsumerGroups { processes: vec![(pid, group)] });
}

/// # Safety
/// See the header: `connection` came from `cellar_connect` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_close(connection: *mut CellarConnection) {
    if !connection.is_null() {
        // SAFETY: cellar_connect boxed the connection, and the caller does not use it again.
        drop(unsafe { Box::from_raw(connection) });
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_socket(connection: &CellarConnection) -> c_int {
    connection.connection.socket()
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_instance(connection: &CellarConnection) -> u64 {
    connection.connection.instance().unwrap_or(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_scan_open(connection: &mut CellarConnection, request: &CellarRequest) {
    connection.connection.scan_open(request.encode());
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_scan_range(connection: &mut CellarConnection, first: u32, end: u32) {
    connection.connection.scan_range(BlockRange { first, end });
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_next(connection: &mut CellarConnection) -> CellarEvent {
    catch_unwind(AssertUnwindSafe(|| connection.next())).unwrap_or_else(|_| connection.fail(error::panicked()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_batch(connection: &CellarConnection) -> *const CellarBatch {
    &connection.batch
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_batch_row(connection: &CellarConnection, row: u32) -> CellarRow {
    let payload = connection.connection.payload();
    let entry = connection.checked.as_ref().filter(|batch| row < batch.rows).map(|batch| batch.row_entry(payload, row));
    match entry {
        Some(Ok(RowEntry { offset, bytes, block, line_pointer })) => {
            CellarRow { tuple: payload[offset as usize..].as_ptr(), bytes, block, line_pointer }
        }
        _ => CellarRow { tuple: ptr::null(), bytes: 0, block: 0, line_pointer: 0 },
    }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_passthru(connection: &CellarConnection, reason: *mut c_int) -> u32 {
    let Some(passthru) = connection.passthru else { return u32::MAX };
    if !reason.is_null() {
        // SAFETY: the header requires NULL or a place for the reason.
        unsafe { ptr::write(reason, passthru.reason as c_int) };
    }
    passthru.block
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_xids(connection: &CellarConnection, count: *mut usize) -> *const u32 {
    // SAFETY: the header requires a place for the count.
    unsafe { ptr::write(count, connection.xids.len()) };
    connection.xids.as_ptr()
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_answer_xids(connection: &mut CellarConnection, states: *const u8, count: usize) {
    // SAFETY: the header requires `count` states.
    connection.connection.answer_xids(xid_states(unsafe { items(states, count) }));
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_query_file_io(
    connection: &mut CellarConnection,
    roots: *const *const c_char,
    count: usize,
) {
    // SAFETY: the header requires `count` NUL-terminated strings.
    let roots = unsafe { items(roots, count).iter().map(|root| string(*root)).collect() };
    connection.connection.query_file_io(FileIoQuery { roots });
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_file_io(connection: &CellarConnection, count: *mut usize) -> *const FileIoCount {
    // SAFETY: the header requires a place for the count.
    unsafe { ptr::write(count, connection.file_io.len()) };
    connection.file_io.as_ptr()
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_query_file_type_io(
    connection: &mut CellarConnection,
    roots: *const *const c_char,
    count: usize,
) {
    // SAFETY: the header requires `count` NUL-terminated strings.
    let roots = unsafe { items(roots, count).iter().map(|root| string(*root)).collect() };
    connection.connection.query_file_type_io(FileIoQuery { roots });
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_file_type_io(
    connection: &CellarConnection,
    count: *mut usize,
) -> *const FileTypeIoCount {
    // SAFETY: the header requires a place for the count.
    unsafe { ptr::write(count, connection.file_type_io.len()) };
    connection.file_type_io.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_compress(
    connection: &mut CellarConnection,
    relation: &CellarRequest,
    first: u32,
    end: u32,
    level: u8,
) {
    connection.connection.compress(relation.blocks(BlockRange { first, end }), level);
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_compression(connection: &CellarConnection) -> CompressProgress {
    connection.compression
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_query_units(
    connection: &mut CellarConnection,
    relation: &CellarRequest,
    first: u32,
    end: u32,
) {
    connection.connection.query_units(relation.blocks(BlockRange { first, end }));
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_units(connection: &CellarConnection, count: *mut usize) -> *const LevelUnits {
    // SAFETY: the header requires a place for the count.
    unsafe { ptr::write(count, connection.levels.len()) };
    connection.levels.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_query_due_units(
    connection: &mut CellarConnection,
    relation: &CellarRequest,
    first: u32,
    end: u32,
    level: u8,
    idle_us: u64,
) {
    connection.connection.query_due_units(relation.blocks(BlockRange { first, end }), level, idle_us);
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_due_units(connection: &CellarConnection, count: *mut usize) -> *const DueUnit {
    // SAFETY: the header requires a place for the count.
    unsafe { ptr::write(count, connection.due.len()) };
    connection.due.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_query_group(connection: &mut CellarConnection) {
    connection.connection.query_group();
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_query_metrics(connection: &mut CellarConnection) {
    connection.connection.query_metrics();
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_group(connection: &CellarConnection) -> *const c_char {
    connection.group.as_ptr()
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_leaf_links(
    connection: &CellarConnection,
    first_block: *mut u32,
    count: *mut usize,
) -> *const u32 {
    let (first, links) = connection.links.as_ref().map_or((0, &[][..]), |links| (links.first_block, &links.links));
    // SAFETY: the header requires places for the block and the count.
    unsafe {
        ptr::write(first_block, first);
        ptr::write(count, links.len());
    }
    links.as_ptr()
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_heap_tids(connection: &CellarConnection, count: *mut usize) -> *const u64 {
    // SAFETY: the header requires a place for the count.
    unsafe { ptr::write(count, connection.tids.len()) };
    connection.tids.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_range_stats(connection: &CellarConnection) -> ScanStats {
    connection.stats
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_error(connection: &CellarConnection) -> CellarError {
    connection.error.view(connection.failure.as_ref().map_or("XX000", |report| &report.sqlstate))
}

/// Converts states from C. An invalid state becomes `Unknown`, which only passes the block through.
pub fn xid_states(states: &[u8]) -> Vec<XidState> {
    states.iter().map(|state| XidState::from_u8(*state).unwrap_or(XidState::Unknown)).collect()
}

impl CellarConnection {
    fn new(connection: Connection) -> Self {
        Self {
            connection,
            checked: None,
            batch: CellarBatch {
                rows: 0,
                ncolumns: 0,
                whole_rows: false,
                groups: false,
                distinct_groups: false,
                columns: ptr::null(),
            },
            columns: Vec::new(),
            passthru: None,
            xids: Vec::new(),
            stats: ScanStats::default(),
            file_io: Vec::new(),
            file_type_io: Vec::new(),
            compression: CompressProgress::default(),
            levels: Vec::new(),
            due: Vec::new(),
            group: CString::default(),
            links: None,
            tids: Vec::new(),
            failure: None,
            error: ErrorText::default(),
        }
    }

    fn next(&mut self) -> CellarEvent {
        self.checked = None;
        match self.connection.next_event() {
            Event::WaitReadable => CellarEvent::WaitReadable,
            Event::WaitWritable => CellarEvent::WaitWritable,
            Event::WaitConnect => CellarEvent::WaitConnect,
            Event::Batch(batch) => {
                self.set_batch(batch);
                CellarEvent::Batch
            }
            Event::Passthru(passthru) => {
                self.passthru = Some(passthru);
                CellarEvent::Passthru
            }
            Event::XidQuery(query) => {
                self.xids = query.xids;
                CellarEvent::XidQuery
            }
            Event::RangeProgress(stats) => {
                self.stats = stats;
                CellarEvent::RangeProgress
            }
            Event::RangeDone(stats) => {
                self.stats = stats;
                CellarEvent::RangeDone
            }
            Event::FileIo(answer) => {
                self.file_io = answer.counts;
                CellarEvent::FileIo
            }
            Event::FileTypeIo(answer) => {
                self.file_type_io = answer.counts;
                CellarEvent::FileTypeIo
            }
            Event::CompressProgress(progress) => {
                self.compression = progress;
                CellarEvent::CompressProgress
            }
            Event::CompressDone(progress) => {
                self.compression = progress;
                CellarEvent::CompressDone
            }
            Event::Units(units) => {
                self.levels = units.levels;
                CellarEvent::Units
            }
            Event::DueUnits(due) => {
                self.due = due.units;
                CellarEvent::DueUnits
            }
            Event::Group(report) => {
                // JSON text contains no NUL.
                self.group = CString::new(report).unwrap_or_default();
                CellarEvent::Group
            }
            Event::LeafLinks(links) => {
                self.links = Some(links);
                CellarEvent::LeafLinks
            }
            Event::HeapTids(HeapTids { tids }) => {
                let packed = |tid: HeapTid| u64::from(tid.block) << 16 | u64::from(tid.line_pointer);
                self.tids = tids.into_iter().map(packed).collect();
                CellarEvent::HeapTids
            }
            Event::Failed(report) => self.fail(report),
        }
    }

    fn fail(&mut self, report: ErrorReport) -> CellarEvent {
        self.error = ErrorText::new(&report);
        self.failure = Some(report);
        CellarEvent::Failed
    }

    /// Converts the checked offsets of a batch to pointers, which are valid until the next event.
    fn set_batch(&mut self, batch: Batch) {
        let payload = self.connection.payload();
        let at = |offset: u32| payload[offset as usize..].as_ptr();
        self.columns.clear();
        for column in &batch.columns {
            let header = &column.header;
            let varlena = header.stride == 0;
            self.columns.push(CellarColumn {
                nulls: if header.nulls_offset == 0 { ptr::null() } else { at(header.nulls_offset) },
                values: at(header.values_offset).cast(),
                offsets: if varlena { at(header.values_offset).cast() } else { ptr::null() },
                data: if varlena { at(header.data_offset).cast() } else { ptr::null() },
                stride: header.stride,
            });
        }
        self.batch = CellarBatch {
            rows: batch.rows,
            ncolumns: self.columns.len() as u16,
            whole_rows: batch.mode == BatchMode::Rows,
            groups: matches!(batch.mode, BatchMode::Groups | BatchMode::DistinctGroups),
            distinct_groups: batch.mode == BatchMode::DistinctGroups,
            columns: self.columns.as_ptr(),
        };
        self.checked = Some(batch);
    }
}
