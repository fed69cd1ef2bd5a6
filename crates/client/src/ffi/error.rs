//! Errors as C strings.

use std::cell::RefCell;
use std::ffi::CString;
use std::os::raw::c_char;

use cellar_format::wire::ErrorReport;

#[repr(C)]
pub struct CellarError {
    sqlstate: [c_char; 6],
    message: *const c_char,
    detail: *const c_char,
    hint: *const c_char,
}

/// Owns the strings that a [`CellarError`] points to.
#[derive(Default)]
pub struct ErrorText {
    message: CString,
    detail: CString,
    hint: CString,
}

thread_local! {
    /// The strings of errors that do not belong to a connection.
    static LAST: RefCell<ErrorText> = RefCell::default();
}

impl ErrorText {
    pub fn new(report: &ErrorReport) -> Self {
        Self { message: c_string(&report.message), detail: c_string(&report.detail), hint: c_string(&report.hint) }
    }

    pub fn view(&self, sqlstate: &str) -> CellarError {
        let mut code = [0; 6];
        for (to, from) in code.iter_mut().zip(sqlstate.bytes().take(5)) {
            *to = from as c_char;
        }
        CellarError {
            sqlstate: code,
            message: self.message.as_ptr(),
            detail: self.detail.as_ptr(),
            hint: self.hint.as_ptr(),
        }
    }
}

/// Returns an error whose strings are valid until the next call on the same thread.
pub fn last(report: &ErrorReport) -> CellarError {
    LAST.with(|text| {
        *text.borrow_mut() = ErrorText::new(report);
        text.borrow().view(&report.sqlstate)
    })
}

/// The error of a caught panic.
pub fn panicked() -> ErrorReport {
    ErrorReport {
        sqlstate: "XX000".to_owned(),
        message: "internal error in the cell's client".to_owned(),
        detail: String::new(),
        hint: "Set \"cellar.cell_offload_processing\" to \"off\", and report the statement as a bug.".to_owned(),
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).expect("NUL bytes are replaced")
}
