//! Each rule has a document that provokes it and one, just beside, that must not.

use crate::support::{Builder, HOUR_US, REPORT, SECOND_US, SELECT, UPDATE};
use cellar_awr::document::parse;
use cellar_awr::findings::{Finding, Findings, Kind};
use cellar_awr::render::text;
use cellar_awr::report::instance;
use cellar_awr::rules::{RULES, judge};
use cellar_awr::sql_id;
use serde_json::json;
use std::collections::BTreeSet;

type Change = fn(Builder) -> Builder;

/// Rule, change of the healthy document that provokes the rule, change that must not.
const CASES: [(&str, Change, Change); 28] = [
    (
        "cpu-run-queue",
        |b| b.set("/databases/0/run_queue_us", 0.2 * HOUR_US).event("VacuumDelay", "Other", 0.4 * HOUR_US),
        |b| b.set("/databases/0/run_queue_us", 0.09 * HOUR_US),
    ),
    ("cpu-bound", |b| b.set("/time_model/1/us", 1.7 * HOUR_US), |b| b.set("/time_model/1/us", 0.95 * HOUR_US)),
    (
        "io-bound",
        |b| b.event("DataFileRead", "User I/O", 0.7 * HOUR_US),
        |b| b.event("DataFileRead", "User I/O", 0.5 * HOUR_US),
    ),
    (
        "offloadable-scans",
        // 60,000 of 260,000 blocks are read by sequential scans.
        |b| b.event("DataFileRead", "User I/O", 0.6 * HOUR_US).set("/tables/1/on_cell", false),
        |b| b.event("DataFileRead", "User I/O", 0.3 * HOUR_US),
    ),
    (
        "single-block-reads",
        |b| b.event("db file sequential read", "User I/O", 0.3 * HOUR_US),
        |b| b.event("direct path read", "User I/O", 0.3 * HOUR_US),
    ),
    (
        "latency-tail",
        |b| {
            b.push(
                "/events",
                json!({ "event": "cell single block physical read", "class": "User I/O", "foreground": true,
            "waits": 1_000_000, "time_us": 3.2e8, "how": "timed",
            "histogram": [0, 0, 0, 0, 0, 0, 0, 500_000, 480_000, 0, 0, 0, 0, 0, 0, 0, 20_000] }),
            )
        },
        |b| {
            b.push(
                "/events",
                json!({ "event": "cell single block physical read", "class": "User I/O", "foreground": true,
            "waits": 1_000_000, "time_us": 3.2e8, "how": "timed",
            "histogram": [0, 0, 0, 0, 0, 0, 0, 0, 500_000, 400_000, 100_000] }),
            )
        },
    ),
    (
        "noisy-neighbour",
        |b| b.set("/databases/1/blks_read", 3_000_000).set("/databases/0/blk_read_us", 0.4 * HOUR_US),
        // Most of the bytes, but in proportion to the active time.
        |b| {
            b.set("/databases/1/blks_read", 3_000_000)
                .set("/databases/1/active_us", 18.0 * HOUR_US)
                .set("/databases/0/blk_read_us", 0.4 * HOUR_US)
        },
    ),
    (
        "temp-spills",
        |b| b.set("/statements/2/temp_blk_write_us", 0.2 * HOUR_US).set("/statements/2/temp_blks_written", 900_000),
        |b| b.set("/statements/2/temp_blk_write_us", 0.05 * HOUR_US),
    ),
    ("commit-waits", |b| b.event("WALSync", "Commit", 0.3 * HOUR_US), |b| b.event("WALSync", "Commit", 0.09 * HOUR_US)),
    (
        "wal-buffers-full",
        |b| b.statistic("redo log space requests", 36_000.0),
        |b| b.statistic("redo log space requests", 3_000.0),
    ),
    (
        "full-page-images",
        |b| b.statistic("pg_stat_wal.wal_fpi", 60_000.0),
        |b| b.statistic("pg_stat_wal.wal_fpi", 40_000.0),
    ),
    (
        "checkpoint-storm",
        |b| b.statistic("pg_stat_checkpointer.num_requested", 40.0).event("DataFileWrite", "User I/O", 0.1 * HOUR_US),
        // Requested, but fewer than by time.
        |b| b.statistic("pg_stat_checkpointer.num_requested", 10.0).event("DataFileWrite", "User I/O", 0.1 * HOUR_US),
    ),
    (
        "backend-writes",
        |b| b.set("/io/0/writes", 90_000).event("DataFileWrite", "User I/O", 0.2 * HOUR_US),
        |b| b.set("/io/0/writes", 9_000).event("DataFileWrite", "User I/O", 0.2 * HOUR_US),
    ),
    (
        "lock-waits",
        |b| b.event("transactionid", "Application", 0.5 * HOUR_US),
        |b| b.event("enq: KO - fast object checkpoint", "Application", 0.5 * HOUR_US),
    ),
    (
        "lwlock-contention",
        |b| b.event("BufferMapping", "Concurrency", 0.4 * HOUR_US),
        |b| b.event("BufferMapping", "Concurrency", 0.01 * HOUR_US),
    ),
    (
        "plan-regression",
        |b| {
            b.push("/plan_history", json!({ "snap_id": 102, "query_id": SELECT, "plan_id": 99, "calls": 100_000, "elapsed_us": 0.5 * HOUR_US,
            "logical_reads": 90_000_000, "physical_reads": 9_000_000, "time": "2026-11-23T05:00:00+00:00" }))
        },
        // The slow plan was used before, not now.
        |b| {
            b.push("/plan_history", json!({ "snap_id": 100, "query_id": SELECT, "plan_id": 99, "calls": 100_000, "elapsed_us": 0.5 * HOUR_US }))
        },
    ),
    (
        "slower-storage",
        |b| {
            b.push("/plan_history", json!({ "snap_id": 103, "query_id": SELECT, "plan_id": 11, "calls": 2_000_000, "elapsed_us": 0.6 * HOUR_US,
            "logical_reads": 40_000_000, "physical_reads": 200_000 }))
            .set("/statements/0/blk_read_us", 0.5 * HOUR_US)
        },
        // More time, because of more reads.
        |b| {
            b.push("/plan_history", json!({ "snap_id": 103, "query_id": SELECT, "plan_id": 11, "calls": 2_000_000, "elapsed_us": 0.6 * HOUR_US,
            "logical_reads": 160_000_000, "physical_reads": 800_000 }))
        },
    ),
    (
        "top-sql",
        |b| b.set("/statements/1/elapsed_us", 0.5 * HOUR_US),
        |b| b.set("/statements/1/elapsed_us", 0.19 * HOUR_US),
    ),
    (
        "missing-statistics",
        |b| b.set("/tables/1/last_analyze", json!(null)),
        // Small tables may lack statistics.
        |b| b.set("/tables/1/last_analyze", json!(null)).set("/tables/1/n_live_tup", 900),
    ),
    (
        "idle-in-transaction",
        |b| b.set("/sessions/idle_in_transaction/0/age_us", 600.0 * SECOND_US),
        |b| b.set("/sessions/idle_in_transaction/0/age_us", 50.0 * SECOND_US),
    ),
    (
        "xmin-holder",
        |b| b.set("/vacuum_horizon/0/age_xids", 3_000_000),
        |b| b.set("/vacuum_horizon/0/age_xids", 300_000),
    ),
    (
        "freeze-age",
        |b| b.set("/databases/1/frozen_age", 310_000_000),
        |b| b.set("/databases/1/frozen_age", 210_000_000),
    ),
    (
        "replication-lag",
        |b| b.set("/replication/0/replay_lag_us_max", 15.0 * SECOND_US),
        // An active slot may retain WAL while its standby catches up.
        |b| b.set("/slots/0/retained_bytes", 9_000_000_000_u64),
    ),
    (
        "smart-scan-passthru",
        |b| scans(b, 100e9, 10e9, 20e9, 95e9).statistic("cell num bytes in passthru during predicate offload", 40e9),
        |b| scans(b, 100e9, 10e9, 20e9, 95e9).statistic("cell num bytes in passthru during predicate offload", 4e9),
    ),
    (
        "compressed-comparison",
        // Negative efficiency: more bytes returned than eligible, because the tables are compressed 10:1.
        |b| scans(b, 100e9, 10e9, 120e9, 900e9),
        |b| scans(b, 100e9, 10e9, 20e9, 90e9),
    ),
    (
        "mixed-directions",
        |b| scans(b, 100e9, 10e9, 20e9, 90e9).statistic("physical write total bytes", 30e9),
        |b| scans(b, 100e9, 10e9, 20e9, 90e9).statistic("physical write total bytes", 3e9),
    ),
    ("unaccounted-time", |b| b.set("/time_model/1/us", 0.1 * HOUR_US), |b| b.set("/time_model/1/us", 0.8 * HOUR_US)),
    (
        "interrupted-interval",
        |b| {
            b.set("/notes", json!([{ "snap_id": 102, "kind": "statistics reset", "object": "statement_stat", "text": "5 rows restarted from zero" }]))
        },
        |b| {
            b.set("/notes", json!([{ "snap_id": 102, "kind": "objects dropped", "object": "table_stat", "text": "2 objects no longer exist" }]))
        },
    ),
];

