//! Rules about commits, WAL and checkpoints.

use super::{Found, Judgement, share_text};
use crate::document::{Event, Measure, names};
use crate::figures::time::{average_wait_us, class_us, foreground_waits};
use crate::figures::{per_second, percent, ratio, sum};
use crate::table::{bytes, duration};
use crate::view::{View, top};

const REPLICATION_WAIT: &str = "SyncRep";

/// Writes and syncs of data files and WAL by sessions.
fn is_write(event: &Event) -> bool {
    const DATA: [&str; 5] =
        ["DataFileWrite", "DataFileFlush", "DataFileSync", "DataFileExtend", "DataFileImmediateSync"];
    DATA.contains(&&*event.event)
        || event.event.starts_with("WAL")
        || event.event.starts_with("WalSync")
        || &*event.event == "free buffer waits"
        || &*event.event == "log file sync"
        || &*event.class == "Configuration"
}

fn is_commit(event: &Event) -> bool {
    &*event.class == "Commit"
}

fn foreground_us(view: &View<'_>, matches: fn(&Event) -> bool) -> Measure {
    sum(foreground_waits(view.document).filter(|event| matches(event)).map(|event| event.time_us))
}

/// Full-page images in per cent of the WAL: by their bytes, or at most by their number.
fn full_page_percent(view: &View<'_>) -> Measure {
    let statistic = |name: &str| view.document.statistic(name);
    let block = view.document.block_bytes();
    let images = statistic(names::FULL_PAGE_BYTES).or_else(|| statistic(names::FULL_PAGES).map(|pages| pages * block));
    percent(images, statistic(names::REDO_SIZE)).map(|share| share.min(100.0))
}

pub(super) fn waits(view: &View<'_>) -> Judgement {
    if view.document.events.is_empty() {
        return None;
    }
    let Some(us) = class_us(view.document, "Commit") else { return Some(Vec::new()) };
    let events: Vec<&Event> = foreground_waits(view.document).filter(|event| is_commit(event)).collect();
    let worst = top(events, 3, |event| event.time_us);
    let waits_for_standby = worst.first().is_some_and(|event| event.event.contains(REPLICATION_WAIT));
    let title = match waits_for_standby {
        true => "Commits waited for a synchronous standby",
        false => "Commits waited for the WAL",
    };
    let mut found = Found::new(title).impact(us);
    for event in worst {
        let us = event.time_us.unwrap_or(0.0);
        let average = average_wait_us(event.time_us, event.waits)
            .map_or_else(String::new, |us| format!(", {} on average", duration(us)));
        let text = format!("{}: {}{average}, {}", event.event, duration(us), share_text(view, us));
        found = found.evidence("foreground-events", text);
    }
    if let Some(commits) = per_second(view.document.statistic(names::COMMITS), view.document.elapsed_us) {
        found = found.evidence("load-profile", format!("{commits:.1} commits per second"));
    }
    let advice = match waits_for_standby {
        true => "Check the network to the standby and its disks, or lower synchronous_commit",
        false => "Commit several changes in one transaction, or store pg_wal on a faster device",
    };
    Some(vec![found.recommend(advice, Some(us))])
}

pub(super) fn buffers_full(view: &View<'_>) -> Judgement {
    let full = view.document.statistic(names::WAL_BUFFERS_FULL)?;
    let rate = per_second(Some(full), view.document.elapsed_us)?;
    if rate < 1.0 {
        return Some(Vec::new());
    }
    let found = Found::new("Sessions found all WAL buffers full")
        .evidence("wal", format!("{full:.0} times, {rate:.1} per second"))
        .recommend("Raise wal_buffers", None);
    Some(vec![found])
}

pub(super) fn full_page_images(view: &View<'_>) -> Judgement {
    let size = view.document.statistic(names::REDO_SIZE)?;
    let share = full_page_percent(view)?;
    if share < 50.0 || size < 100.0 * 1_048_576.0 {
        return Some(Vec::new());
    }
    let found = Found::new("Full-page images are most of the WAL")
        .evidence("wal", format!("at most {share:.0} % of {}B of WAL", bytes(size)))
        .recommend("Make checkpoints rarer with max_wal_size and checkpoint_timeout, or set wal_compression", None);
    Some(vec![found])
}

/// Defaults of PostgreSQL.
const MAX_WAL_SIZE: f64 = 1_073_741_824.0;
const CHECKPOINT_TIMEOUT_US: f64 = 300e6;
const CHECKPOINT_COMPLETION_TARGET: f64 = 0.9;

/// WAL bytes per byte of max_wal_size: PostgreSQL requests a checkpoint so early that the WAL since the checkpoint before
/// stays below max_wal_size until the checkpoint has completed.
fn checkpoint_share(view: &View<'_>) -> f64 {
    let target = view.document.setting_value("checkpoint_completion_target", CHECKPOINT_COMPLETION_TARGET);
    1.0 / (1.0 + target.unwrap_or(CHECKPOINT_COMPLETION_TARGET))
}

