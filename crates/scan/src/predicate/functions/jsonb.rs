//! Functions over `jsonb`: lookup of fields, elements and paths, tests, and conversions of scalars.
//!
//! The conversion of a JSON null is left to PostgreSQL: it is an error before 18 and NULL since. Source:
//! `utils/adt/jsonfuncs.c`, `jsonb_op.c`, `jsonb.c`.

use std::borrow::Cow;

use super::integer::fit;
use super::{Context, fallible, functions, safe};
use crate::value::jsonb::{self, Container, Item};
use crate::value::{EvalResult, Numeric, Undecided, Value, text_array};

/// A found item, or None for SQL's NULL.
type Found<'a> = Result<Option<Item<'a>>, Undecided>;

fn bytes<'v>(value: &'v Value<'_>) -> Result<&'v [u8], Undecided> {
    match value {
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err(Undecided),
    }
}

/// Applies a function to the document, which is the first argument. The result borrows from the document where possible.
fn of_document<'a, F>(args: &mut [Value<'a>], function: F) -> EvalResult<'a>
where
    F: for<'d> Fn(Container<'d>, &[Value<'_>]) -> EvalResult<'d>,
{
    let Some((document, rest)) = args.split_first_mut() else { return Err(Undecided) };
    match std::mem::replace(document, Value::Null) {
        Value::Bytes(Cow::Borrowed(document)) => function(Container::parse(document)?, rest),
        Value::Bytes(Cow::Owned(document)) => function(Container::parse(&document)?, rest).map(Value::into_owned),
        _ => Err(Undecided),
    }
}

/// The item as `jsonb`.
pub fn as_jsonb<'a>(found: Found<'a>) -> EvalResult<'a> {
    Ok(match found? {
        None => Value::Null,
        Some(Item::Container(container)) => Value::Bytes(Cow::Borrowed(container.bytes())),
        Some(item) => {
            let mut out = Vec::new();
            item.write_jsonb(&mut out);
            Value::Bytes(Cow::Owned(out))
        }
    })
}

/// The item as text (`JsonbValueAsText`). A JSON null is NULL.
pub fn as_text<'a>(found: Found<'a>) -> EvalResult<'a> {
    Ok(match found? {
        None | Some(Item::Null) => Value::Null,
        Some(Item::String(string)) => Value::Bytes(Cow::Borrowed(string)),
        Some(Item::Bool(value)) => Value::Bytes(Cow::Borrowed(if value { b"true" } else { b"false" })),
        Some(item) => {
            let mut out = Vec::new();
            item.write_json(&mut out)?;
            Value::Bytes(Cow::Owned(out))
        }
    })
}

fn field<'d>(document: Container<'d>, args: &[Value<'_>]) -> Found<'d> {
    document.field(bytes(&args[0])?)
}

fn element<'d>(document: Container<'d>, args: &[Value<'_>]) -> Found<'d> {
    let Value::Int(index) = args[0] else { return Err(Undecided) };
    element_at(document, index)
}

/// An element by its position, which counts from the end if negative.
pub fn element_at<'d>(document: Container<'d>, index: i64) -> Found<'d> {
    let index = if index < 0 { index + document.count() as i64 } else { index };
    match usize::try_from(index) {
        Ok(index) => document.element(index),
        Err(_) => Ok(None),
    }
}

/// The position that a step of a path names (`strtoint`). None: the text is no integer.
pub fn position(step: &[u8]) -> Result<Option<i64>, Undecided> {
    match step.first() {
        // `strtol` skips white space.
        Some(b' ' | b'\t'..=b'\r') => Err(Undecided),
        _ => Ok(std::str::from_utf8(step).ok().and_then(|step| step.parse::<i32>().ok()).map(i64::from)),
    }
}

/// The item at the end of a path (`get_jsonb_path_all`).
fn at_path<'d>(document: Container<'d>, args: &[Value<'_>]) -> Found<'d> {
    let path = text_array::elements(bytes(&args[0])?)?;
    let mut item = document.scalar()?.unwrap_or(Item::Container(document));
    let Some(path) = path.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
    for step in path {
        let found = match item {
            Item::Container(object) if object.is_object() => object.field(step)?,
            Item::Container(array) => match position(step)? {
                Some(index) => element_at(array, index)?,
                None => None,
            },
            _ => None,
        };
        match found {
            Some(found) => item = found,
            None => return Ok(None),
        }
    }
    Ok(Some(item))
}

fn object_field<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    of_document(args, |document, args| as_jsonb(field(document, args)))
}

fn object_field_text<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    of_document(args, |document, args| as_text(field(document, args)))
}

fn array_element<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    of_document(args, |document, args| as_jsonb(element(document, args)))
}

