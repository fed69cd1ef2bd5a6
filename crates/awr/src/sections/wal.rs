//! Buffer pool, checkpoints, WAL, SLRU and replication.

use super::{Group, Section};
use crate::document::{Measure, names};
use crate::figures::{efficiency, percent, ratio, sum};
use crate::table::{Cell, Table};
use crate::view::View;

pub fn sections(view: &View<'_>) -> Vec<Section> {
    vec![buffer_pool(view), checkpoints(view), wal(view), slru(view), replication(view), slots(view)]
}

fn buffer_pool(view: &View<'_>) -> Section {
    let document = view.document;
    let statistic = |name: &str| document.statistic(name);
    let buffers = document.setting("shared_buffers").and_then(|setting| setting.end.known()?.parse::<f64>().ok());
    let columns = [
        "<P",
        "Number of Buffers",
        "Pool Hit%",
        "Buffer Gets",
        "Physical Reads",
        "Physical Writes",
        "Backend Writes",
        "Buffers Allocated",
    ];
    let mut table = Table::new(&columns);
    if let Some(gets) = statistic(names::LOGICAL_READS) {
        table.push(vec![
            Cell::text("D"),
            Cell::count(buffers),
            Cell::percent(efficiency::buffer_hit_percent(document), 2),
            Cell::Count(gets),
            Cell::count(statistic(names::PHYSICAL_READS)),
            Cell::count(statistic(names::PHYSICAL_WRITES)),
            Cell::count(statistic(names::BACKEND_BUFFERS)),
            Cell::count(statistic(names::BUFFERS_ALLOCATED)),
        ]);
    }
    Section::new("buffer-pool", Group::Memory, "Buffer Pool Statistics")
        .note("Physical reads may be served by the operating system's cache; reads of a cell are in IOStat by Filetype summary")
        .note("Backend Writes: buffers that a session wrote to get a free buffer, as Oracle's sessions wait for free buffers")
        .table_or(table.without_empty_columns(), "Not available: no statistics of logical reads")
}

fn checkpoints(view: &View<'_>) -> Section {
    let statistic = |name: &str| view.document.statistic(name);
    let columns = [
        "Checkpoints timed",
        "Checkpoints requested",
        "Buffers written",
        "Write Time (s)",
        "Sync Time (s)",
        "Bgwriter Buffers",
        "Bgwriter Stops",
        "Backend Buffers",
        "Backend Syncs",
    ];
    // A repository stores the statistics that increased.
    let beside = |name: &str| {
        let others =
            [names::CHECKPOINTS_TIMED, names::CHECKPOINTS_REQUESTED, names::BUFFERS_ALLOCATED, names::BGWRITER_BUFFERS];
        others.iter().find_map(|other| view.document.statistic_beside(name, other))
    };
    let cells = vec![
        Cell::count(beside(names::CHECKPOINTS_TIMED)),
        Cell::count(beside(names::CHECKPOINTS_REQUESTED)),
        Cell::count(beside(names::CHECKPOINT_BUFFERS)),
        Cell::seconds(statistic(names::CHECKPOINT_WRITE_TIME), 1),
        Cell::seconds(statistic(names::CHECKPOINT_SYNC_TIME), 1),
        Cell::count(statistic(names::BGWRITER_BUFFERS)),
        Cell::count(statistic(names::BGWRITER_STOPS)),
        Cell::count(statistic(names::BACKEND_BUFFERS)),
        Cell::count(statistic(names::BACKEND_FSYNCS)),
    ];
    let mut table = Table::new(&columns);
    if cells.iter().any(|cell| *cell != Cell::Absent) {
        table.push(cells);
    }
    Section::new("checkpoints", Group::Memory, "Checkpoint Activity")
        .note("requested: by WAL that reached max_wal_size, by a command, or at shutdown")
        .table_or(table.without_empty_columns(), "Not available: no statistics of checkpoints")
}

