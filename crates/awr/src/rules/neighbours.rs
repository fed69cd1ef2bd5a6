//! Rule about databases that share the storage: one database causes most of the I/O, and the others wait.

use super::{Found, Judgement, share_text};
use crate::document::{Database, IormClass, Measure};
use crate::figures::{ratio, sum};
use crate::table::{bytes, duration};
use crate::view::{Sql, View, one_line, top};

/// The least share of all bytes of the database that causes the I/O.
const BYTES_SHARE_MIN: f64 = 0.5;
/// How many times the bytes of the others the database reads and writes in a second of its active time.
const INTENSITY_MIN: f64 = 1.5;
/// The least loss of the others, as a share of their active time.
const LOSS_MIN: f64 = 0.2;
/// The least loss of the others, in per cent of DB time.
const LOSS_PERCENT_MIN: f64 = 1.0;

/// The least bytes on the disks of the cells, as a share of the requested bytes, for which the disks tell who uses the cells.
const MANAGED_SHARE_MIN: f64 = 0.5;

/// What one database, or several, did with the storage.
#[derive(Clone, Copy, Default)]
struct Usage {
    /// Bytes read and written, including the bytes of Smart Scans.
    bytes: f64,
    /// Time of sessions that waited for I/O.
    wait_us: f64,
    active_us: f64,
}

impl Usage {
    fn add(mut self, other: Self) -> Self {
        self.bytes += other.bytes;
        self.wait_us += other.wait_us;
        self.active_us += other.active_us;
        self
    }

    /// Bytes per microsecond of active time.
    fn intensity(self) -> Measure {
        ratio(Some(self.bytes), Some(self.active_us))
    }
}

/// The classes of I/O of a database in resource management. Other clusters on the cells can have databases of the same name.
fn classes<'v>(view: &'v View<'_>, database: &Database) -> impl Iterator<Item = &'v IormClass> {
    let oid = database.oid;
    view.document.iorm.iter().filter(move |class| oid.is_some() && class.database_oid == oid)
}

/// Bytes that a database read from and wrote to the disks of the cells, as resource management counts them.
fn managed_bytes(view: &View<'_>, database: &Database) -> Measure {
    sum(classes(view, database).map(|class| sum([class.bytes, class.flash_bytes])))
}

/// Bytes that a database read and wrote through the mounts, or else its blocks and temporary files, and the bytes that its Smart
/// Scans read.
fn requested_bytes(view: &View<'_>, database: &Database) -> Measure {
    let name = &*database.name;
    let cell = sum(view.document.cell_io.iter().filter(|io| &*io.database == name).map(|io| io.bytes));
    let blocks = database.blks_read.map(|blocks| blocks * view.document.block_bytes());
    let statements = || view.sql.iter().filter(|sql| sql.database == name);
    let tables = || view.document.tables.iter().filter(|table| &*table.database == name);
    let eligible = sum(statements().map(|sql| sql.eligible_bytes)).or_else(|| sum(tables().map(|t| t.eligible_bytes)));
    let saved = sum(statements().map(|sql| sql.saved_bytes)).or_else(|| sum(tables().map(|t| t.saved_bytes)));
    let scanned = eligible.map(|eligible| (eligible - saved.unwrap_or(0.0)).max(0.0));
    sum([cell.or_else(|| sum([blocks, database.temp_bytes])), scanned])
}

/// Time that requests of a database waited in the queues of the cell disks.
fn queued_us(view: &View<'_>, database: &Database) -> Measure {
    sum(classes(view, database).map(|class| class.wait_us)).filter(|us| *us > 0.0)
}

/// Fewer samples of a wait are chance.
const SAMPLES_MIN: f64 = 10.0;

/// Time of the database's samples, of one wait class or of all.
fn sampled_us(view: &View<'_>, database: &Database, class: Option<&str>) -> Measure {
    let ash = &view.document.ash;
    if ash.by_database.is_empty() {
        return None;
    }
    let of_database = ash.by_database.iter().filter(|activity| activity.database == database.name);
    let samples = sum(of_database.filter(|a| class.is_none_or(|class| &*a.class == class)).map(|a| a.samples));
    Some(samples.filter(|samples| *samples >= SAMPLES_MIN).unwrap_or(0.0) * ash.period_us?)
}

/// None without the figures. The waits are sampled, or timed where track_io_timing is on; the greater figure counts, because
/// samples miss short waits, and the timing misses Smart Scans and temporary files.
fn usage(view: &View<'_>, database: &Database, bytes: Measure) -> Option<Usage> {
    let timed = sum([database.blk_read_us, database.blk_write_us]);
    let sampled = sampled_us(view, database, Some("User I/O"));
    Some(Usage {
        bytes: bytes?,
        wait_us: [timed, sampled].into_iter().flatten().reduce(f64::max)?,
        active_us: sampled_us(view, database, None).filter(|us| *us > 0.0).or(database.active_us)?,
    })
}

