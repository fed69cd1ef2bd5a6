//! Building requests, and the list of functions, aggregates and types that the cell supports.

use std::os::raw::{c_char, c_int, c_void};

use cellar_format::postgres::{Align, Collation, Width};
use cellar_format::wire::{Attribute, BooleanTest, Integers, Missing, Snapshot, expr};

use super::{items, optional_bytes, string};
use crate::request::RequestBuilder;

pub type CellarRequest = RequestBuilder;

/// An attribute of the tuple descriptor.
#[repr(C)]
pub struct CellarAttribute {
    type_oid: u32,
    typmod: i32,
    typlen: i16,
    typalign: c_char,
    by_value: bool,
    missing: *const c_void,
    missing_bytes: usize,
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_function_offloadable(function: u32, collation: c_int) -> bool {
    collation_class(collation).is_some_and(|collation| cellar_scan::offloadable(function, collation))
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_function_vectorized(function: u32) -> bool {
    cellar_scan::vectorized(function)
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_function_class(function: u32) -> c_int {
    cellar_scan::function_class(function) as c_int
}

/// # Safety
/// See the header: `field` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_field_known(function: u32, field: *const c_char, length: usize) -> bool {
    // SAFETY: the header requires `length` bytes.
    let field = unsafe { std::slice::from_raw_parts(field.cast(), length) };
    cellar_scan::knows_field(function, field)
}

/// # Safety
/// See the header: `pattern` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_regular_expression_known(function: u32, pattern: *const c_char, length: usize) -> bool {
    // SAFETY: the header requires `length` bytes.
    let pattern = unsafe { std::slice::from_raw_parts(pattern.cast(), length) };
    cellar_scan::knows_regular_expression(function, pattern)
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_type_offloadable(type_oid: u32) -> bool {
    cellar_scan::offloadable_type(type_oid)
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_offloadable_function(index: usize) -> u32 {
    cellar_scan::offloadable_functions().nth(index).map_or(0, |function| function.oid)
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_request_new() -> *mut CellarRequest {
    Box::into_raw(Box::default())
}

/// # Safety
/// See the header: `request` came from `cellar_request_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_request_free(request: *mut CellarRequest) {
    if !request.is_null() {
        // SAFETY: cellar_request_new boxed the request, and the caller does not use it again.
        drop(unsafe { Box::from_raw(request) });
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_request_bytes(request: &CellarRequest) -> usize {
    request.bytes()
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_request_file(
    request: &mut CellarRequest,
    path: *const c_char,
    segment_blocks: u32,
    checksums: bool,
    encoding: u32,
) {
    // SAFETY: the header requires a NUL-terminated string.
    let path = unsafe { string(path) };
    request.file(&path, segment_blocks, checksums, encoding);
}

/// # Safety
/// See the header: `attribute.missing` is NULL or points to `attribute.missing_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_request_attribute(request: &mut CellarRequest, attribute: &CellarAttribute) {
    // SAFETY: the header's requirements on the attribute.
    if let Some(attribute) = unsafe { decoded_attribute(request, attribute) } {
        request.attribute(attribute);
    }
}

/// Returns None, and records an error, for an invalid attribute.
///
/// # Safety
/// As [`cellar_request_attribute`].
unsafe fn decoded_attribute(request: &mut CellarRequest, attribute: &CellarAttribute) -> Option<Attribute> {
    let CellarAttribute { type_oid, typmod, typlen, typalign, by_value, missing, missing_bytes } = *attribute;
    let (Some(width), Some(align)) = (Width::from_typlen(typlen), Align::from_typalign(typalign as u8)) else {
        request.fail(format!("an attribute has typlen {typlen} and typalign {typalign}"));
        return None;
    };
    // SAFETY: the header requires `missing_bytes` bytes, or NULL.
    let missing = match unsafe { optional_bytes(missing.cast(), missing_bytes) } {
        Some(value) => Missing::Value(value.to_vec()),
        None => Missing::Null,
    };
    Some(Attribute { type_oid, typmod, width, align, by_value, missing })
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_request_index(
    request: &mut CellarRequest,
    lsn: u64,
    columns: *const u16,
    ncolumns: usize,
    all_visible: *const u8,
    nbytes: usize,
) {
    // SAFETY: the header requires `ncolumns` columns and `nbytes` bytes.
    let (columns, all_visible) = unsafe { (items(columns, ncolumns), items(all_visible, nbytes)) };
    request.index(lsn, columns, all_visible);
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_request_lookup(
    request: &mut CellarRequest,
    kind: u8,
    comparison: u8,
    attributes: *const u16,
    nattributes: usize,
    keys: *const i64,
    nkeys: usize,
) {
    // SAFETY: the header requires `nattributes` attributes and `nkeys` keys.
    let (attributes, keys) = unsafe { (items(attributes, nattributes), items(keys, nkeys)) };
    request.lookup(kind, comparison, attributes, keys);
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_request_lookup_column(
    request: &mut CellarRequest,
    attribute: &CellarAttribute,
    nulls: *const u8,
    nnulls: usize,
    values: *const c_char,
    bytes: usize,
) {
    // SAFETY: the header requires `nnulls` and `bytes` bytes, and its requirements on the attribute.
    let (nulls, values) = unsafe { (items(nulls, nnulls), items(values.cast::<u8>(), bytes)) };
    // SAFETY: as above.
    if let Some(attribute) = unsafe { decoded_attribute(request, attribute) } {
        request.lookup_column(attribute, nulls, values);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_request_snapshot(
    request: &mut CellarRequest,
    xmin: u32,
    xmax: u32,
    taken_during_recovery: bool,
    next_full_xid: u64,
) {
    request.snapshot(Snapshot { xmin, xmax, taken_during_recovery, next_full_xid });
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_request_projection(
    request: &mut CellarRequest,
    attributes: *const u16,
    count: usize,
    whole_rows: bool,
) {
    // SAFETY: the header requires `count` attribute numbers.
    request.projection(unsafe { items(attributes, count) }, whole_rows);
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_qual_column(request: &mut CellarRequest, attribute: u16) {
    expr::encode_column(&mut request.program, attribute);
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_qual_const(
    request: &mut CellarRequest,
    type_oid: u32,
    value: *const c_void,
    bytes: usize,
) {
    // SAFETY: the header requires `bytes` bytes, or NULL.
    let value = unsafe { optional_bytes(value.cast(), bytes) };
    expr::encode_const(&mut request.program, type_oid, value);
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_qual_call(request: &mut CellarRequest, function: u32, collation: c_int, nargs: u16) {
    match collation_class(collation) {
        Some(collation) => expr::encode_call(&mut request.program, function, collation, nargs),
        None => request.fail(format!("invalid collation class {collation}")),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_qual_and(request: &mut CellarRequest, nargs: u16) {
    expr::encode_and(&mut request.program, nargs);
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_qual_or(request: &mut CellarRequest, nargs: u16) {
    expr::encode_or(&mut request.program, nargs);
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_qual_not(request: &mut CellarRequest) {
    expr::encode_not(&mut request.program);
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_qual_is_null(request: &mut CellarRequest) {
    expr::encode_is_null(&mut request.program, true);
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_qual_is_not_null(request: &mut CellarRequest) {
    expr::encode_is_null(&mut request.program, false);
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_qual_any_all(
    request: &mut CellarRequest,
    function: u32,
    collation: c_int,
    any: bool,
    nelements: u32,
) {
    match collation_class(collation) {
        Some(collation) => expr::encode_any_all(&mut request.program, function, collation, any, nelements),
        None => request.fail(format!("invalid collation class {collation}")),
    }
}

/// # Safety
/// `values` points to `nvalues` integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cellar_qual_any_integer(
    request: &mut CellarRequest,
    function: u32,
    values: *const i64,
    nvalues: u32,
) {
    // SAFETY: the caller's promise.
    let values = unsafe { std::slice::from_raw_parts(values, nvalues as usize) };
    expr::encode_any_integer(&mut request.program, function, &Integers::new(values.to_vec()));
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_qual_boolean_test(request: &mut CellarRequest, test: c_int) {
    match u8::try_from(test).ok().and_then(BooleanTest::from_u8) {
        Some(test) => expr::encode_boolean_test(&mut request.program, test),
        None => request.fail(format!("invalid boolean test {test}")),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_qual_distinct(request: &mut CellarRequest, equal_function: u32, collation: c_int) {
    match collation_class(collation) {
        Some(collation) => expr::encode_distinct(&mut request.program, equal_function, collation),
        None => request.fail(format!("invalid collation class {collation}")),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_qual_coalesce(request: &mut CellarRequest, nargs: u16) {
    expr::encode_coalesce(&mut request.program, nargs);
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_qual_case(request: &mut CellarRequest, nbranches: u16) {
    expr::encode_case(&mut request.program, nbranches);
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_qual_end(request: &mut CellarRequest) {
    request.qual_end();
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_aggregate_offloadable(aggregate: u32, collation: c_int) -> bool {
    collation_class(collation).is_some_and(|collation| cellar_scan::offloadable_aggregate(aggregate, collation))
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_type_groupable(type_oid: u32) -> bool {
    cellar_scan::groupable_type(type_oid)
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_request_aggregation(request: &mut CellarRequest) {
    request.aggregation();
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_group_key_end(request: &mut CellarRequest) {
    request.group_key_end();
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_aggregate_filter_end(request: &mut CellarRequest) {
    request.aggregate_filter_end();
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_aggregate_end(request: &mut CellarRequest, aggregate: u32, collation: c_int) {
    match collation_class(collation) {
        Some(collation) => request.aggregate_end(aggregate, collation),
        None => request.fail(format!("invalid collation class {collation}")),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_distinct_argument_end(request: &mut CellarRequest) {
    request.distinct_argument_end();
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_distinct_aggregate(request: &mut CellarRequest, aggregate: u32) {
    request.distinct_aggregate(aggregate);
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_aggregate_prunable(aggregate: u32) -> bool {
    cellar_scan::prunable_aggregate(aggregate)
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_join_condition_end(request: &mut CellarRequest) {
    request.join_condition_end();
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_group_condition_end(request: &mut CellarRequest) {
    request.group_condition_end();
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_request_top_groups(request: &mut CellarRequest, groups: u32, with_ties: bool) {
    request.top_groups(groups, with_ties);
}

fn collation_class(value: c_int) -> Option<Collation> {
    u8::try_from(value).ok().and_then(Collation::from_u8)
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_request_threads(request: &mut CellarRequest, threads: u16) {
    request.threads(threads);
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_request_top_rows(request: &mut CellarRequest, rows: u32) {
    request.top_rows(rows);
}

#[unsafe(no_mangle)]
pub extern "C" fn cellar_sort_key_end(
    request: &mut CellarRequest,
    less: u32,
    collation: c_int,
    descending: bool,
    nulls_first: bool,
) {
    match collation_class(collation) {
        Some(collation) => request.sort_key_end(less, collation, descending, nulls_first),
        None => request.fail(format!("invalid collation class {collation}")),
    }
}
