//! The C boundary: the functions that `include/cellar_client.h` declares and documents.
//!
//! Each function uses pointers from C only as the header permits. Functions that decode or evaluate data catch panics
//! and return them as errors.

mod advisor;
mod awr;
mod connection;
mod error;
mod request;
mod simulation;

use std::ffi::CStr;
use std::os::raw::c_char;

/// # Safety
/// `text` is a NUL-terminated string.
unsafe fn string(text: *const c_char) -> String {
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// # Safety
/// `start` points to `count` readable items, or `count` is 0.
unsafe fn items<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if count == 0 || start.is_null() {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// # Safety
/// `value` is NULL or points to `bytes` readable bytes.
unsafe fn optional_bytes<'a>(value: *const u8, bytes: usize) -> Option<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    (!value.is_null()).then(|| unsafe { items(value, bytes) })
}
