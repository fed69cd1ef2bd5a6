use super::reading::{CellDisk, Machine};
use super::*;
use serde_json::{Value as Json, json};
use std::cell::Cell;
use std::collections::BTreeMap;

/// A reading of a cell with disk 1, without disk 0, whose read counters are those given.
fn reading(time_ms: u64, requests: u64, bytes: u64, seconds: f64, large: (u64, u64, f64), eligible: u64) -> Reading {
    let sample = |field: &str, value: Json| json!({ "labels": { "disk": "/d", "operation": "read" }, field: value });
    let family = |name: &str, sample: Json| json!({ "name": name, "samples": [sample] });
    let document = json!({ "time_ms": time_ms, "metrics": [
        family("cellar_cell_info", json!({ "labels": { "name": "c1" }, "value": 1 })),
        family("cellar_disk_operations_total", sample("value", json!(requests))),
        family("cellar_disk_bytes_total", sample("value", json!(bytes))),
        family("cellar_disk_operation_seconds", sample("sum", json!(seconds))),
        family("cellar_disk_large_operations_total", sample("value", json!(large.0))),
        family("cellar_disk_large_bytes_total", sample("value", json!(large.1))),
        family("cellar_disk_large_seconds_total", sample("value", json!(large.2))),
        family("cellar_cpu_seconds_total", json!({ "labels": {}, "value": time_ms as f64 / 1e4 })),
        family("cellar_smart_scan_eligible_bytes_total", json!({ "labels": { "database": "5" }, "value": eligible })),
    ]});
    let cpu_seconds = Some((time_ms as f64 / 2000.0, time_ms as f64 / 500.0));
    let disks = vec![CellDisk { number: 1, path: "/d".to_owned() }];
    let machine = Machine { cpu_seconds, ..Machine::default() };
    Reading { document, disks, machine, compared: Cell::default() }
}

fn texts(observations: Vec<Observation>) -> BTreeMap<(&'static str, String), String> {
    observations
        .into_iter()
        .map(|seen| ((seen.definition.name, seen.object), quantity(seen.number.unwrap(), seen.definition.unit)))
        .collect()
}

#[test]
fn metrics_follow_from_counters() {
    const MIB: u64 = 1 << 20;
    let before = reading(10_000, 100, 60 * MIB, 1.0, (50, 50 * MIB, 0.5), 4 * MIB);
    let after = reading(12_000, 140, 83 * MIB, 1.5, (70, 70 * MIB, 0.9), 14 * MIB);
    let seen = texts(observe_between(&before, &after));
    let of = |name: &'static str, object: &str| seen.get(&(name, object.to_owned())).map(String::as_str);
    let disk = |name| of(name, "CD_01_c1");
    assert_eq!(disk("CD_IO_BY_R_LG"), Some("70.000 MB"));
    assert_eq!(disk("CD_IO_BY_R_SM"), Some("13.000 MB"));
    assert_eq!(disk("CD_IO_BY_R_LG_SEC"), Some("10.000 MB/sec"));
    assert_eq!(disk("CD_IO_RQ_R_SM"), Some("70 IO requests"));
    assert_eq!(disk("CD_IO_RQ_R_SM_SEC"), Some("10.0 IO/sec"));
    assert_eq!(disk("CD_IO_TM_R_LG"), Some("900,000 us"));
    assert_eq!(disk("CD_IO_TM_R_LG_RQ"), Some("20,000.0 us/request"));
    assert_eq!(disk("CD_IO_TM_R_SM_RQ"), Some("5,000.0 us/request"));
    assert_eq!(disk("CD_IO_BY_W_LG"), None, "the reading has no counters of writes");
    assert_eq!(of("GD_IO_BY_R_LG_SEC", "DG_CD_01_c1"), Some("10.000 MB/sec"));
    assert_eq!(of("SIO_IO_EL_OF", "SMARTIO"), Some("14.000 MB"));
    assert_eq!(of("SIO_IO_EL_OF_SEC", "SMARTIO"), Some("5.000 MB/sec"));
    assert_eq!(of("CL_CPUT", "c1"), Some("25.0 %"));
    assert_eq!(of("CL_CPUT_CS", "c1"), Some("5.0 %"));
    assert_eq!(of("CL_MEMUT", "c1"), None, "the machine does not say");
}

