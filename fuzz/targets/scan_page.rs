//! Arbitrary bytes as heap pages, scanned with requests that use every kind of column: nothing panics.
//!
//! The first byte selects the request. Bits of the second byte: 1 writes a valid page header, because random headers rarely pass the
//! checks; 2 also marks the page all-visible; 4 requests a region summary in the first scan, otherwise in the second scan. The other
//! bytes fill the page from the front and from the back.

#![no_main]

#[path = "../../crates/scan/tests/support/requests.rs"]
mod requests;

use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::XidState;
use cellar_scan::{NoXids, Plan, ResultWriter, Scanner, XidLookup};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::sync::Arc;

/// Returns a state for every transaction; the state depends only on the transaction id.
struct AllXids;

impl XidLookup for AllXids {
    fn state(&self, xid: u32) -> Option<XidState> {
        XidState::from_u8((xid % 4) as u8)
    }
}

thread_local! {
    static SCANNERS: RefCell<Vec<Scanner>> = RefCell::new(
        requests::requests()
            .iter()
            .map(|request| Scanner::new(Arc::new(Plan::compile(request).expect("a supported request"))))
            .collect(),
    );
}

fuzz_target!(|data: &[u8]| {
    let [pick, flags, rest @ ..] = data else { return };
    let front = rest.len() / 3;
    let mut page = vec![0; BLOCK_BYTES];
    let head = &rest[..front.min(BLOCK_BYTES)];
    let tail = &rest[front..];
    let tail = &tail[tail.len().saturating_sub(BLOCK_BYTES)..];
    page[BLOCK_BYTES - tail.len()..].copy_from_slice(tail);
    page[..head.len()].copy_from_slice(head);
    if flags & 1 == 1 {
        let lower = (head.len().max(24) as u16) & !3;
        page[10..12].copy_from_slice(&(u16::from(flags & 2) * 2).to_le_bytes());
        page[12..14].copy_from_slice(&lower.to_le_bytes());
        page[14..16].copy_from_slice(&lower.to_le_bytes());
        page[16..18].copy_from_slice(&(BLOCK_BYTES as u16).to_le_bytes());
        page[18..20].copy_from_slice(&(BLOCK_BYTES as u16 | 4).to_le_bytes());
    }
    SCANNERS.with_borrow_mut(|scanners| {
        let count = scanners.len();
        let scanner = &mut scanners[*pick as usize % count];
        let mut out = ResultWriter::new();
        let _ = scanner.scan(0, &page, &NoXids, &mut out, flags & 4 != 0);
        let _ = scanner.scan(0, &page, &AllXids, &mut out, flags & 4 == 0);
        out.flush();
    });
});
