//! The result of CALIBRATE, as CellCLI prints it.

use super::names::cell_disk_name;
use serde_json::Value;
use std::collections::HashMap;

/// Returns the rates of all disks together, then those of each disk. MBPS are 1,000,000 bytes per second.
pub fn text(calibration: &Value, group: &Value, cell: &str) -> String {
    let devices = calibration.as_array().map(Vec::as_slice).unwrap_or_default();
    let disks = group["disks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: HashMap<&str, String> = disks
        .iter()
        .filter_map(|disk| Some((disk["path"].as_str()?, cell_disk_name(disk["disk_number"].as_u64()?, cell))))
        .collect();
    let mut text = String::new();
    for (is_flash, kind) in [(false, "cell"), (true, "flash")] {
        let of_kind = || devices.iter().filter(|device| device["is_flash"] == is_flash);
        let sum = |name: &str| of_kind().filter_map(|device| device[name].as_f64()).sum::<f64>();
        if of_kind().next().is_none() {
            continue;
        }
        let mbps = sum("read_bytes_per_second") / 1e6;
        text += &format!("Aggregate read throughput across all {kind} disks: {mbps:.0} MBPS\n");
        let iops = sum("small_reads_per_second");
        text += &format!("Aggregate random read IOs per second (IOPS) across all {kind} disks: {iops:.0}\n");
    }
    let mut failed = 0;
    for device in devices {
        let figure = |name: &str| device[name].as_f64().unwrap_or(0.0);
        let path = device["path"].as_str().unwrap_or_default();
        let name = names.get(path).map_or_else(String::new, |name| format!("{name} on "));
        let kind = if device["is_flash"] == true { "Flash disk" } else { "Cell disk" };
        if let Some(error) = device["error"].as_str() {
            text += &format!("{kind} {name}{path}: not measured, its costs are unchanged: {error}\n");
            failed += 1;
            continue;
        }
        text += &format!(
            "{kind} {name}{path}: read throughput: {:.1} MBPS, and {:.0} IOPS; write throughput: {:.1} MBPS, and {:.0} IOPS",
            figure("read_bytes_per_second") / 1e6,
            figure("small_reads_per_second"),
            figure("write_bytes_per_second") / 1e6,
            figure("small_writes_per_second"),
        );
        text += &match device["mixed_per_second"].as_f64() {
            Some(mixed) => format!("; 70 % reads and 30 % writes: {mixed:.0} IOPS\n"),
            None => " (of the device model)\n".to_owned(),
        };
    }
    match failed {
        0 => text + "CALIBRATE results are within an acceptable range.\n",
        _ => {
            text + &format!(
                "CALIBRATE could not measure {failed} of {} disks; the others have their new costs.\n",
                devices.len()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_disks_together_come_first() {
        let device = |path: &str, is_flash: bool, mixed: Option<f64>| {
            json!({ "path": path, "is_flash": is_flash, "is_model": mixed.is_none(), "small_reads_per_second": 400.4,
                    "small_writes_per_second": 200.0, "mixed_per_second": mixed, "read_bytes_per_second": 150.5e6,
                    "write_bytes_per_second": 100e6 })
        };
        let devices =
            json!([device("/a", false, Some(300.0)), device("/b", false, None), device("/f", true, Some(9e4))]);
        let group = json!({ "disks": [{ "disk_number": 0, "path": "/a" }, { "disk_number": 1, "path": "/b" }] });
        let expected = "\
Aggregate read throughput across all cell disks: 301 MBPS
Aggregate random read IOs per second (IOPS) across all cell disks: 801
Aggregate read throughput across all flash disks: 150 MBPS
Aggregate random read IOs per second (IOPS) across all flash disks: 400
Cell disk CD_00_c1 on /a: read throughput: 150.5 MBPS, and 400 IOPS; write throughput: 100.0 MBPS, and 200 IOPS; 70 % reads and 30 % writes: 300 IOPS
Cell disk CD_01_c1 on /b: read throughput: 150.5 MBPS, and 400 IOPS; write throughput: 100.0 MBPS, and 200 IOPS (of the device model)
Flash disk /f: read throughput: 150.5 MBPS, and 400 IOPS; write throughput: 100.0 MBPS, and 200 IOPS; 70 % reads and 30 % writes: 90000 IOPS
CALIBRATE results are within an acceptable range.
";
        assert_eq!(text(&devices, &group, "c1"), expected);
        let failed = text(&json!([{ "path": "/a", "is_flash": false, "error": "no space" }, devices[1]]), &group, "c1");
        assert!(
            failed.contains("Cell disk CD_00_c1 on /a: not measured, its costs are unchanged: no space\n"),
            "{failed}"
        );
        assert!(
            failed.ends_with("CALIBRATE could not measure 1 of 2 disks; the others have their new costs.\n"),
            "{failed}"
        );
    }
}