#[test]
fn rates_are_pending_after_one_reading_and_missing_after_a_restart() {
    let (before, after) = (reading(10_000, 9, 9, 9.0, (9, 9, 9.0), 9), reading(11_000, 1, 1, 1.0, (1, 1, 1.0), 1));
    let first = observe(&before);
    let rate = first.iter().find(|seen| seen.definition.name == "CD_IO_RQ_R_LG_SEC").unwrap();
    assert_eq!(rate.number, None);
    let second = texts(observe_between(&before, &after));
    assert!(!second.contains_key(&("CD_IO_RQ_R_LG_SEC", "CD_01_c1".to_owned())));
    assert!(second.contains_key(&("CD_IO_RQ_R_LG", "CD_01_c1".to_owned())));
}

#[test]
fn small_operations_do_not_decrease() {
    let small = |before: (f64, f64), after: (f64, f64)| {
        let before = reading(10_000, 10, 10, before.0, (5, 5, before.1), 0);
        let after = reading(11_000, 12, 10, after.0, (7, 6, after.1), 0);
        let seen = texts(observe_between(&before, &after));
        let of = |name| seen.get(&(name, "CD_01_c1".to_owned())).cloned();
        assert_eq!(of("CD_IO_BY_R_SM_SEC").as_deref(), Some("0.000 MB/sec"), "a large read was counted as large only");
        assert_eq!(of("CD_IO_TM_R_SM_RQ"), of("CD_IO_RQ_R_SM_SEC").map(|_| "0.0 us/request".to_owned()));
        of("CD_IO_TM_R_SM").unwrap()
    };
    assert_eq!(small((0.3, 0.1), (0.6, 0.4)), "200,000 us", "0.6 - 0.4 is less than 0.3 - 0.1");
    assert_eq!(small((0.3, 0.3), (0.3, 0.3 + 1e-12)), "0 us");
}

#[test]
fn rates_are_missing_if_the_cell_started_or_no_time_passed() {
    let rate = |before: &Reading, after: &Reading| {
        let seen = texts(observe_between(before, after));
        seen.contains_key(&("CD_IO_RQ_R_LG_SEC", "CD_01_c1".to_owned()))
    };
    let of = |time_ms, started: f64| {
        let mut reading = reading(time_ms, 9, 9, 9.0, (9, 9, 9.0), 9);
        let family = json!({ "name": "cellar_start_time_seconds", "samples": [{ "labels": {}, "value": started }] });
        reading.document["metrics"].as_array_mut().unwrap().push(family);
        reading
    };
    assert!(rate(&of(10_000, 5.0), &of(11_000, 5.0)));
    assert!(!rate(&of(10_000, 5.0), &of(11_000, 10.5)));
    assert!(!rate(&of(10_000, 5.0), &of(10_000, 5.0)));
}

