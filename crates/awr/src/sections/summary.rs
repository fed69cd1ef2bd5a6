//! Report summary: header, load profile, instance efficiency, top events, wait classes, CPU, I/O profile.

use super::{Block, Group, Section};
use crate::document::{Event, Measure, OsStatistic, names};
use crate::figures::time::{average_wait_us, foreground_waits, wait_classes};
use crate::figures::{MEGABYTE, efficiency, load, percent, smart_scan::SmartScan, sum};
use crate::findings::Findings;
use crate::table::{Cell, Table};
use crate::view::{View, time_text};

/// Rows of a table of top events.
pub const PREFERRED_ROWS: usize = 10;

pub fn sections(view: &View<'_>) -> Vec<Section> {
    vec![
        header(view, "WORKLOAD REPOSITORY report for"),
        notes(view),
        load_profile(view),
        instance_efficiency(view),
        top_events(view),
        classes(view),
        host_cpu(view),
        instance_cpu(view),
        io_profile(view),
    ]
}

pub(super) fn header(view: &View<'_>, title: &str) -> Section {
    let document = view.document;
    let instance = &document.instance;
    let text = |text: &str| Cell::text(text);
    let database = Table::new(&["<DB Name", "DB Id", "<Instance", "Inst Num", "<Startup Time", "<Release", "<RAC"])
        .with_rows([vec![
            text(&instance.name),
            text(&instance.system_identifier),
            text(&instance.name),
            text(&instance.id),
            text(&time_text(&instance.start_time)),
            text(&instance.server_version),
            text("NO"),
        ]]);
    let role = instance.in_recovery.map_or("", |in_recovery| if in_recovery { "STANDBY" } else { "PRIMARY" });
    let gigabytes = instance.memory_bytes.map(|bytes| bytes / MEGABYTE / 1024.0);
    let host = Table::new(&["<Host Name", "<Platform", "CPUs", "Memory (GB)", "<Role", "<Cellar"]).with_rows([vec![
        text(&instance.host),
        text(&instance.platform),
        Cell::count(document.cpus()),
        Cell::decimal(gigabytes, 2),
        text(role),
        text(&instance.cellar_version),
    ]]);
    let minutes = |us: Measure| {
        us.map_or(Cell::Absent, |us| Cell::Text(format!("{} (mins)", crate::table::grouped(us / 60e6, 2))))
    };
    let snapshots = Table::new(&["", "Snap Id", "Snap Time", "Sessions"]).labelled().with_rows([
        vec![
            text("Begin Snap:"),
            Cell::integer(document.begin.snap_id),
            text(&time_text(&document.begin.time)),
            Cell::count(document.begin.sessions),
        ],
        vec![
            text("End Snap:"),
            Cell::integer(document.end.snap_id),
            text(&time_text(&document.end.time)),
            Cell::count(document.end.sessions),
        ],
        vec![text("Elapsed:"), Cell::Absent, minutes(document.elapsed_us), Cell::Absent],
        vec![text("DB Time:"), Cell::Absent, minutes(view.model.db_time_us), Cell::Absent],
    ]);
    let section = Section::new("header", Group::Summary, title);
    let section = section.note(super::TIMES_ARE_UTC).table(database).table(host).table(snapshots);
    match super::ash::chart(view) {
        Some(chart) => section.chart(chart),
        None => section,
    }
}

/// Restarts and other events of the interval, and missing figures: they decide how far the report can be trusted.
pub(super) fn notes(view: &View<'_>) -> Section {
    let mut section = Section::new("notes", Group::Summary, "Notes and Missing Sources");
    let notes = Table::new(&["Snap Id", "<Time", "<Kind", "<Object", "<Note"])
        .with_rows(view.document.notes.iter().map(|note| {
            vec![
                Cell::integer(note.snap_id),
                Cell::text(time_text(&note.time)),
                Cell::text(&*note.kind),
                Cell::text(&*note.object),
                Cell::text(&*note.text),
            ]
        }))
        .without_empty_columns();
    section =
        section.table_or(notes, "No restart, statistics reset, dropped object or clock step between the snapshots.");
    let missing = view.document.sources.iter().filter(|source| source.available == Some(false));
    let missing = Table::new(&["<Missing Source", "<What is missing, and how to enable the source"])
        .with_rows(missing.map(|source| vec![Cell::text(&*source.name), Cell::text(&*source.detail)]));
    if view.document.sources.is_empty() {
        return section;
    }
    section.table_or(missing, "All sources are available.")
}

