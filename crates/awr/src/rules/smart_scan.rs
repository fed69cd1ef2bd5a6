//! Rules about Smart Scan, most of them about ratios that mislead.

use super::{Found, Judgement};
use crate::document::names;
use crate::figures::smart_scan::{SmartScan, one_to};
use crate::figures::{Figure, percent};
use crate::table::bytes;
use crate::view::View;

pub(super) fn passthru(view: &View<'_>) -> Judgement {
    let eligible = view.document.statistic(names::ELIGIBLE)?;
    let passthru = view.document.statistic_beside(names::PASSTHRU, names::ELIGIBLE)?;
    let share = percent(Some(passthru), Some(eligible)).unwrap_or(0.0);
    if share < 20.0 {
        return Some(Vec::new());
    }
    let found = Found::new("Many blocks passed through the cell unfiltered")
        .evidence("smart-scan-volumes", format!("{}B of {}B eligible, {share:.0} %", bytes(passthru), bytes(eligible)))
        .recommend("VACUUM the scanned tables, so that rows are frozen or all-visible", None);
    Some(vec![found])
}

pub(super) fn compressed_comparison(view: &View<'_>) -> Judgement {
    let scan = SmartScan::of(view.document);
    scan.eligible.zip(scan.returned)?;
    let Figure::NotMeaningful(value, reason) = scan.returned_per_eligible() else { return Some(Vec::new()) };
    let mut found = Found::new("Returned bytes cannot be compared with eligible bytes")
        .evidence("smart-scan", format!("returned / eligible = {value:.2}: {reason}"));
    if let Some(efficiency) = scan.efficiency().value() {
        found = found.evidence("smart-scan", format!("Smart Scan efficiency {}", one_to(efficiency)));
    }
    if let Some(ratio) = scan.compression_ratio().value() {
        found = found.evidence("smart-scan", format!("compression ratio {ratio:.2}"));
    }
    Some(vec![found.recommend("Use Smart Scan efficiency, returned / (uncompressed + saved by storage index)", None)])
}

pub(super) fn mixed_directions(view: &View<'_>) -> Judgement {
    let scan = SmartScan::of(view.document);
    let (interconnect, written) = scan.interconnect.zip(scan.written)?;
    let share = percent(Some(written), Some(interconnect)).unwrap_or(0.0);
    if share < 10.0 || scan.eligible.is_none_or(|eligible| eligible == 0.0) {
        return Some(Vec::new());
    }
    let found = Found::new("Interconnect bytes contain writes")
        .evidence(
            "smart-scan-volumes",
            format!("{}B written, {share:.0} % of {}B", bytes(written), bytes(interconnect)),
        )
        .recommend("Do not divide the bytes of Smart Scan by interconnect bytes", None);
    Some(vec![found])
}