fn scans(b: Builder, eligible: f64, saved: f64, returned: f64, uncompressed: f64) -> Builder {
    b.statistic("cell physical IO bytes eligible for predicate offload", eligible)
        .statistic("cell physical IO bytes saved by storage index", saved)
        .statistic("cell physical IO interconnect bytes returned by smart scan", returned)
        .statistic("cell IO uncompressed bytes", uncompressed)
        .statistic("cell physical IO interconnect bytes", returned + 80e9)
        .statistic("physical read total bytes", eligible + 10e9)
}

fn ids(findings: &Findings) -> Vec<&str> {
    findings.findings.iter().map(|finding| finding.id).collect()
}

fn found<'a>(findings: &'a Findings, id: &str) -> &'a Finding {
    findings
        .findings
        .iter()
        .find(|finding| finding.id == id)
        .unwrap_or_else(|| panic!("no {id} in {:?}", ids(findings)))
}

#[test]
fn a_healthy_hour_has_no_finding_and_its_areas_are_named() {
    let findings = judge(&Builder::healthy().build());
    assert_eq!(ids(&findings), Vec::<&str>::new());
    for area in ["CPU", "User I/O", "Locks", "Checkpoints", "Vacuum"] {
        assert!(findings.without_impact.contains(&area), "{area}: {findings:?}");
    }
    assert_eq!(findings.not_judged, Vec::<&str>::new());
}