fn load_profile(view: &View<'_>) -> Section {
    let table = Table::new(&["", "Per Second", "Per Transaction", "Per Exec", "Per Call", "<How"])
        .labelled()
        .titled("Load Profile");
    let table = table.with_rows(load::load_profile(view.document).into_iter().map(|line| {
        vec![
            Cell::text(line.label),
            Cell::decimal(line.per_second, 1),
            Cell::decimal(line.per_transaction, 1),
            Cell::decimal(line.per_execution, 2),
            Cell::decimal(line.per_call, 2),
            Cell::How(line.how, None),
        ]
    }));
    Section::new("load-profile", Group::Summary, "Load Profile")
        .table_or(table, "Not available: the document contains neither an elapsed time nor statistics")
}

fn instance_efficiency(view: &View<'_>) -> Section {
    let document = view.document;
    let title = "Instance Efficiency Percentages (Target 100%)";
    let lines = [
        ("Buffer  Hit   %:", efficiency::buffer_hit_percent(document)),
        ("Execute to Parse %:", efficiency::execute_to_parse_percent(document)),
        ("Soft Parse %:", efficiency::soft_parse_percent(document)),
        ("% Non-Parse CPU:", efficiency::non_parse_cpu_percent(document)),
        ("Flash Cache Hit %:", SmartScan::of(document).flash_hit_percent()),
        ("Commit %:", efficiency::commit_percent(document)),
        ("HOT Update %:", efficiency::hot_update_percent(document)),
        ("SLRU Hit %:", efficiency::slru_hit_percent(document)),
    ];
    let table = Table::new(&["", "%"]).labelled().titled(title).with_rows(
        lines
            .into_iter()
            .filter(|(_, percent)| percent.is_some())
            .map(|(label, percent)| vec![Cell::text(label), Cell::percent(percent, 2)]),
    );
    Section::new("instance-efficiency", Group::Summary, title)
        .table_or(table, "Not available: no statistics of logical reads, parses or updates")
}

fn top_events(view: &View<'_>) -> Section {
    let title = "Top 10 Foreground Events by Total Wait Time";
    let model = &view.model;
    let mut rows: Vec<(Measure, Vec<Cell>)> = foreground_waits(view.document)
        .filter(|event| event.time_us.is_some())
        .map(|event| (event.time_us, event_row(view, event)))
        .collect();
    let mut own = |event: &str, class: &str, us: Measure| {
        let share = Cell::percent(model.percent_of_db_time(us), 1);
        let row = vec![
            Cell::text(event),
            Cell::Absent,
            Cell::seconds(us, 1),
            Cell::Absent,
            share,
            Cell::text(class),
            Cell::Absent,
        ];
        if us.is_some_and(|us| us > 0.0) {
            rows.push((us, row));
        }
    };
    own("DB CPU", "", model.db_cpu_us);
    own("CPU run queue", "Scheduler", model.run_queue_outside_waits_us());
    rows.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(std::cmp::Ordering::Equal));
    rows.truncate(PREFERRED_ROWS);
    let columns = ["<Event", "Waits", "Total Wait Time (sec)", "Avg Wait", "% DB time", "<Wait Class", "<How"];
    let table = Table::new(&columns).titled(title).with_rows(rows.into_iter().map(|(_, row)| row));
    Section::new("top-events", Group::Summary, title)
        .table_or(table, view.missing("session samples", "set cellar.awr_sample_period above 0 to sample wait events"))
}

fn event_row(view: &View<'_>, event: &Event) -> Vec<Cell> {
    vec![
        Cell::text(&*event.event),
        Cell::count(event.waits),
        Cell::seconds(event.time_us, 1),
        Cell::duration(average_wait_us(event.time_us, event.waits)),
        Cell::percent(view.model.percent_of_db_time(event.time_us), 1),
        Cell::text(&*event.class),
        Cell::how(event.how, event.stderr_us),
    ]
}

