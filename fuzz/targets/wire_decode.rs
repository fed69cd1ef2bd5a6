//! Arbitrary bytes as the payload of each wire frame: decoding never panics, and every decoded message survives encoding
//! and decoding unchanged.

#![no_main]

use cellar_format::wire::{
    BatchHeader, BlockRange, CellStatus, ColumnHeader, CompressProgress, CompressRequest, ConsumerGroups, DatabaseNames, DueQuery, DueUnits, ErrorReport,
    Expr, FileIoCounts, FileIoQuery, FileTypeIoCounts, FrameHeader, HeapTids, Hello, HistoryQuery, HistoryRecord, InspectQuery, LeafLinks, Passthru, RangeDone, RowEntry, ScanRequest, Units,
    UnitsQuery, XidQuery, XidStates,
};
use cellar_scan::Plan;
use libfuzzer_sys::fuzz_target;

macro_rules! round_trip {
    ($message:ty, $bytes:expr) => {
        if let Ok(message) = <$message>::decode($bytes) {
            let mut wire = Vec::new();
            message.encode(&mut wire);
            assert_eq!(<$message>::decode(&wire).expect("an encoded message can be decoded"), message);
        }
    };
}

fuzz_target!(|data: &[u8]| {
    let [pick, bytes @ ..] = data else { return };
    match pick % 29 {
        0 => {
            if let Ok(request) = ScanRequest::decode(bytes) {
                let _ = Plan::compile(&request);
            }
            round_trip!(ScanRequest, bytes)
        }
        1 => round_trip!(Expr, bytes),
        2 => drop(FrameHeader::decode(bytes)),
        3 => round_trip!(Hello, bytes),
        4 => round_trip!(BlockRange, bytes),
        5 => round_trip!(Passthru, bytes),
        6 => round_trip!(XidQuery, bytes),
        7 => round_trip!(XidStates, bytes),
        8 => round_trip!(RangeDone, bytes),
        9 => round_trip!(ErrorReport, bytes),
        10 => drop(BatchHeader::decode(bytes)),
        11 => round_trip!(CompressRequest, bytes),
        12 => round_trip!(UnitsQuery, bytes),
        13 => round_trip!(Units, bytes),
        14 => round_trip!(DueQuery, bytes),
        15 => round_trip!(DueUnits, bytes),
        16 => round_trip!(FileIoQuery, bytes),
        17 => round_trip!(FileIoCounts, bytes),
        18 => round_trip!(CellStatus, bytes),
        19 => round_trip!(CompressProgress, bytes),
        20 => round_trip!(InspectQuery, bytes),
        21 => round_trip!(FileTypeIoCounts, bytes),
        22 => round_trip!(LeafLinks, bytes),
        23 => round_trip!(HeapTids, bytes),
        24 => round_trip!(DatabaseNames, bytes),
        25 => round_trip!(ConsumerGroups, bytes),
        26 => round_trip!(HistoryQuery, bytes),
        27 => round_trip!(HistoryRecord, bytes),
        _ => {
            let _ = ColumnHeader::decode(bytes);
            let _ = RowEntry::decode(bytes);
        }
    }
});
