//! AWR reports: renders the documents of `awr.report_data`.

use std::os::raw::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use cellar_awr::document::parse;
use cellar_awr::render::{Format, render};
use cellar_awr::report::{difference, of};
use cellar_format::wire::ErrorReport;

use super::error::{self, CellarError};
use super::items;

/// A rendered report.
pub struct CellarReport(String);

/// # Safety
/// See the header: `json` and `compared` are texts of the given lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_report_new(
    json: *const c_char,
    length: usize,
    compared: *const c_char,
    compared_length: usize,
    format: u8,
    error: *mut CellarError,
) -> *mut CellarReport {
    // SAFETY: the header requires two texts.
    let (json, compared) = unsafe { (items(json.cast::<u8>(), length), items(compared.cast::<u8>(), compared_length)) };
    let rendered = catch_unwind(AssertUnwindSafe(|| rendered(json, compared, format)));
    match rendered.unwrap_or_else(|_| Err(ErrorReport::new("XX000", "internal error in the renderer".to_owned()))) {
        Ok(text) => Box::into_raw(Box::new(CellarReport(text))),
        Err(report) => {
            // SAFETY: the header requires a place for the error.
            unsafe { ptr::write(error, error::last(&report)) };
            ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_report_text(report: &CellarReport) -> *const c_char {
    report.0.as_ptr().cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_report_length(report: &CellarReport) -> usize {
    report.0.len()
}

/// # Safety
/// See the header: `report` came from `cellar_report_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_report_free(report: *mut CellarReport) {
    if !report.is_null() {
        // SAFETY: cellar_report_new boxed the report, and the caller does not use it again.
        drop(unsafe { Box::from_raw(report) });
    }
}

/// Renders the report about `json`, or the comparison of `json` with `compared` unless `compared` is empty.
fn rendered(json: &[u8], compared: &[u8], format: u8) -> Result<String, ErrorReport> {
    let format = match format {
        0 => Format::Text,
        1 => Format::Html,
        2 => Format::Json,
        other => return Err(invalid(format!("invalid report format {other}"))),
    };
    let documents = |json: &[u8]| parse(json).map_err(|error| invalid(error.to_string()));
    let first = documents(json)?;
    let report = match compared {
        [] => of(&first),
        compared => match (first.as_slice(), documents(compared)?.as_slice()) {
            ([first], [second]) => difference(first, second),
            _ => return Err(invalid("a period to compare must be the document of one instance".to_owned())),
        },
    };
    // A NUL byte would end a C string, and is no character of a Postgres text.
    Ok(render(&report, format).replace('\0', "\u{fffd}"))
}

fn invalid(error: String) -> ErrorReport {
    ErrorReport::new("22023", format!("could not render the AWR report: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    /// Calls the functions as C does. Returns None for an error.
    fn call(json: &[u8], compared: &[u8], format: u8) -> Option<String> {
        let mut error = MaybeUninit::<CellarError>::uninit();
        let (json_start, compared_start) = (json.as_ptr().cast(), compared.as_ptr().cast());
        // SAFETY: both texts have the given lengths, and there is a place for the error.
        let report = unsafe {
            cellar_report_new(json_start, json.len(), compared_start, compared.len(), format, error.as_mut_ptr())
        };
        // SAFETY: the report came from cellar_report_new.
        let text = unsafe { report.as_ref() }.map(|report| {
            // SAFETY: the text has the length that the library returns.
            let bytes = unsafe { items(cellar_report_text(report).cast::<u8>(), cellar_report_length(report)) };
            String::from_utf8(bytes.to_vec()).unwrap()
        });
        // SAFETY: the report came from cellar_report_new and is not used again.
        unsafe { cellar_report_free(report) };
        text
    }

    #[test]
    fn reports_are_rendered_in_each_format_and_compared() {
        let document = br#"{"format": 1, "instance": {"name": "shop\u0000"}}"#;
        for (format, start) in [(0, "\nWORKLOAD REPOSITORY report for"), (1, "<!DOCTYPE html>"), (2, "{\n")] {
            let text = call(document, b"", format).unwrap();
            assert!(text.starts_with(start) && !text.contains('\0'), "{text}");
        }
        assert!(call(document, document, 0).unwrap().contains("COMPARE PERIOD"));
    }

    #[test]
    fn invalid_documents_and_formats_are_errors() {
        assert_eq!(call(b"", b"", 0), None);
        assert_eq!(call(br#"{"format": 2}"#, b"", 0), None);
        assert_eq!(call(br#"{"format": 1}"#, b"", 3), None);
        assert_eq!(call(br#"{"format": 1}"#, br#"[{"format": 1}, {"format": 1}]"#, 0), None);
        let invalid = rendered(br#"{"format": 2}"#, b"", 0).unwrap_err();
        assert_eq!(invalid.sqlstate, "22023");
        assert!(invalid.message.starts_with("could not render the AWR report: report document has format 2"));
    }
}