fn classes(view: &View<'_>) -> Section {
    let title = "Wait Classes by Total Wait Time";
    let model = &view.model;
    let row = |class: &str, waits: Measure, us: Measure, digits: usize| {
        vec![
            Cell::text(class),
            Cell::count(waits),
            Cell::seconds(us, digits),
            Cell::duration(average_wait_us(us, waits)),
            Cell::percent(model.percent_of_db_time(us), 1),
            Cell::decimal(model.active_sessions(us), 2),
        ]
    };
    let mut rows: Vec<(Measure, Vec<Cell>)> =
        wait_classes(foreground_waits(view.document).collect::<Vec<_>>().into_iter())
            .into_iter()
            .map(|class| (class.time_us, row(&class.class, class.waits, class.time_us, 1)))
            .collect();
    if model.db_cpu_us.is_some() {
        rows.push((model.db_cpu_us, row("DB CPU", None, model.db_cpu_us, 1)));
    }
    if let Some(us) = model.run_queue_outside_waits_us() {
        rows.push((Some(us), row("CPU run queue", None, Some(us), 1)));
    }
    rows.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(std::cmp::Ordering::Equal));
    if let Some(us) = model.idle_us {
        rows.push((None, row("(idle waits in statements)", None, Some(us), 1)));
    }
    if let Some(us) = model.unaccounted_us() {
        rows.push((None, row("(unaccounted for)", None, Some(us), 1)));
    }
    let columns =
        ["<Wait Class", "Waits", "Total Wait Time (sec)", "Avg Wait Time", "% DB time", "Avg Active Sessions"];
    let table = Table::new(&columns).titled(title).with_rows(rows.into_iter().map(|(_, row)| row));
    Section::new("wait-classes", Group::Summary, title)
        .note("DB time = DB CPU + CPU run queue (outside of waits) + waits, idle ones included + unaccounted; sampled waits can exceed DB time")
        .table_or(table, view.missing("session samples", "set cellar.awr_sample_period above 0 to sample wait events"))
}

fn host_cpu(view: &View<'_>) -> Section {
    let document = view.document;
    let value = |name: &str| document.cpu_time(name);
    let load = document.os_statistic("LOAD");
    let total = sum([value("BUSY_TIME"), value("IDLE_TIME")]);
    let mut table = Table::new(&[
        "CPUs",
        "Load Average Begin",
        "Load Average End",
        "%User",
        "%Nice",
        "%System",
        "%Steal",
        "%WIO",
        "%Idle",
    ])
    .titled("Host CPU");
    if total.is_some() || load.is_some() {
        table.push(vec![
            Cell::count(document.cpus()),
            Cell::decimal(load.and_then(|load| load.begin), 2),
            Cell::decimal(load.and_then(|load| load.end), 2),
            Cell::percent(percent(value("USER_TIME"), total), 1),
            Cell::percent(percent(value("NICE_TIME"), total), 1),
            Cell::percent(percent(sum([value("SYS_TIME"), value("IRQ_TIME")]), total), 1),
            Cell::percent(percent(value("STEAL_TIME"), total), 1),
            Cell::percent(percent(value("IOWAIT_TIME"), total), 1),
            Cell::percent(percent(value("IDLE_TIME"), total), 1),
        ]);
    }
    Section::new("host-cpu", Group::Summary, "Host CPU")
        .note("%System contains interrupts; %WIO is a part of %Idle, the other shares add up to 100")
        .table_or(table, view.missing("os_stat", "statistics of the host need /proc, which only Linux has"))
}