#[test]
fn every_rule_is_provoked_by_its_document_and_not_by_its_neighbour() {
    let tested: BTreeSet<&str> = CASES.iter().map(|(id, ..)| *id).collect();
    let rules: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(tested, rules);
    for (id, provoke, spare) in CASES {
        let findings = judge(&provoke(Builder::healthy()).build());
        let finding = found(&findings, id);
        assert!(!finding.evidence.is_empty() && !finding.recommendations.is_empty(), "{finding:?}");
        for finding in &findings.findings {
            let shares = finding.recommendations.iter().filter_map(|recommendation| recommendation.benefit_percent);
            for share in shares.chain(finding.impact.and_then(|impact| impact.percent)) {
                assert!((0.0..=100.0).contains(&share), "{id}: {finding:?}");
            }
        }
        let findings = judge(&spare(Builder::healthy()).build());
        assert!(!ids(&findings).contains(&id), "{id} was provoked by its neighbour: {findings:#?}");
    }
}

/// Sampled waits and background processes can exceed DB time.
#[test]
fn no_share_of_db_time_exceeds_100_per_cent() {
    let findings = judge(&Builder::healthy().event("transactionid", "Application", 9.0 * HOUR_US).build());
    let finding = found(&findings, "lock-waits");
    assert_eq!(finding.impact.and_then(|impact| impact.percent), Some(100.0));
    assert!(!finding.evidence.iter().any(|evidence| evidence.text.contains("450.0 %")), "{finding:?}");
}

#[test]
fn parts_that_exceed_db_time_by_more_than_sampling_explains_are_told() {
    let exceeding = |stderr_us: f64| {
        let event = json!({ "event": "WALSync", "class": "Commit", "foreground": true, "time_us": 1.5 * HOUR_US,
            "stderr_us": stderr_us, "how": "sampled" });
        judge(&Builder::healthy().push("/events", event).build())
    };
    let findings = exceeding(0.01 * HOUR_US);
    let evidence = &found(&findings, "unaccounted-time").evidence[0];
    assert!(evidence.text.starts_with("unaccounted for: -") && evidence.section == "time-model", "{evidence:?}");
    assert!(!ids(&exceeding(0.5 * HOUR_US)).contains(&"unaccounted-time"));
}

#[test]
fn impact_and_benefit_are_shares_of_db_time() {
    let findings = judge(&Builder::healthy().event("transactionid", "Application", 0.5 * HOUR_US).build());
    let finding = found(&findings, "lock-waits");
    let impact = finding.impact.expect("an impact");
    assert_eq!((impact.active_sessions, impact.percent), (Some(0.5), Some(25.0)));
    assert_eq!(finding.recommendations[0].benefit_percent, Some(25.0));
    assert!(finding.title.contains("4711"), "{}", finding.title);
}

/// Session 2 waits for session 1, and sessions 3 to 5 wait for session 2.
#[test]
fn a_lock_chain_is_attributed_to_the_session_at_its_head() {
    let waits = |blocker, blocked| json!({ "blocker_pid": blocker, "blocked_pid": blocked, "samples": 100 });
    let chain = json!([waits(1, 2), waits(2, 3), waits(2, 4), waits(2, 5)]);
    let builder = Builder::healthy().event("transactionid", "Application", 0.5 * HOUR_US);
    let findings = judge(&builder.set("/sessions/blocking", chain).build());
    let finding = found(&findings, "lock-waits");
    assert!(finding.title.ends_with("session 1"), "{}", finding.title);
    assert!(
        finding.evidence.iter().any(|evidence| evidence.text.contains("session 1 blocked 4 sessions in 400 samples"))
    );
}

/// Of the pairs of a long chain, a document lists those with the most samples. The chain contains all.
#[test]
fn a_finding_counts_all_sessions_of_a_chain() {
    let waits = |blocker, blocked| {
        json!({ "blocker_pid": blocker, "blocked_pid": blocked, "samples": 100,
        "blocker_application": format!("session {blocker}") })
    };
    let builder = Builder::healthy()
        .event("tuple", "Application", 0.5 * HOUR_US)
        .set("/sessions/blocking", json!([waits(1, 2), waits(2, 3), waits(7, 8)]))
        .set("/ash/chains", json!([{ "head_pid": 7, "sessions": 1, "samples": 100 }, { "head_pid": 1, "sessions": 901, "samples": 9_300 }]));
    let findings = judge(&builder.build());
    let finding = found(&findings, "lock-waits");
    assert!(finding.title.ends_with("session 1"), "{}", finding.title);
    let text = "session 1 (session 1) blocked 901 sessions in 9300 samples";
    assert!(finding.evidence.iter().any(|evidence| evidence.text == text), "{finding:?}");
}