/// The statement of a database that read and wrote most.
fn greatest_user<'v, 'a>(view: &'v View<'a>, database: &str) -> Option<&'v Sql<'a>> {
    let block = view.document.block_bytes();
    let blocks = |sql: &&Sql<'_>| sum([sql.reads, sql.writes, sql.temp_blocks]).map(|blocks| blocks * block);
    let key = |sql: &&Sql<'_>| sum([blocks(sql), sql.eligible_bytes]);
    top(view.sql.iter().filter(|sql| sql.database == database), 1, key).into_iter().next()
}

/// The impact is what the others lost: the part of their I/O waits that is the database's share of the bytes.
pub(super) fn noisy_neighbour(view: &View<'_>) -> Judgement {
    // Object identifier 0: relations that all databases share.
    let databases = view.document.databases.iter().filter(|database| database.oid != Some(0));
    let io: Vec<_> = databases.map(|d| (d, managed_bytes(view, d), requested_bytes(view, d))).collect();
    // Bytes on the disks of the cells compare with nothing else: a database without them can be on other storage. If the cells
    // return most bytes from memory, the disks do not tell who uses the cells.
    let managed_total = sum(io.iter().map(|(_, managed, _)| *managed)).unwrap_or(0.0);
    let requested_total = sum(io.iter().map(|(_, _, requested)| *requested)).unwrap_or(0.0);
    let is_managed = managed_total > MANAGED_SHARE_MIN * requested_total
        && io.iter().all(|(_, managed, requested)| managed.is_some() || requested.is_none_or(|bytes| bytes == 0.0));
    let io_bytes = |managed, requested| if is_managed { managed } else { requested };
    let usages: Vec<(&Database, Usage)> = io
        .iter()
        .filter_map(|(d, managed, requested)| Some((*d, usage(view, d, io_bytes(*managed, *requested))?)))
        .collect();
    if usages.is_empty() {
        return None;
    }
    let mut found = Vec::new();
    for (database, usage) in &usages {
        let others = usages.iter().filter(|(other, _)| !std::ptr::eq(*other, *database));
        let theirs = others.clone().fold(Usage::default(), |sum, (_, usage)| sum.add(*usage));
        let Some(share) = ratio(Some(usage.bytes), Some(usage.bytes + theirs.bytes)) else { continue };
        let factor = ratio(usage.intensity(), theirs.intensity());
        let lost_us = theirs.wait_us * share;
        let lost_percent = view.model.percent_of_db_time(Some(lost_us)).unwrap_or(0.0);
        let is_loss = lost_us >= LOSS_MIN * theirs.active_us && lost_percent >= LOSS_PERCENT_MIN;
        if share < BYTES_SHARE_MIN
            || factor.is_some_and(|factor| factor < INTENSITY_MIN)
            || !(is_loss || lost_percent >= super::SIGNIFICANT_PERCENT)
        {
            continue;
        }
        let name = &database.name;
        let mut one = Found::new(format!("I/O of database {name} slowed down the other databases"))
            .impact(lost_us)
            .significant_at(LOSS_PERCENT_MIN)
            .covers(usage.wait_us + theirs.wait_us)
            .evidence(
                "databases",
                format!(
                    "{name} read and wrote {}B, {:.0} % of all bytes, in {:.0} % of the active time",
                    bytes(usage.bytes),
                    100.0 * share,
                    100.0 * usage.active_us / (usage.active_us + theirs.active_us)
                ),
            );
        for (other, usage) in top(others, 3, |(_, usage)| Some(usage.wait_us)) {
            let of_active = 100.0 * usage.wait_us / usage.active_us.max(usage.wait_us);
            let mut text = format!(
                "{} waited {} for I/O, {of_active:.0} % of its active time, and read and wrote {}B",
                other.name,
                duration(usage.wait_us),
                bytes(usage.bytes)
            );
            if let Some(us) = queued_us(view, other) {
                text += &format!("; its requests waited {} in the queues of the cell disks", duration(us));
            }
            one = one.evidence("databases", text);
        }
        one = one.evidence(
            "databases",
            format!("lost by the other databases: about {}, {}", duration(lost_us), share_text(view, lost_us)),
        );
        let mut target = format!("database {name}");
        if let Some(sql) = greatest_user(view, name) {
            target = format!("statement {}", sql.name());
            one = one.evidence("sql-reads", format!("SQL {}: {}", sql.name(), one_line(sql.text, 80)));
        }
        let advice = format!("Tune or reschedule {target}, or limit the I/O of database {name}");
        found.push(one.recommend(advice, Some(lost_us)));
    }
    Some(found)
}