fn instance_cpu(view: &View<'_>) -> Section {
    let document = view.document;
    let background = document.time(names::time::BACKGROUND_CPU);
    let cpu = sum([view.model.db_cpu_us, background]);
    // Oracle's unit is centiseconds.
    let unit = |busy: &OsStatistic| if &*busy.unit == "us" { 1.0 } else { 1e4 };
    let busy = document.os_statistic("BUSY_TIME").and_then(|busy| Some(busy.value? * unit(busy)));
    let available = document.elapsed_us.zip(document.cpus()).map(|(us, cpus)| us * cpus);
    let mut table = Table::new(&["%Total CPU", "%Busy CPU", "%DB time waiting for CPU"]).titled("Instance CPU");
    if cpu.is_some() {
        table.push(vec![
            Cell::percent(percent(cpu, available), 1),
            Cell::percent(percent(cpu, busy), 1),
            Cell::percent(view.model.percent_of_db_time(view.model.run_queue_outside_waits_us()), 1),
        ]);
    }
    Section::new("instance-cpu", Group::Summary, "Instance CPU").table_or(
        table,
        view.missing("os_stat", "CPU time of sessions needs /proc/PID/schedstat, which only Linux has"),
    )
}

fn io_profile(view: &View<'_>) -> Section {
    let document = view.document;
    let block = document.block_bytes();
    let statistic = |name: &str| document.statistic(name);
    let megabytes = |bytes: Measure| bytes.map(|bytes| bytes / MEGABYTE);
    let rows = [
        ("Total Requests:", statistic(names::READ_REQUESTS), statistic(names::WRITE_REQUESTS)),
        ("Total (MB):", megabytes(statistic(names::READ_BYTES)), megabytes(statistic(names::WRITE_BYTES))),
        ("Redo (MB):", None, megabytes(statistic(names::REDO_SIZE))),
        (
            "Via Buffer Cache (MB):",
            statistic(names::PHYSICAL_READS).map(|blocks| blocks * block / MEGABYTE),
            statistic(names::PHYSICAL_WRITES).map(|blocks| blocks * block / MEGABYTE),
        ),
        ("Smart Scan (MB):", megabytes(statistic(names::ELIGIBLE)), None),
    ];
    let table = Table::new(&["", "Read+Write Per Second", "Read per Second", "Write Per Second"])
        .labelled()
        .titled("IO Profile")
        .with_rows(rows.into_iter().filter(|(_, read, write)| read.is_some() || write.is_some()).map(
            |(label, read, write)| {
                vec![
                    Cell::text(label),
                    Cell::decimal(view.per_second(sum([read, write])), 1),
                    Cell::decimal(view.per_second(read), 1),
                    Cell::decimal(view.per_second(write), 1),
                ]
            },
        ));
    Section::new("io-profile", Group::Summary, "IO Profile")
        .table_or(table, "Not available: no statistics of reads and writes")
}

/// The findings: a list by impact, then each finding, then the areas without impact.
pub fn findings(findings: &Findings) -> Section {
    let mut section = Section::new("findings", Group::Summary, "Top ADDM Findings by Average Active Sessions");
    let table = Table::new(&["<Finding Name", "Avg Active Sessions", "% DB time", "<Type", "<Id"]).with_rows(
        findings.findings.iter().map(|finding| {
            vec![
                Cell::text(&finding.title),
                Cell::decimal(finding.impact.and_then(|impact| impact.active_sessions), 2),
                Cell::percent(finding.impact.and_then(|impact| impact.percent), 1),
                Cell::text(finding.kind.name()),
                Cell::text(finding.id),
            ]
        }),
    );
    section = section.note("Problems first, then symptoms of problems, then information; each by impact");
    if let Some(sessions) = findings.nearly_idle {
        section = section.note(format!(
            "The instance was nearly idle, {sessions:.4} average active sessions: shares of so little DB time are no problems"
        ));
    }
    section = section.table_or(table, "No finding: no rule applies to the figures of this interval.");
    for finding in &findings.findings {
        section.blocks.push(Block::Finding(Box::new(finding.clone())));
    }
    for (areas, meaning) in [
        (&findings.without_impact, "Areas without significant impact"),
        (&findings.not_judged, "Areas that cannot be judged, because their figures are missing"),
    ] {
        if !areas.is_empty() {
            section = section.sentence(format!("{meaning}: {}.", areas.join(", ")));
        }
    }
    section
}