/// The recommendation for checkpoints that the amount of WAL requests: the size at which checkpoint_timeout comes first.
fn max_wal_size_advice(view: &View<'_>) -> String {
    const PURPOSE: &str = "so that checkpoint_timeout starts the checkpoints";
    let limit = view.document.setting_value("max_wal_size", MAX_WAL_SIZE);
    let timeout_us = view.document.setting_value("checkpoint_timeout", CHECKPOINT_TIMEOUT_US);
    let rate = per_second(view.document.statistic(names::REDO_SIZE), view.document.elapsed_us);
    let needed = rate.zip(timeout_us).map(|(rate, us)| rate * us / 1e6 / checkpoint_share(view));
    match (limit, needed) {
        (Some(limit), Some(needed)) if needed > limit => format!(
            "Raise max_wal_size from {}B to {}B, which holds the WAL of checkpoint_timeout ({}) at this rate, {PURPOSE}",
            bytes(limit),
            bytes(needed),
            duration(timeout_us.unwrap_or(0.0))
        ),
        (Some(limit), _) => format!("Raise max_wal_size above {}B, {PURPOSE}", bytes(limit)),
        (None, _) => format!("Raise max_wal_size, {PURPOSE}"),
    }
}

pub(super) fn checkpoint_storm(view: &View<'_>) -> Judgement {
    let requested = view.document.statistic_beside(names::CHECKPOINTS_REQUESTED, names::CHECKPOINTS_TIMED)?;
    let timed = view.document.statistic_beside(names::CHECKPOINTS_TIMED, names::CHECKPOINTS_REQUESTED)?;
    if requested < 2.0 || requested <= timed {
        return Some(Vec::new());
    }
    let Some(us) = foreground_us(view, |event| is_write(event) || is_commit(event)) else { return Some(Vec::new()) };
    let size = view.document.statistic(names::REDO_SIZE);
    let limit = view.document.setting_value("max_wal_size", MAX_WAL_SIZE);
    // Checkpoints for which the WAL suffices.
    let by_wal = ratio(size, limit.map(|limit| limit * checkpoint_share(view)));
    let is_by_wal = by_wal.is_none_or(|by_wal| by_wal >= 0.5 * requested);
    let interval =
        view.document.elapsed_us.map_or_else(String::new, |us| format!(", one every {}", duration(us / requested)));
    let mut found = Found::new(match is_by_wal {
        true => format!("WAL forced {requested:.0} checkpoints{interval}"),
        false => format!("Commands requested {requested:.0} checkpoints{interval}"),
    })
    .impact(us)
    .evidence("checkpoints", format!("{requested:.0} checkpoints requested, {timed:.0} by time"))
    .evidence("foreground-events", format!("writes and syncs of sessions: {}, {}", duration(us), share_text(view, us)));
    if let (Some(size), Some(limit), Some(by_wal)) = (size, limit, by_wal) {
        let text = format!(
            "{}B of WAL force about {:.0} checkpoints (max_wal_size = {}B)",
            bytes(size),
            by_wal.min(requested),
            bytes(limit)
        );
        found = found.evidence("wal", text);
    }
    if let Some(share) = full_page_percent(view) {
        found = found.evidence("wal", format!("full-page images: at most {share:.0} % of the WAL"));
    }
    let advice = match is_by_wal {
        true => max_wal_size_advice(view),
        false => "Run CHECKPOINT, CREATE DATABASE or base backups less often; max_wal_size is not the cause".to_owned(),
    };
    Some(vec![found.recommend(advice, Some(us))])
}

pub(super) fn backend_writes(view: &View<'_>) -> Judgement {
    let statistic = |name: &str| view.document.statistic(name);
    // From PostgreSQL 17 on, only pg_stat_io counts writes of sessions.
    let by_sessions = statistic(names::BACKEND_BUFFERS).or_else(|| {
        let sessions = view.document.io.iter().filter(|io| {
            &*io.backend_type == "client backend" && &*io.object == "relation" && &*io.context == "normal"
        });
        sum(sessions.map(|io| io.writes))
    })?;
    let all = sum([Some(by_sessions), statistic(names::CHECKPOINT_BUFFERS), statistic(names::BGWRITER_BUFFERS)]);
    let share = percent(Some(by_sessions), all)?;
    let is_data_write = |event: &Event| matches!(&*event.event, "DataFileWrite" | "free buffer waits");
    let Some(us) = foreground_us(view, is_data_write) else { return Some(Vec::new()) };
    if share < 20.0 {
        return Some(Vec::new());
    }
    let found = Found::new("Sessions wrote buffers themselves to get free buffers")
        .impact(us)
        .evidence("checkpoints", format!("sessions wrote {share:.0} % of {:.0} buffers", all.unwrap_or(0.0)))
        .evidence("foreground-events", format!("data file writes: {}, {}", duration(us), share_text(view, us)))
        .recommend("Raise bgwriter_lru_maxpages, lower bgwriter_delay, or raise shared_buffers", Some(us));
    Some(vec![found])
}
