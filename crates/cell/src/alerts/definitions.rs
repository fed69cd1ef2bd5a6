//! The definitions of alerts: what each is about, and how it follows from the state of the cell. A new alert is one more entry of
//! [`ALERTS`].

use super::observed::{Mode, Observed};
use crate::names::{cell_disk_name, disk_group_name, flash_cache_name, flash_log_name};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Critical,
    Warning,
    /// Ends the alert.
    Clear,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Clear => "clear",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AlertType {
    /// Is open until the condition ends.
    Stateful,
    /// Reports an event.
    Stateless,
}

/// The state of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub object: String,
    pub severity: Severity,
    pub message: String,
    /// The value of a stateful alert, which [`Finding::severity`] follows from, or the counter of a stateless one.
    pub value: Option<f64>,
}

#[derive(Debug)]
pub struct AlertDefinition {
    pub name: &'static str,
    pub short_name: &'static str,
    pub source: &'static str,
    pub alert_type: AlertType,
    pub description: &'static str,
    pub action: &'static str,
    /// Returns the state of each object. A stateless alert has a counter, and a new alert if the counter has increased; its message
    /// follows the increase.
    pub find: fn(&Observed) -> Vec<Finding>,
}

/// Percentages of the space of the fullest disk that are in use.
const SPACE_WARNING: f64 = 85.0;
const SPACE_CRITICAL: f64 = 95.0;

pub const ALERTS: [AlertDefinition; 8] = [
    AlertDefinition {
        name: "StatefulAlert_CellDisk",
        short_name: "CellDisk",
        source: "Hardware",
        alert_type: AlertType::Stateful,
        description: "A cell disk is not online",
        action: "Look for the cause in the log of the cell. Repair the disk and bring it online with ALTER CELLDISK name ACTIVE, \
                 or replace it with ALTER DISKGROUP ALL REPLACE DISK.",
        find: cell_disks,
    },
    AlertDefinition {
        name: "StatefulAlert_DiskGroup",
        short_name: "DiskGroup",
        source: "Software",
        alert_type: AlertType::Stateful,
        description: "The disk group lacks copies, because disks are not online",
        action: "Bring the disks online, or drop them so that a rebalance restores the copies.",
        find: disk_group,
    },
    AlertDefinition {
        name: "StatefulAlert_FlashCache",
        short_name: "FlashCache",
        source: "Hardware",
        alert_type: AlertType::Stateful,
        description: "The flash cache is switched off after a failure",
        action: "No data are lost: reads use the cell disks. Replace the flash disk and restart the cell.",
        find: flash_cache,
    },
    AlertDefinition {
        name: "StatefulAlert_FlashLog",
        short_name: "FlashLog",
        source: "Hardware",
        alert_type: AlertType::Stateful,
        description: "The flash log is switched off after a failure",
        action: "No data are lost: redo is written to the cell disks only. Replace the flash disk and restart the cell.",
        find: flash_log,
    },
    AlertDefinition {
        name: "StatefulAlert_WriteBack",
        short_name: "WriteBack",
        source: "Hardware",
        alert_type: AlertType::Stateful,
        description: "The flash cache mode is WriteBack, but a flash disk of the write-back log is missing",
        action: "Replace the flash disk and restart the cell, or choose write-through with ALTER CELL flashCacheMode=WriteThrough.",
        find: write_back,
    },
    AlertDefinition {
        name: "StatefulAlert_DiskGroupSpace",
        short_name: "DiskGroupSpace",
        source: "Software",
        alert_type: AlertType::Stateful,
        description: "The fullest cell disk has little free space: 85 % are in use (warning), or 95 % (critical)",
        action: "Remove or compress data, or add disks with ALTER DISKGROUP ALL ADD DISK.",
        find: space,
    },
    AlertDefinition {
        name: "StatelessAlert_Repair",
        short_name: "Repair",
        source: "Hardware",
        alert_type: AlertType::Stateless,
        description: "Damaged data were rewritten from another copy",
        action: "The log of the cell names the files. If a disk needs repairs repeatedly, replace it.",
        find: repairs,
    },
    AlertDefinition {
        name: "StatelessAlert_Damage",
        short_name: "Damage",
        source: "Hardware",
        alert_type: AlertType::Stateless,
        description: "A scrub found damaged data that no copy could repair",
        action: "LIST DISKGROUP DETAIL and the log of the cell name the files. Restore them from a replica or a backup.",
        find: damage,
    },
];