fn array_element_text<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    of_document(args, |document, args| as_text(element(document, args)))
}

fn extract_path<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    of_document(args, |document, args| as_jsonb(at_path(document, args)))
}

fn extract_path_text<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    of_document(args, |document, args| as_text(at_path(document, args)))
}

fn type_of<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let document = Container::parse(bytes(&args[0])?)?;
    let name: &[u8] = match document.scalar()? {
        Some(Item::Null) => b"null",
        Some(Item::Bool(_)) => b"boolean",
        Some(Item::String(_)) => b"string",
        Some(Item::Numeric(_)) => b"number",
        Some(Item::Container(_)) => return Err(Undecided),
        None if document.is_object() => b"object",
        None => b"array",
    };
    Ok(Value::Bytes(Cow::Borrowed(name)))
}

fn array_length<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let document = Container::parse(bytes(&args[0])?)?;
    match document.has_elements() && document.scalar()?.is_none() {
        true => Ok(Value::Int(document.count() as i64)),
        false => Err(Undecided),
    }
}

fn exists<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Container::parse(bytes(&args[0])?)?.has_string(bytes(&args[1])?).map(Value::Bool)
}

fn exists_any<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let document = Container::parse(bytes(&args[0])?)?;
    for key in text_array::elements(bytes(&args[1])?)?.into_iter().flatten() {
        if document.has_string(key)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn exists_all<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let document = Container::parse(bytes(&args[0])?)?;
    for key in text_array::elements(bytes(&args[1])?)?.into_iter().flatten() {
        if !document.has_string(key)? {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn contains<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let (left, right) = (Container::parse(bytes(&args[0])?)?, Container::parse(bytes(&args[1])?)?);
    left.contains(&right).map(Value::Bool)
}

fn contained<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    args.swap(0, 1);
    contains(args, context)
}

fn to_bool<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    match Container::parse(bytes(&args[0])?)?.scalar()? {
        Some(Item::Bool(value)) => Ok(Value::Bool(value)),
        _ => Err(Undecided),
    }
}

fn number(args: &[Value<'_>]) -> Result<Numeric, Undecided> {
    match Container::parse(bytes(&args[0])?)?.scalar()? {
        Some(Item::Numeric(payload)) => jsonb::numeric(payload),
        _ => Err(Undecided),
    }
}

fn to_numeric<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    number(args).map(Value::Numeric)
}

fn to_int<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    fit(number(args)?.to_i64(), context.result)
}

fn to_float8<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    number(args)?.to_f64().map(Value::Float).ok_or(Undecided)
}

fn to_float4<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    number(args)?.to_f32().map(|value| Value::Float(value.into())).ok_or(Undecided)
}

functions! {
    3478 jsonb_object_field (JSONB, TEXT) -> JSONB, Any, safe(object_field);
    3214 jsonb_object_field_text (JSONB, TEXT) -> TEXT, Any, safe(object_field_text);
    3215 jsonb_array_element (JSONB, INT4) -> JSONB, Any, safe(array_element);
    3216 jsonb_array_element_text (JSONB, INT4) -> TEXT, Any, safe(array_element_text);
    3217 jsonb_extract_path (JSONB, TEXT_ARRAY) -> JSONB, Any, safe(extract_path);
    3940 jsonb_extract_path_text (JSONB, TEXT_ARRAY) -> TEXT, Any, safe(extract_path_text);
    3210 jsonb_typeof (JSONB) -> TEXT, Any, safe(type_of);
    3207 jsonb_array_length (JSONB) -> INT4, Any, fallible(array_length);
    4047 jsonb_exists (JSONB, TEXT) -> BOOL, Any, safe(exists);
    4048 jsonb_exists_any (JSONB, TEXT_ARRAY) -> BOOL, Any, safe(exists_any);
    4049 jsonb_exists_all (JSONB, TEXT_ARRAY) -> BOOL, Any, safe(exists_all);
    4046 jsonb_contains (JSONB, JSONB) -> BOOL, Any, safe(contains);
    4050 jsonb_contained (JSONB, JSONB) -> BOOL, Any, safe(contained);
    3556 jsonb_bool (JSONB) -> BOOL, Any, fallible(to_bool);
    3449 jsonb_numeric (JSONB) -> NUMERIC, Any, fallible(to_numeric);
    3450 jsonb_int2 (JSONB) -> INT2, Any, fallible(to_int);
    3451 jsonb_int4 (JSONB) -> INT4, Any, fallible(to_int);
    3452 jsonb_int8 (JSONB) -> INT8, Any, fallible(to_int);
    3453 jsonb_float4 (JSONB) -> FLOAT4, Any, fallible(to_float4);
    2580 jsonb_float8 (JSONB) -> FLOAT8, Any, fallible(to_float8);
}