fn wal(view: &View<'_>) -> Section {
    let statistic = |name: &str| view.document.statistic(name);
    let block = view.document.block_bytes();
    let size = statistic(names::REDO_SIZE);
    // A full-page image is stored without its hole, so that blocks are an upper bound of bytes.
    let images = statistic(names::FULL_PAGE_BYTES);
    let upper = images.or_else(|| statistic(names::FULL_PAGES).map(|pages| pages * block));
    let share = percent(upper, size).map(|share| share.min(100.0));
    let archiver = &view.document.archiver;
    let lines: [(&str, Cell, Cell); 13] = [
        ("WAL written", Cell::bytes(size), Cell::bytes(view.per_second(size))),
        ("WAL records", Cell::count(statistic(names::REDO_ENTRIES)), rate(view, names::REDO_ENTRIES)),
        ("Full-page images", Cell::count(statistic(names::FULL_PAGES)), rate(view, names::FULL_PAGES)),
        (
            if images.is_some() { "Full-page images, % of WAL" } else { "Full-page images, % of WAL (at most)" },
            Cell::percent(share, 1),
            Cell::Absent,
        ),
        ("WAL writes", Cell::count(statistic(names::REDO_WRITES)), rate(view, names::REDO_WRITES)),
        ("WAL syncs", Cell::count(statistic(names::REDO_SYNCS)), rate(view, names::REDO_SYNCS)),
        (
            "Average WAL sync",
            Cell::duration(
                ratio(statistic(names::REDO_SYNC_TIME), statistic(names::REDO_SYNCS)).filter(|us| *us > 0.0),
            ),
            Cell::Absent,
        ),
        ("WAL buffers full", Cell::count(statistic(names::WAL_BUFFERS_FULL)), rate(view, names::WAL_BUFFERS_FULL)),
        ("Files archived", Cell::count(statistic(names::ARCHIVED)), rate(view, names::ARCHIVED)),
        ("Archiver failures", Cell::count(statistic(names::ARCHIVE_FAILURES)), rate(view, names::ARCHIVE_FAILURES)),
        ("WAL that waits for the archiver, at the end", Cell::bytes(archiver.backlog_bytes), Cell::Absent),
        ("Time since the last archived file, at the end", Cell::duration(archiver.since_us), Cell::Absent),
        (
            "File that the archiver failed to archive last",
            archiver.last_failed.known().map_or(Cell::Absent, Cell::text),
            Cell::Absent,
        ),
    ];
    let table = Table::new(&["<WAL Statistic", "Total", "per Second"]).with_rows(
        lines
            .into_iter()
            .filter(|(_, total, _)| *total != Cell::Absent)
            .map(|(name, total, rate)| vec![Cell::text(name), total, rate]),
    );
    Section::new("wal", Group::Memory, "WAL Statistics")
        .note("WAL buffers full: writes by a session that found all WAL buffers full")
        .table_or(table, "Not available: no statistics of WAL")
}

fn rate(view: &View<'_>, name: &str) -> Cell {
    Cell::decimal(view.per_second(view.document.statistic(name)), 2)
}

fn slru(view: &View<'_>) -> Section {
    let columns = ["<SLRU", "Hits", "Reads", "%Hit", "Written", "Zeroed", "Flushes", "Truncates"];
    let used = view.document.slru.iter().filter(|slru| {
        sum([slru.blks_hit, slru.blks_read, slru.blks_written, slru.blks_zeroed]).is_some_and(|sum: f64| sum > 0.0)
    });
    let table = Table::new(&columns).with_rows(used.map(|slru| {
        vec![
            Cell::text(&*slru.name),
            Cell::count(slru.blks_hit),
            Cell::count(slru.blks_read),
            Cell::percent(percent(slru.blks_hit, sum([slru.blks_hit, slru.blks_read])), 2),
            Cell::count(slru.blks_written),
            Cell::count(slru.blks_zeroed),
            Cell::count(slru.flushes),
            Cell::count(slru.truncates),
        ]
    }));
    Section::new("slru", Group::Memory, "SLRU Statistics")
        .note("small caches of transaction states, subtransactions, multixacts; many reads: long transactions or subtransactions")
        .table_or(table.without_empty_columns(), "No SLRU was accessed between the snapshots.")
}

fn replication(view: &View<'_>) -> Section {
    let columns =
        ["<Application", "<Client", "<State", "<Sync State", "Lag Begin", "Lag End", "Max Lag", "Max Replay Lag"];
    let table = Table::new(&columns).with_rows(view.document.replication.iter().map(|standby| {
        vec![
            Cell::text(&*standby.application),
            Cell::text(&*standby.client),
            Cell::text(&*standby.state),
            Cell::text(&*standby.sync_state),
            Cell::bytes(standby.lag_bytes_begin),
            Cell::bytes(standby.lag_bytes_end),
            Cell::bytes(standby.lag_bytes_max),
            Cell::duration(standby.replay_lag_us_max),
        ]
    }));
    Section::new("replication", Group::Memory, "Replication Statistics")
        .note("at the snapshots; lag: WAL that the standby has not replayed. \"this standby\": received, but not replayed here")
        .table_or(table.without_empty_columns(), "No standby was connected at the snapshots.")
}

fn slots(view: &View<'_>) -> Section {
    let retained = |bytes: Measure| Cell::bytes(bytes);
    let table = Table::new(&["<Slot", "<Active", "Retained WAL"]).with_rows(view.document.slots.iter().map(|slot| {
        let active = slot.active.map_or("", |active| if active { "yes" } else { "no" });
        vec![Cell::text(&*slot.name), Cell::text(active), retained(slot.retained_bytes)]
    }));
    Section::new("slots", Group::Memory, "Replication Slots").table_or(table, "The cluster has no replication slot.")
}
