//! The compression advisor: runs the cell's encoder on pages that Postgres has read.

use std::os::raw::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::ErrorReport;
use cellar_scan::unit::{Level, Shape, encode, release_memory};

use super::error::{self, CellarError};
use super::items;
use super::request::CellarRequest;

/// # Safety
/// See the header: `pages` are `count` blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_estimate(
    relation: &CellarRequest,
    pages: *const c_void,
    count: usize,
    level: u8,
    stored_bytes: *mut u64,
    error: *mut CellarError,
) -> bool {
    // SAFETY: the header requires `count` blocks.
    let pages = unsafe { items(pages.cast::<u8>(), count * BLOCK_BYTES) };
    let encoded = catch_unwind(AssertUnwindSafe(|| estimate(relation, pages, level)));
    // Free the encoder's memory: the backend may run for long without calling the advisor again.
    release_memory();
    match encoded.unwrap_or_else(|_| Err(report("internal error in the encoder".to_owned()))) {
        Ok(bytes) => {
            // SAFETY: the header requires a place for the number.
            unsafe { ptr::write(stored_bytes, bytes) };
            true
        }
        Err(report) => {
            // SAFETY: the header requires a place for the error.
            unsafe { ptr::write(error, error::last(&report)) };
            false
        }
    }
}

/// Returns the length of the compression unit of the pages, in bytes.
fn estimate(relation: &CellarRequest, pages: &[u8], level: u8) -> Result<u64, ErrorReport> {
    let shape = Shape::of(&relation.relation().map_err(report)?);
    let level = Level::from_u8(level).ok_or_else(|| report(format!("invalid level {level}")))?;
    Ok(encode(pages, &shape, level).map_err(|error| report(error.to_string()))?.len() as u64)
}

fn report(error: String) -> ErrorReport {
    let detail = ErrorReport::detail_of(&error);
    ErrorReport { detail, ..ErrorReport::new("XX000", "could not estimate the compressed size".to_owned()) }
}