fn cell_disks(seen: &Observed) -> Vec<Finding> {
    let finding = |disk: &super::observed::ObservedDisk| {
        let object = cell_disk_name(disk.number, &seen.cell);
        let (severity, state) = match disk.mode {
            Mode::Online => (Severity::Clear, "is online"),
            Mode::Syncing => (Severity::Warning, "receives the changes that it missed while it was offline"),
            Mode::Offline => (Severity::Critical, "is offline"),
        };
        let message = format!("Cell disk {object} ({}) {state}", disk.path);
        Finding { object, severity, message, value: None }
    };
    seen.disks.iter().map(finding).collect()
}

/// With as many failure groups that lack a disk as there are copies besides the first, some data may have one copy only.
fn disk_group(seen: &Observed) -> Vec<Finding> {
    if seen.copies < 2 {
        return Vec::new();
    }
    let object = disk_group_name(&seen.cell);
    let missing: std::collections::BTreeSet<&str> =
        seen.disks.iter().filter(|disk| disk.mode != Mode::Online).map(|disk| disk.failure_group.as_str()).collect();
    let (severity, state) = match missing.len() {
        0 => (Severity::Clear, "has all copies".to_owned()),
        count if count + 1 < seen.copies => {
            (Severity::Warning, format!("is degraded: disks of {count} failure group are not online"))
        }
        count => {
            let groups = if count == 1 { "failure group" } else { "failure groups" };
            let state = format!(
                "is degraded: disks of {count} {groups} are not online, so some data have no other copy; the failure of another \
                 disk can lose data"
            );
            (Severity::Critical, state)
        }
    };
    vec![Finding { message: format!("Disk group {object} {state}"), object, severity, value: None }]
}

fn flash_cache(seen: &Observed) -> Vec<Finding> {
    flash(seen, seen.flash_cache_is_on, "Flash cache", flash_cache_name(&seen.cell))
}

fn flash_log(seen: &Observed) -> Vec<Finding> {
    flash(seen, seen.flash_log_is_on, "Flash log", flash_log_name(&seen.cell))
}

/// A flush that a command asked for is no failure.
fn write_back(seen: &Observed) -> Vec<Finding> {
    let Some(stats) = seen.write_back else { return Vec::new() };
    let object = flash_cache_name(&seen.cell);
    let lacks_disks = stats.disks == 0 || stats.disks_left < stats.disks;
    let (severity, state) = match (lacks_disks, stats.dirty_bytes) {
        (false, _) if stats.is_on || stats.is_flushing => (Severity::Clear, "is complete"),
        (false, _) => (Severity::Warning, "is not in use: writes go to the cell disks"),
        (true, 0) => (Severity::Warning, "lacks a flash disk: writes go to the cell disks"),
        (true, _) if stats.disks_left == 0 => {
            (Severity::Critical, "has lost its flash disks, with changes of files that the cell disks lack")
        }
        (true, _) => {
            (Severity::Critical, "lacks a flash disk: changes that the cell disks lack are on one flash disk only")
        }
    };
    let failed = if lacks_disks { failed_flash_disks(seen) } else { String::new() };
    vec![Finding { message: format!("The write-back log of {object} {state}{failed}"), object, severity, value: None }]
}

/// Names the flash disks with failed operations, for the end of a message. They need not be the cause: the errors may be old, and
/// another flash disk may not have been opened.
fn failed_flash_disks(seen: &Observed) -> String {
    match seen.failed_flash_disks[..] {
        [] => String::new(),
        ref disks => format!("; flash disks with errors: {}", disks.join(", ")),
    }
}

fn flash(seen: &Observed, is_on: Option<bool>, what: &str, object: String) -> Vec<Finding> {
    let Some(is_on) = is_on else { return Vec::new() };
    let (severity, state) = match is_on {
        true => (Severity::Clear, "is in use".to_owned()),
        false => {
            let failed = failed_flash_disks(seen);
            (Severity::Critical, format!("is switched off, because a flash disk failed or could not be opened{failed}"))
        }
    };
    vec![Finding { message: format!("{what} {object} {state}"), object, severity, value: None }]
}

fn space(seen: &Observed) -> Vec<Finding> {
    let Some(used) = seen.used_percent else { return Vec::new() };
    let object = disk_group_name(&seen.cell);
    let severity = match used {
        used if used >= SPACE_CRITICAL => Severity::Critical,
        used if used >= SPACE_WARNING => Severity::Warning,
        _ => Severity::Clear,
    };
    let message = format!("{used:.1} % of the space of the fullest disk of {object} are in use");
    vec![Finding { object, severity, message, value: Some(used) }]
}

fn repairs(seen: &Observed) -> Vec<Finding> {
    let message = "damaged ranges of files were rewritten from another copy";
    counter(seen, Severity::Warning, message, seen.repairs)
}

fn damage(seen: &Observed) -> Vec<Finding> {
    let message = "damaged places were found that no copy could repair";
    counter(seen, Severity::Critical, message, seen.unrepaired)
}