#[test]
fn classes_of_io_have_metrics_by_database_and_by_consumer_group() {
    let of = |time_ms, factor: u64| {
        let mut reading = reading(time_ms, 9, 9, 9.0, (9, 9, 9.0), 9);
        let class = |group: &str, size: &str, value: f64| {
            let labels = json!({ "database": "sales", "consumer_group": group, "size": size });
            json!({ "labels": labels, "value": value * factor as f64 })
        };
        let family = |name: &str, values: [f64; 3]| {
            let samples =
                [class("a.b", "small", values[0]), class("a.b", "large", values[1]), class("c", "small", values[2])];
            json!({ "name": name, "samples": samples })
        };
        let families = reading.document["metrics"].as_array_mut().unwrap();
        families.push(family("cellar_iorm_requests_total", [100.0, 10.0, 50.0]));
        families.push(family("cellar_iorm_bytes_total", [1048576.0, 10485760.0, 1048576.0]));
        families.push(family("cellar_iorm_wait_seconds_total", [0.2, 0.5, 0.1]));
        families.push(family("cellar_iorm_device_seconds_total", [0.1, 0.4, 0.3]));
        families.push(family("cellar_iorm_request_seconds_total", [0.4, 0.1, 0.2]));
        families.push(family("cellar_iorm_flash_requests_total", [20.0, 0.0, 4.0]));
        families.push(family("cellar_iorm_flash_bytes_total", [1048576.0, 0.0, 0.0]));
        let used = json!({ "labels": { "database": "sales", "database_id": "16384" }, "value": 3 << 20 });
        families.push(json!({ "name": "cellar_iorm_flash_used_bytes", "samples": [used] }));
        families.push(json!({ "name": "cellar_iorm_mode_number", "samples": [{ "labels": {}, "value": 2 }] }));
        reading
    };
    let seen = texts(observe_between(&of(10_000, 1), &of(12_000, 2)));
    let at = |name: &'static str, object: &str| seen.get(&(name, object.to_owned())).map(String::as_str);
    assert_eq!(at("DB_IO_RQ_SM", "sales"), Some("300 IO requests"));
    assert_eq!(at("DB_IO_RQ_SM_SEC", "sales"), Some("75.0 IO/sec"));
    assert_eq!(at("DB_IO_BY_SEC", "sales"), Some("6.000 MB/sec"));
    assert_eq!(at("DB_IO_WT_SM_RQ", "sales"), Some("2.0 ms/request"));
    assert_eq!(at("DB_IO_TM_SM_RQ", "sales"), Some("4.0 ms/request"));
    assert_eq!(at("CG_IO_TM_LG", "sales.a.b"), Some("200.0 ms"));
    assert_eq!(at("DB_FC_IO_RQ", "sales"), Some("48 IO requests"));
    assert_eq!(at("DB_FC_IO_RQ_SM", "sales"), Some("48 IO requests"));
    assert_eq!(at("CG_FC_IO_RQ_SM_SEC", "sales.a.b"), Some("10.0 IO/sec"));
    assert_eq!(at("DB_FC_IO_RQ_LG", "sales"), Some("0 IO requests"));
    assert_eq!(at("CG_FC_IO_RQ_SEC", "sales.c"), Some("2.0 IO/sec"));
    assert_eq!(at("DB_FC_IO_BY_SEC", "sales"), Some("0.500 MB/sec"));
    assert_eq!(at("DB_FC_BY_ALLOCATED", "sales"), Some("3.000 MB"));
    assert_eq!(at("CG_FC_BY_ALLOCATED", "sales.c"), None);
    assert_eq!(at("DB_IO_WT_LG", "sales"), Some("1,000.0 ms"));
    assert_eq!(at("DB_IO_UTIL_SM", "sales"), Some("20.0 %"), "0.4 of 2 seconds of one disk");
    assert_eq!(at("CG_IO_RQ_LG", "sales.a.b"), Some("20 IO requests"));
    assert_eq!(at("CG_IO_UTIL_SM", "sales.c"), Some("15.0 %"));
    assert_eq!(at("CG_IO_RQ_LG", "sales.c"), None, "the group has no large requests");
    assert_eq!(at("IORM_MODE", "c1").map(|mode| mode.starts_with('2')), Some(true));
    let types = |name: &str| definitions().iter().find(|definition| definition.name == name).unwrap().object_type();
    assert_eq!((types("DB_IO_BY_SEC"), types("CG_IO_BY_SEC")), ("IORM_DATABASE", "IORM_CONSUMER_GROUP"));
}

#[test]
fn the_reference_lists_exactly_the_metrics() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cellcli.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter(|line| {
        ["| `CL_", "| `CD_", "| `CG_", "| `DB_", "| `FC_", "| `FL_", "| `GD_", "| `IORM_", "| `SIO_"]
            .iter()
            .any(|start| line.starts_with(start))
    });
    let documented: std::collections::BTreeSet<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    let defined: Vec<&str> = definitions().iter().map(|definition| definition.name).collect();
    assert_eq!(documented.into_iter().collect::<Vec<_>>(), defined);
}
