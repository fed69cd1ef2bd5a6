//! Any bytes are read as a report or refused: no panic, and every cell is counted.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((form, body)) = data.split_first() else { return };
    // Most inputs shall pass the detection of the kind.
    let title: &[u8] = match form % 5 {
        0 => b"WORKLOAD REPOSITORY report for\n",
        1 => b"<h1>WORKLOAD REPOSITORY report for</h1><table>",
        2 => b"STATSPACK report for\n",
        3 => b"{\"kind\": \"instance\", \"sections\": [",
        _ => b"",
    };
    let bytes = [title, body].concat();
    if let Ok(mut report) = cellar_awr::oracle::read("fuzz", &bytes) {
        assert_eq!(report.counts.read, report.counts.placed + report.counts.unplaced);
        let _ = report.to_document();
        let _ = cellar_awr::oracle::rac_stats::rac_stats(&report);
        for claim in cellar_awr::oracle::advice::advise(&report).claims {
            assert!(claim.low_percent <= claim.high_percent, "{claim:?}");
        }
        let _ = cellar_awr::render::html(&cellar_awr::oracle::page::page(&report));
        cellar_awr::oracle::mask::Masking::new(true, true, true).apply(&mut report);
        let json = cellar_awr::oracle::json::json(&report);
        assert!(json.starts_with('{') && json.ends_with('}'));
    }
});