#[test]
fn sessions_that_blocked_each_other_by_turns_are_named() {
    let waits =
        |blocker, blocked, samples| json!({ "blocker_pid": blocker, "blocked_pid": blocked, "samples": samples });
    let builder = Builder::healthy().event("transactionid", "Application", 0.5 * HOUR_US);
    let findings = judge(&builder.set("/sessions/blocking", json!([waits(1, 2, 10), waits(2, 1, 20)])).build());
    let title = &found(&findings, "lock-waits").title;
    assert!(title.ends_with("session 1") || title.ends_with("session 2"), "{title}");
}

#[test]
fn missing_figures_make_an_area_unjudged_instead_of_healthy() {
    let findings = judge(&Builder::healthy().without("events").without("time_model").without("databases").build());
    for area in ["CPU", "Locks", "Concurrency inside the server"] {
        assert!(findings.not_judged.contains(&area), "{area}: {findings:?}");
    }
}

#[test]
fn an_empty_document_has_no_finding_and_no_panic() {
    let document = parse(br#"{"format": 1}"#).unwrap().remove(0);
    assert_eq!(ids(&judge(&document)), Vec::<&str>::new());
}

/// The first finding of each set-up names the culprit: database, session, statement or setting.
#[test]
fn the_first_finding_names_the_known_culprit() {
    let hog = Builder::healthy()
        .event("DataFileRead", "User I/O", 0.9 * HOUR_US)
        .set("/databases/0/blk_read_us", 0.8 * HOUR_US)
        .set("/databases/1/blks_read", 9_000_000)
        .set("/statements/2/shared_blks_read", 9_000_000)
        .set("/tables/1/heap_blks_read", 9_000_000);
    let lock_chain = Builder::healthy()
        .event("transactionid", "Application", 1.2 * HOUR_US)
        .set("/sessions/idle_in_transaction/0/age_us", 30.0 * SECOND_US);
    let plan_flip = Builder::healthy().event("DataFileRead", "User I/O", 0.5 * HOUR_US).push(
        "/plan_history",
        json!({ "snap_id": 102, "query_id": SELECT, "plan_id": 99, "calls": 90_000, "elapsed_us": HOUR_US }),
    );
    let checkpoints = Builder::healthy()
        .statistic("pg_stat_checkpointer.num_requested", 60.0)
        .statistic("pg_stat_wal.wal_fpi", 80_000.0)
        .event("WALSync", "Commit", 0.5 * HOUR_US)
        .event("DataFileWrite", "User I/O", 0.2 * HOUR_US);
    let spill = Builder::healthy()
        .event("BufFileWrite", "User I/O", 0.7 * HOUR_US)
        .set("/statements/2/temp_blk_write_us", 0.7 * HOUR_US)
        .set("/statements/2/temp_blks_written", 9_000_000)
        .set("/statements/2/elapsed_us", HOUR_US);
    for (set_up, id, name) in [
        (hog, "noisy-neighbour", "archive".to_owned()),
        (lock_chain, "lock-waits", "4711".to_owned()),
        (plan_flip, "plan-regression", sql_id::format(SELECT)),
        (checkpoints, "checkpoint-storm", "60 checkpoints".to_owned()),
        (spill, "temp-spills", sql_id::format(REPORT)),
    ] {
        let findings = judge(&set_up.build());
        let first = &findings.findings[0];
        assert_eq!((first.id, first.kind), (id, Kind::Problem), "{:?}", ids(&findings));
        assert!(first.title.contains(&name), "{name}: {}", first.title);
    }
}

/// The case of "AWR is not enough to track down IO problem on Exadata": a small database does most of the I/O. Here its
/// sessions also take nine tenths of DB time.
fn dominating_hog(wait_of_others_us: f64) -> Builder {
    Builder::healthy()
        .set("/db_time_us", 20.0 * HOUR_US)
        .set("/databases/1/active_us", 18.2 * HOUR_US)
        .set("/databases/1/blks_read", 90_000_000)
        .set("/databases/1/blk_read_us", 17.0 * HOUR_US)
        .set("/databases/0/blk_read_us", wait_of_others_us)
        .set("/statements/2/shared_blks_read", 90_000_000)
        .set("/tables/1/heap_blks_read", 90_000_000)
        .event("DataFileRead", "User I/O", 17.0 * HOUR_US + wait_of_others_us)
}

#[test]
fn a_noisy_neighbour_that_takes_most_of_the_time_comes_first() {
    let findings = judge(&dominating_hog(1.2 * HOUR_US).build());
    let first = &findings.findings[0];
    assert_eq!((first.id, first.kind), ("noisy-neighbour", Kind::Problem), "{:?}", ids(&findings));
    assert!(first.title.contains("archive"), "{}", first.title);
    let texts: Vec<&str> = first.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
    assert!(texts.iter().any(|text| text.contains(&sql_id::format(REPORT))), "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("shop waited 4,320.00s for I/O, 67 %")), "{texts:?}");
    // The others lost their waits times the share of the bytes: 1.2 h of 20 h, less 0.3 %.
    let percent = first.impact.and_then(|impact| impact.percent).unwrap();
    assert!((percent - 5.98).abs() < 0.01, "{percent}");
}

#[test]
fn the_advice_for_scans_that_were_not_offloaded_depends_on_the_place_of_the_table() {
    for (on_cell, expected) in
        [(json!(true), "why_not_offloaded"), (json!(false), "to a cell"), (json!(null), "to a cell")]
    {
        let document = Builder::healthy().event("DataFileRead", "User I/O", 0.6 * HOUR_US);
        let findings =
            judge(&document.set("/tables/0/on_cell", on_cell.clone()).set("/tables/1/on_cell", on_cell).build());
        let finding = findings.findings.iter().find(|finding| finding.id == "offloadable-scans").unwrap();
        assert!(finding.recommendations[0].text.contains(expected), "{:?}", finding.recommendations[0].text);
    }
}

#[test]
fn a_busy_database_is_no_noisy_neighbour_of_databases_that_do_not_wait() {
    for wait_of_others_us in [0.0, 0.15 * HOUR_US] {
        let findings = judge(&dominating_hog(wait_of_others_us).build());
        assert!(!ids(&findings).contains(&"noisy-neighbour"), "{:?}", ids(&findings));
        assert_eq!(findings.findings[0].id, "offloadable-scans");
    }
    let alone = dominating_hog(0.0);
    let database = alone.0["databases"][1].clone();
    let findings = judge(&alone.set("/databases", json!([database])).build());
    assert!(!ids(&findings).contains(&"noisy-neighbour"), "{:?}", ids(&findings));
}

/// Without track_io_timing, the I/O waits of the databases come from session samples.
#[test]
fn a_noisy_neighbour_is_found_from_samples() {
    let samples =
        |database: &str, class: &str, samples: u32| json!({ "database": database, "class": class, "samples": samples });
    let hog = |victim_waits: u32| {
        dominating_hog(0.0).set("/databases/1/blk_read_us", 0).set(
            "/ash/by_database",
            json!([
                samples("archive", "User I/O", 61_200),
                samples("archive", "CPU", 4_320),
                samples("shop", "User I/O", victim_waits),
                samples("shop", "CPU", 2_000),
            ]),
        )
    };
    let findings = judge(&hog(4_320).build());
    assert_eq!(findings.findings[0].id, "noisy-neighbour", "{:?}", ids(&findings));
    assert!(!ids(&judge(&hog(300).build())).contains(&"noisy-neighbour"));
}

/// Sessions that extend one table wait for the lock of its extension, which no transaction keeps.
#[test]
fn waits_for_the_extension_of_a_relation_are_no_lock_waits() {
    let extend = json!({ "event": "extend", "class": "Configuration", "type": "Lock", "foreground": true,
        "time_us": 0.5 * HOUR_US, "how": "sampled" });
    let findings = judge(&Builder::healthy().push("/events", extend).build());
    assert!(!ids(&findings).contains(&"lock-waits"), "{:?}", ids(&findings));
}

/// Session 4711 stays idle and blocks 4713; session 5000 blocks 5001 and, through 5001, 5002.
fn idle_and_active_blockers(idle_s: f64) -> Builder {
    let waits = |blocker, blocked, samples| {
        json!({ "blocker_pid": blocker, "blocked_pid": blocked, "samples": samples, "query_id": UPDATE,
        "blocker_state": "active", "blocker_application": "batch", "blocker_query_id": REPORT })
    };
    Builder::healthy()
        .event("transactionid", "Application", 2_400.0 * SECOND_US)
        .set("/sessions/idle_in_transaction/0/age_us", idle_s * SECOND_US)
        .set("/sessions/blocking", json!([waits(4711, 4713, 1_500), waits(5000, 5001, 500), waits(5001, 5002, 400)]))
}

#[test]
fn waits_for_idle_sessions_count_in_one_finding() {
    let findings = judge(&idle_and_active_blockers(600.0).build());
    let seconds = |id: &str| found(&findings, id).impact.map(|impact| (impact.us / SECOND_US).round());
    assert_eq!(seconds("idle-in-transaction"), Some(1_500.0));
    assert_eq!(seconds("lock-waits"), Some(900.0));
    assert_eq!(findings.findings[0].id, "idle-in-transaction");
    assert_eq!(findings.findings[0].title, "Session 4711 stayed idle in a transaction and blocked one session");
    let locks = found(&findings, "lock-waits");
    assert_eq!(
        (locks.kind, locks.title.as_str()),
        (Kind::Problem, "Sessions waited for locks, most of all for session 5000")
    );
    let texts: Vec<&str> = locks.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
    assert!(texts.contains(&"session 5000 (batch, active) blocked 2 sessions in 900 samples"), "{texts:?}");
    assert!(
        texts.contains(&"last statement of session 5000: SELECT day, sum(amount) FROM sales GROUP BY day"),
        "{texts:?}"
    );
}

#[test]
fn an_idle_session_that_blocks_none_does_not_hide_a_blocker() {
    let chain = json!([{ "blocker_pid": 5000, "blocked_pid": 5001, "samples": 2_400 }]);
    let findings = judge(&idle_and_active_blockers(600.0).set("/sessions/blocking", chain).build());
    let first = &findings.findings[0];
    assert_eq!((first.id, first.kind), ("lock-waits", Kind::Problem), "{:?}", ids(&findings));
    assert!(first.title.ends_with("session 5000"), "{}", first.title);
    assert_eq!(found(&findings, "idle-in-transaction").impact, None);
}

/// A statement that waits for locks has the same plan and the same reads, and takes longer.
#[test]
fn a_statement_that_waited_for_locks_was_not_slowed_down_by_storage() {
    let slow = |reads: u32| {
        json!({ "snap_id": 103, "query_id": SELECT, "plan_id": 11, "calls": 2_000_000, "elapsed_us": 1.2 * HOUR_US,
        "logical_reads": 40_000_000, "physical_reads": reads })
    };
    for reads in [0, 200_000] {
        let locks =
            Builder::healthy().event("transactionid", "Application", HOUR_US).push("/plan_history", slow(reads));
        let findings = judge(&locks.build());
        assert!(!ids(&findings).contains(&"slower-storage"), "{:?}", ids(&findings));
    }
}

#[test]
fn a_small_finding_does_not_make_a_large_one_a_symptom() {
    let builder = Builder::healthy().event("db file sequential read", "User I/O", HOUR_US).push(
        "/plan_history",
        json!({ "snap_id": 102, "query_id": SELECT, "plan_id": 99, "calls": 90_000, "elapsed_us": 0.15 * HOUR_US,
            "logical_reads": 90_000_000, "physical_reads": 9_000_000 }),
    );
    let findings = judge(&builder.build());
    assert_eq!(findings.findings[0].id, "single-block-reads", "{:?}", ids(&findings));
    assert_eq!(found(&findings, "plan-regression").kind, Kind::Problem);
}

#[test]
fn a_plan_regression_names_both_plans_and_what_changed() {
    let plans = json!([
        { "query_id": SELECT, "plan_id": 11, "text": "Index Scan using orders_pkey on orders\n  Index Cond: (id = $1)" },
        { "query_id": SELECT, "plan_id": 99, "text": "Gather\n  Workers Planned: 2\n  ->  Parallel Seq Scan on orders\n        Filter: (id = $1)" }
    ]);
    let builder = Builder::healthy()
        .set("/plans", plans)
        .set("/tables/0/analyze_count", 1)
        .set("/tables/0/autoanalyze_count", 0)
        .push("/settings", json!({ "name": "random_page_cost", "begin": "1.1", "end": "40", "changed": true }))
        .push("/settings", json!({ "name": "log_min_messages", "begin": "info", "end": "warning", "changed": true }))
        .push(
            "/plan_history",
            json!({ "snap_id": 102, "query_id": SELECT, "plan_id": 99, "calls": 100_000, "elapsed_us": HOUR_US,
                "logical_reads": 90_000_000, "physical_reads": 9_000_000 }),
        );
    let findings = judge(&builder.build());
    let texts: Vec<&str> =
        found(&findings, "plan-regression").evidence.iter().map(|evidence| evidence.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "slow plan 99: 36.00ms per execution, 900 blocks: Gather; Parallel Seq Scan on orders",
            "fast plan 11: 267.69us per execution, 20 blocks: Index Scan using orders_pkey on orders",
            "SELECT * FROM orders WHERE id = $1",
            "work_mem changed from 4096kB to 65536kB",
            "random_page_cost changed from 1.1 to 40",
            "public.orders was analyzed in the interval",
        ]
    );
}

#[test]
fn a_checkpoint_storm_names_its_cause_and_the_setting_to_change() {
    let storm = |requested: f64| {
        Builder::healthy()
            .statistic("pg_stat_checkpointer.num_requested", requested)
            .statistic("redo size", 60.0 * 1_073_741_824.0)
            .event("WALSync", "Commit", 0.5 * HOUR_US)
    };
    // 60 GB of WAL suffice for 114 checkpoints with max_wal_size = 1 GB and a completion target of 0.9.
    let findings = judge(&storm(110.0).build());
    let first = &findings.findings[0];
    assert_eq!(first.title, "WAL forced 110 checkpoints, one every 32.73s");
    assert_eq!(
        first.recommendations[0].text,
        "Raise max_wal_size from 1.0GB to 9.5GB, which holds the WAL of checkpoint_timeout (300.00s) at this rate, so that \
         checkpoint_timeout starts the checkpoints"
    );
    let findings = judge(&storm(400.0).build());
    let first = &findings.findings[0];
    assert_eq!(first.title, "Commands requested 400 checkpoints, one every 9.00s");
    assert!(first.recommendations[0].text.contains("CHECKPOINT"), "{}", first.recommendations[0].text);
}

#[test]
fn the_reference_repeats_the_table_of_rules() {
    let page = include_str!("../../../docs/reference/findings.md");
    for rule in &RULES {
        let row = format!(
            "| `{}` | {} | {} | {} |",
            rule.id,
            rule.kind.name().to_lowercase(),
            rule.condition,
            rule.recommendation
        );
        assert!(page.contains(&row), "docs/reference/findings.md lacks:\n{row}");
    }
    let documented = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(documented, RULES.len());
}

/// PostgreSQL 15 and 16 do not time temporary blocks for every source; a sort in cached files also waits for no event.
#[test]
fn temp_spills_are_estimated_where_temporary_blocks_are_not_timed() {
    let spill = Builder::healthy()
        .set("/statements/2/temp_blk_write_us", json!(null))
        .set("/statements/2/temp_blks_written", 2_000_000)
        .set("/statements/2/elapsed_us", HOUR_US);
    let findings = judge(&spill.build());
    let finding = found(&findings, "temp-spills");
    // 2,004,000 of 2,564,000 blocks, half of DB time.
    let percent = finding.impact.and_then(|impact| impact.percent).unwrap();
    assert!((percent - 39.08).abs() < 0.1, "{percent}");
    assert!(finding.evidence.iter().any(|evidence| evidence.text.starts_with("estimated")), "{finding:?}");
}

/// The article's case reversed: two plans with equal reads differ in time because of lock waits.
#[test]
fn a_plan_that_reads_as_much_is_no_regression_and_earlier_intervals_cost_nothing_now() {
    let row = |snap: i64, plan: i64, reads: f64| {
        json!({ "snap_id": snap, "query_id": SELECT, "plan_id": plan, "calls": 100_000, "elapsed_us": 0.5 * HOUR_US,
            "logical_reads": reads, "physical_reads": 0 })
    };
    let waits = judge(&Builder::healthy().push("/plan_history", row(102, 99, 2_000_000.0)).build());
    assert!(!ids(&waits).contains(&"plan-regression"), "{:?}", ids(&waits));
    // Snapshot 101 is the begin: the interval before costs nothing in this report.
    let both = Builder::healthy().push("/plan_history", row(101, 99, 9e7)).push("/plan_history", row(102, 99, 9e7));
    let findings = judge(&both.build());
    let percent = found(&findings, "plan-regression").impact.and_then(|impact| impact.percent).unwrap();
    assert!((percent - 25.0).abs() < 1.0, "{percent}");
}

/// A nested loop over rows in memory reads as much as a hash join. Only the CPU time tells the plan from one that waits.
#[test]
fn a_plan_that_computes_longer_is_a_regression_although_it_reads_as_much() {
    let row = |plan: i64, elapsed: f64, cpu: f64| {
        json!({ "snap_id": 102, "query_id": SELECT, "plan_id": plan, "calls": 1000, "elapsed_us": elapsed * HOUR_US,
            "cpu_us": cpu * HOUR_US, "logical_reads": 20_000, "physical_reads": 0 })
    };
    let with = |cpu: f64| {
        judge(&Builder::healthy().set("/plan_history", json!([row(11, 0.01, 0.01), row(99, 0.5, cpu)])).build())
    };
    let computes = with(0.4);
    assert_eq!(found(&computes, "plan-regression").kind, Kind::Problem);
    // Of 0.49 hours more, 0.03 are CPU time: the executions waited.
    let waits = with(0.04);
    assert!(!ids(&waits).contains(&"plan-regression"), "{:?}", ids(&waits));
}

/// A repository stores the statistics that increased: without a checkpoint by time, only the requested ones are present.
#[test]
fn a_checkpoint_storm_without_any_checkpoint_by_time_is_found() {
    let mut storm = Builder::healthy().statistic("pg_stat_bgwriter.checkpoints_req", 31.0).event(
        "WALSync",
        "Commit",
        0.3 * HOUR_US,
    );
    let statistics = storm.0["statistics"].as_array_mut().unwrap();
    statistics.retain(|statistic| !statistic["name"].as_str().unwrap().starts_with("pg_stat_checkpointer.num"));
    let findings = judge(&storm.build());
    assert_eq!(findings.findings[0].id, "checkpoint-storm", "{:?}", ids(&findings));
}

#[test]
fn the_noisy_neighbour_is_found_by_the_bytes_on_the_disks_of_the_cells() {
    let [shop, archive] = [0, 1].map(|number| Builder::healthy().0["databases"][number]["oid"].clone());
    let class = |database: &str, oid: &serde_json::Value, bytes: f64, wait_us: f64| {
        json!({ "cell": "cell1", "database": database, "database_oid": oid, "consumer_group": "OTHER_GROUPS", "size": "large",
                "requests": 9, "bytes": bytes, "wait_us": wait_us })
    };
    let of_blocks = |archive_bytes: f64, archive: &serde_json::Value, archive_blocks: u32| {
        let classes = json!([
            class("archive", archive, archive_bytes, 0.0),
            class("shop", &shop, 2e9, 3e6),
            class("_OTHER_DATABASE_", &json!(null), 1e12, 0.0)
        ]);
        let hour = Builder::healthy()
            .set("/databases/0/blk_read_us", 0.4 * HOUR_US)
            .set("/databases/1/blks_read", archive_blocks)
            .set("/iorm", classes);
        judge(&hour.build()).findings.into_iter().find(|finding| finding.id == "noisy-neighbour")
    };
    let of_oid = |archive_bytes: f64, archive: &serde_json::Value| of_blocks(archive_bytes, archive, 60_000);
    let of = |archive_bytes: f64| of_oid(archive_bytes, &archive);
    assert!(of(1e9).is_none());
    let found = of_blocks(1e9, &archive, 3_000_000).expect("the memory of the cells returned most of the bytes");
    assert!(found.title.contains("archive"), "{}", found.title);
    assert!(of_oid(3e10, &json!(null)).is_none(), "a database of another cluster has the name");
    let found = of(3e10).unwrap();
    assert!(found.title.contains("archive"), "{}", found.title);
    assert!(
        found.evidence.iter().any(|evidence| evidence.text.contains("waited 3.00s in the queues of the cell disks"))
    );
}

#[test]
fn the_benefit_of_cores_is_at_most_the_run_queue_time_inside_db_time() {
    // 2 hours of DB time - 0.9 of CPU - 1.02 of waits leave 0.08 for the run queue, of 3 hours that processes waited for a core.
    let busy_host =
        Builder::healthy().set("/databases/0/run_queue_us", 3.0 * HOUR_US).event("VacuumDelay", "Other", 0.4 * HOUR_US);
    let findings = judge(&busy_host.build());
    let finding = found(&findings, "cpu-run-queue");
    let percent = finding.impact.and_then(|impact| impact.percent).expect("an impact");
    assert!((10.0..30.0).contains(&percent), "{finding:?}");
    assert_eq!(finding.recommendations[0].benefit_percent, Some(percent));
    let text = &finding.evidence[0].text;
    assert!(text.contains("waited 10,800.00s for a core, also while they started, waited or were idle"), "{text}");
    assert!(!text.contains("150.0 %") && !text.contains("100.0 %"), "{text}");
}

/// A nearly idle instance spends most of its little DB time with something.
#[test]
fn a_cost_of_a_nearly_idle_instance_is_no_problem() {
    let waiting = |elapsed_us: f64| {
        let builder = Builder::healthy().event("transactionid", "Application", 1.9 * HOUR_US);
        builder.set("/elapsed_us", elapsed_us).set("/databases/0/frozen_age", 400_000_000).build()
    };
    let findings = judge(&waiting(300.0 * HOUR_US));
    let finding = found(&findings, "lock-waits");
    assert_eq!((finding.kind, finding.recommendations[0].benefit_percent), (Kind::Information, None));
    // A condition without a cost does not depend on the activity.
    assert_eq!(found(&findings, "freeze-age").kind, Kind::Problem);
    assert!(findings.findings.is_sorted_by_key(|finding| finding.kind), "{findings:#?}");
    let report = text(&instance(&waiting(300.0 * HOUR_US)));
    assert!(report.contains("The instance was nearly idle, 0.0067 average active sessions"), "{report}");
    let findings = judge(&waiting(100.0 * HOUR_US));
    assert_eq!((found(&findings, "lock-waits").kind, findings.nearly_idle), (Kind::Problem, None));
}

fn executed(worker: &str) -> Builder {
    let service = |kind: &str, application: &str, us: f64| json!({ "database": "shop", "backend_type": kind, "application": application, "execute_us": us, "active_us": us });
    let mut archive = service("client backend", "reports", 0.2 * HOUR_US);
    archive["database"] = json!("archive");
    Builder::healthy()
        .set(
            "/services",
            json!([service("client backend", "shopd", HOUR_US), archive, service("background worker", worker, 0.0)]),
        )
        .push("/time_model", json!({ "name": "sql execute elapsed time", "us": 5.0 * HOUR_US }))
        .push(
            "/statements",
            json!({ "query_id": 77, "plan_id": 1, "database": "shop", "role": "postgres", "calls": 60,
            "text": "SELECT awr.sum_samples()", "elapsed_us": 3.0 * HOUR_US, "cpu_us": HOUR_US }),
        )
}

#[test]
fn statements_of_background_workers_are_no_part_of_db_time() {
    let with_type = executed("worker").set("/statements/3/elapsed_us", 0.5 * HOUR_US);
    let with_type = with_type.set("/statements/3/backend_type", "background worker").build();
    // Without the type, the statement took longer than all sessions of its database executed.
    for document in [executed("worker").build(), with_type] {
        assert!(!ids(&judge(&document)).contains(&"top-sql"), "{:#?}", judge(&document));
        let report = instance(&document);
        let table = |id: &str| {
            report.sections.iter().find(|section| section.id == id).unwrap().tables().next().unwrap().clone()
        };
        let list = table("sql-elapsed-time");
        let share = list.column("%Total").unwrap();
        assert_eq!(list.rows[0][share].print(), "", "{list:?}");
        assert!(list.rows[1..].iter().all(|row| !row[share].print().is_empty()), "{list:?}");
        let executed = table("time-model-databases");
        assert_eq!(executed.rows[0][executed.column("Execute (s)").unwrap()].print(), "3,600.00");
        let report = text(&report);
        assert!(report.contains("Captured SQL account for 20.5% of Total DB Time"), "{report}");
        assert!(report.contains("their time is no part of DB time"), "{report}");
        assert!(!report.contains("250.00") && !report.contains("18,000.00"), "{report}");
    }
}

/// Then the execution time of sessions by database is not known, and no statement can be told to be one of background workers.
#[test]
fn statements_of_more_applications_than_are_counted_are_those_of_sessions() {
    let other = json!({ "backend_type": "client backend", "application": "(other)", "execute_us": 10.0 * HOUR_US });
    let document = executed("worker").push("/services", other).build();
    assert!(ids(&judge(&document)).contains(&"top-sql"), "{:#?}", judge(&document));
    assert!(!text(&instance(&document)).contains("their time is no part of DB time"));
}