fn counter(seen: &Observed, severity: Severity, message: &str, count: u64) -> Vec<Finding> {
    let object = disk_group_name(&seen.cell);
    vec![Finding { object, severity, message: message.to_owned(), value: Some(count as f64) }]
}

#[cfg(test)]
mod tests {
    use super::super::observed::ObservedDisk;
    use super::*;
    use cellar_storage::WriteBackStats;

    fn observed(copies: usize, modes: &[(Mode, &str)]) -> Observed {
        let disk = |(number, (mode, group)): (usize, &(Mode, &str))| ObservedDisk {
            number: number as u64,
            path: format!("/d{number}"),
            failure_group: (*group).to_owned(),
            mode: *mode,
        };
        Observed {
            cell: "c1".to_owned(),
            copies,
            disks: modes.iter().enumerate().map(disk).collect(),
            ..Observed::default()
        }
    }

    #[test]
    fn a_group_is_critical_if_another_failure_can_lose_data() {
        let severity = |copies, modes: &[(Mode, &str)]| disk_group(&observed(copies, modes))[0].severity;
        let (on, off) = (Mode::Online, Mode::Offline);
        assert_eq!(severity(2, &[(on, "a"), (on, "b")]), Severity::Clear);
        assert_eq!(severity(2, &[(on, "a"), (off, "b")]), Severity::Critical);
        assert_eq!(severity(3, &[(on, "a"), (off, "b"), (on, "c")]), Severity::Warning);
        assert_eq!(severity(3, &[(on, "a"), (off, "b"), (off, "b")]), Severity::Warning, "one failure group");
        assert_eq!(severity(3, &[(on, "a"), (off, "b"), (Mode::Syncing, "c")]), Severity::Critical);
        assert!(disk_group(&observed(1, &[(on, "a")])).is_empty());
    }

    #[test]
    fn write_back_without_a_flash_disk_is_critical_while_pages_are_dirty() {
        let severity = |disks, disks_left, dirty_bytes| {
            let is_on = disks > 0 && disks_left == disks;
            let stats = WriteBackStats { disks, disks_left, dirty_bytes, is_on, ..WriteBackStats::default() };
            write_back(&Observed { write_back: Some(stats), ..Observed::default() })[0].severity
        };
        assert_eq!(severity(2, 2, 8192), Severity::Clear);
        assert_eq!(severity(0, 0, 0), Severity::Warning, "started without flash disks");
        assert_eq!([severity(2, 1, 0), severity(2, 1, 8192)], [Severity::Warning, Severity::Critical]);
        assert!(write_back(&Observed::default()).is_empty());
        let without_space = WriteBackStats { disks: 2, disks_left: 2, ..WriteBackStats::default() };
        assert_eq!(
            write_back(&Observed { write_back: Some(without_space), ..Observed::default() })[0].severity,
            Severity::Warning
        );
    }

    #[test]
    fn a_message_about_flash_names_the_flash_disks_that_failed() {
        let failed_flash_disks = vec!["/f2".to_owned()];
        let seen =
            Observed { flash_cache_is_on: Some(false), failed_flash_disks, ..observed(1, &[(Mode::Online, "a")]) };
        let expected = "Flash cache c1_FLASHCACHE is switched off, because a flash disk failed or could not be opened; \
                        flash disks with errors: /f2";
        assert_eq!(flash_cache(&seen)[0].message, expected);
        let in_use = Observed { flash_cache_is_on: Some(true), ..seen };
        assert_eq!(flash_cache(&in_use)[0].message, "Flash cache c1_FLASHCACHE is in use");
        let lacking = Some(WriteBackStats { disks: 2, disks_left: 1, ..WriteBackStats::default() });
        let message = &write_back(&Observed { write_back: lacking, ..in_use })[0].message;
        assert!(message.ends_with("; flash disks with errors: /f2"), "{message}");
    }

    #[test]
    fn disks_and_space_have_a_severity() {
        let found = cell_disks(&observed(2, &[(Mode::Online, "a"), (Mode::Syncing, "b"), (Mode::Offline, "c")]));
        let severities: Vec<(&str, Severity)> =
            found.iter().map(|found| (found.object.as_str(), found.severity)).collect();
        let expected =
            [("CD_00_c1", Severity::Clear), ("CD_01_c1", Severity::Warning), ("CD_02_c1", Severity::Critical)];
        assert_eq!(severities, expected);
        assert_eq!(found[2].message, "Cell disk CD_02_c1 (/d2) is offline");
        let used = |percent| space(&Observed { used_percent: Some(percent), ..Observed::default() })[0].severity;
        assert_eq!([used(84.9), used(85.0), used(95.0)], [Severity::Clear, Severity::Warning, Severity::Critical]);
    }
}
