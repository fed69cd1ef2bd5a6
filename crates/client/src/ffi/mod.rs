//! The C boundary: the functions of `include/cellar_client.h`, which documents them.
//!
//! Every pointer that C hands over is used only as the header promises it may be. A panic in a function that decodes
//! or evaluates anything is caught and told as a failure.

mod advisor;
mod connection;
mod error;
mod request;
mod simulation;

use std::ffi::CStr;
use std::os::raw::c_char;

/// # Safety
/// `text` is a NUL-terminated string.
unsafe fn string(text: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// # Safety
/// `start` points to `count` readable items, or `count` is 0.
unsafe fn items<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if count == 0 || start.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// # Safety
/// `value` is NULL or points to `bytes` readable bytes.
unsafe fn optional_bytes<'a>(value: *const u8, bytes: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!value.is_null()).then(|| unsafe { items(value, bytes) })
}
