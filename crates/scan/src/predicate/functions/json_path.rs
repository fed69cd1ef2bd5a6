//! Lookups in a `jsonb` value by constant keys, positions and paths, fused with the conversion or the test of what is found:
//! the operators `->`, `->>`, `#>`, `#>>`, `?` and `@>`, and casts of their results, without the values in between.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::integer::fit;
use super::jsonb::{as_jsonb, as_text, element_at, position};
use super::{Context, Function, FunctionBody, Scalar};
use crate::predicate::Node;
use crate::value::jsonb::{self, Container, Item};
use crate::value::{EvalResult, Undecided, Value, ValueKind, text_array};
use cellar_format::postgres::{Oid, type_oid};

/// `jsonb ? text` and `jsonb @> jsonb`.
const EXISTS: Oid = 4047;
const CONTAINS: Oid = 4046;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(Vec<u8>),
    Element(i64),
    /// A step of a path: a key, or a position in an array. A scalar has no element here.
    Path {
        key: Vec<u8>,
        position: Option<i64>,
    },
}

impl Step {
    /// The steps of a call with this constant argument. None: not a lookup by a constant, or one that the steps do not express.
    fn of(function: &Function, argument: Option<&Node>) -> Option<Vec<Self>> {
        match (function.args, argument?) {
            ([type_oid::JSONB, type_oid::TEXT], Node::Const(Value::Bytes(key))) => {
                Some(vec![Self::Field(key.to_vec())])
            }
            ([type_oid::JSONB, type_oid::INT4], Node::Const(Value::Int(position))) => {
                Some(vec![Self::Element(*position)])
            }
            ([type_oid::JSONB, type_oid::TEXT_ARRAY], Node::Const(Value::Bytes(path))) => {
                let step = |key: Option<&[u8]>| Some(Self::Path { key: key?.to_vec(), position: position(key?).ok()? });
                let steps: Vec<Self> = text_array::elements(path).ok()?.into_iter().map(step).collect::<Option<_>>()?;
                Some(steps).filter(|steps| !steps.is_empty())
            }
            _ => None,
        }
    }

    fn take<'a>(&self, item: &Item<'a>) -> Result<Option<Item<'a>>, Undecided> {
        match (item, self) {
            (Item::Container(container), Self::Field(key)) => container.field(key),
            (Item::Container(container), Self::Element(position)) => element_at(*container, *position),
            (Item::Container(container), Self::Path { key, position }) => match position {
                _ if container.is_object() => container.field(key),
                Some(position) if container.scalar()?.is_none() => element_at(*container, *position),
                _ => Ok(None),
            },
            // A scalar that `->` returns is an array with one element.
            (scalar, Self::Element(0 | -1)) => Ok(Some(*scalar)),
            _ => Ok(None),
        }
    }
}

/// What becomes of the item that is found.
#[derive(Clone, PartialEq)]
enum Output {
    Jsonb,
    Text,
    /// Whether the item has this key or string.
    Exists(Vec<u8>),
    /// Whether the item contains this `jsonb`.
    Contains(Vec<u8>),
    /// The text is cast, or the scalar is converted, by this function.
    Converted(&'static Function, Context),
}

#[derive(Clone, PartialEq)]
pub struct JsonPath {
    document: Box<Node>,
    steps: Vec<Step>,
    output: Output,
}

impl JsonPath {
    /// The path that a call with these arguments is. Otherwise returns the arguments.
    pub fn new(function: &'static Function, context: Context, mut args: Vec<Node>) -> Result<Self, Vec<Node>> {
        let constant = match args.get(1) {
            Some(Node::Const(Value::Bytes(constant))) => Some(constant.to_vec()),
            _ => None,
        };
        let (steps, output) = match (function.oid, function.result, constant) {
            (EXISTS, _, Some(key)) => (Vec::new(), Output::Exists(key)),
            (CONTAINS, _, Some(contained)) => (Vec::new(), Output::Contains(contained)),
            (_, type_oid::JSONB | type_oid::TEXT, _) => match Step::of(function, args.get(1)) {
                Some(steps) if function.result == type_oid::JSONB => (steps, Output::Jsonb),
                Some(steps) => (steps, Output::Text),
                None => return Self::converted(function, context, args),
            },
            _ => return Self::converted(function, context, args),
        };
        Ok(match args.swap_remove(0) {
            Node::JsonPath(Self { document, steps: mut all, output: Output::Jsonb }) => {
                all.extend(steps);
                Self { document, steps: all, output }
            }
            document => Self { document: Box::new(document), steps, output },
        })
    }

    /// A path whose result is converted by this function.
    fn converted(function: &'static Function, context: Context, mut args: Vec<Node>) -> Result<Self, Vec<Node>> {
        let converts = match args.first() {
            Some(Node::JsonPath(Self { output: Output::Text, .. })) => function.args[0] == type_oid::CSTRING,
            Some(Node::JsonPath(Self { output: Output::Jsonb, .. })) => function.args == [type_oid::JSONB],
            _ => false,
        };
        if !converts || !matches!(function.body, FunctionBody::Scalar(_)) {
            return Err(args);
        }
        match args.swap_remove(0) {
            Node::JsonPath(path) => Ok(Self { output: Output::Converted(function, context), ..path }),
            _ => Err(args),
        }
    }

    pub fn document(&self) -> &Node {
        &self.document
    }

    /// Whether PostgreSQL may raise an error for some value.
    pub fn fallible(&self) -> bool {
        matches!(&self.output, Output::Converted(function, _) if function.fallible) || self.document.fallible()
    }

    /// The result for a document.
    pub fn of<'a>(&self, document: Value<'a>) -> EvalResult<'a> {
        match document {
            Value::Null => Ok(Value::Null),
            Value::Bytes(Cow::Borrowed(bytes)) => self.of_bytes(bytes),
            Value::Bytes(Cow::Owned(bytes)) => self.of_bytes(&bytes).map(Value::into_owned),
            _ => Err(Undecided),
        }
    }

    fn of_bytes<'a>(&self, document: &'a [u8]) -> EvalResult<'a> {
        let mut item = Item::Container(Container::parse(document)?);
        for step in &self.steps {
            match step.take(&item)? {
                Some(found) => item = found,
                None => return Ok(Value::Null),
            }
        }
        match &self.output {
            Output::Jsonb => as_jsonb(Ok(Some(item))),
            Output::Text => as_text(Ok(Some(item))),
            Output::Exists(key) => match item {
                Item::Container(container) => container.has_string(key).map(Value::Bool),
                Item::String(string) => Ok(Value::Bool(string == key)),
                _ => Ok(Value::Bool(false)),
            },
            Output::Contains(contained) => {
                let contained = Container::parse(contained)?;
                let Value::Bytes(container) = as_jsonb(Ok(Some(item)))? else { return Err(Undecided) };
                Container::parse(&container)?.contains(&contained).map(Value::Bool)
            }
            Output::Converted(function, context) => converted(item, function, context),
        }
    }
}

/// The casts of jsonb to `numeric`, `int2`, `int4` and `int8`.
const CASTS_OF_JSONB: RangeInclusive<Oid> = 3449..=3452;

fn converted<'a>(item: Item<'a>, function: &'static Function, context: &Context) -> EvalResult<'a> {
    let FunctionBody::Scalar(scalar) = function.body else { return Err(Undecided) };
    let is_cast = function.args[0] == type_oid::CSTRING;
    if let Item::Numeric(payload) = item
        && (is_cast || CASTS_OF_JSONB.contains(&function.oid))
    {
        let number = jsonb::numeric(payload)?;
        match context.result {
            ValueKind::Numeric => return Ok(Value::Numeric(number)),
            // The text of a number with decimals is no integer.
            ValueKind::Int2 | ValueKind::Int4 | ValueKind::Int8 if is_cast && number.scale > 0 => {
                return Err(Undecided);
            }
            ValueKind::Int2 | ValueKind::Int4 | ValueKind::Int8 => return fit(number.to_i64(), context.result),
            _ => {}
        }
    }
    let value = if is_cast { as_text(Ok(Some(item)))? } else { as_jsonb(Ok(Some(item)))? };
    if value.is_null() { Ok(Value::Null) } else { called(scalar, value, context) }
}

/// Calls the function with the value, the type 0, and the type modifier -1.
fn called<'a>(function: Scalar, value: Value<'a>, context: &Context) -> EvalResult<'a> {
    function(&mut [value, Value::Int(0), Value::Int(-1)], context)
}

#[cfg(test)]
mod tests {
    use super::super::{TextEncoding, find};
    use super::*;

    fn fused(function: u32, args: Vec<Node>) -> Node {
        let function = find(function).unwrap();
        let context = Context { encoding: TextEncoding::Utf8, result: ValueKind::of(function.result).unwrap() };
        JsonPath::new(function, context, args).map(Node::JsonPath).unwrap_or_else(|_| panic!("not fused"))
    }

    fn value<'a>(node: &Node, document: &'a [u8]) -> EvalResult<'a> {
        let Node::JsonPath(path) = node else { panic!() };
        path.of(Value::Bytes(Cow::Borrowed(document)))
    }

    fn key(text: &str) -> Node {
        Node::Const(Value::Bytes(text.as_bytes().to_vec().into()))
    }

    const FIELD: u32 = 3478;
    const FIELD_TEXT: u32 = 3214;
    const ELEMENT: u32 = 3215;

    /// The scalar 7, and `{"a": 7}`.
    fn documents() -> [Vec<u8>; 2] {
        let number = [32u8, 0, 0, 0, 0, 0x80, 7, 0];
        let mut scalar = 0x5000_0001u32.to_le_bytes().to_vec();
        scalar.extend((0x9000_0000u32 | 8).to_le_bytes());
        scalar.extend(number);
        let mut object = 0x2000_0001u32.to_le_bytes().to_vec();
        object.extend((0x8000_0000u32 | 1).to_le_bytes());
        object.extend((0x1000_0000u32 | 11).to_le_bytes());
        object.extend([b'a', 0, 0, 0]);
        object.extend(number);
        [scalar, object]
    }

    #[test]
    fn operators_are_fused_with_casts() {
        let [scalar, object] = documents();
        let a = fused(FIELD, vec![Node::Column(0), key("a")]);
        let Ok(Value::Bytes(found)) = value(&a, &object) else { panic!() };
        assert_eq!(*found, *scalar);
        let text = fused(FIELD_TEXT, vec![Node::Column(0), key("a")]);
        assert_eq!(value(&text, &object), Ok(Value::Bytes(b"7"[..].into())));
        let as_int = fused(42, vec![text.clone()]);
        assert_eq!(value(&as_int, &object), Ok(Value::Int(7)));
        let as_bool = fused(1242, vec![text]);
        assert_eq!(value(&as_bool, &object), Err(Undecided));
        assert_eq!(value(&fused(3451, vec![a.clone()]), &object), Ok(Value::Int(7)));
        assert_eq!(
            value(&fused(3207, vec![a.clone()]), &object),
            Err(Undecided),
            "the number is not the length of an array"
        );
        // A scalar has one element, and no field.
        let element = |position| fused(ELEMENT, vec![a.clone(), Node::Const(Value::Int(position))]);
        assert!(matches!(value(&element(-1), &object), Ok(Value::Bytes(_))));
        assert_eq!(value(&element(1), &object), Ok(Value::Null));
        assert_eq!(value(&fused(FIELD, vec![a, key("a")]), &object), Ok(Value::Null));
        assert_eq!(value(&as_int, &scalar), Ok(Value::Null));
        let has = |name| fused(EXISTS, vec![Node::Column(0), key(name)]);
        assert_eq!(value(&has("a"), &object), Ok(Value::Bool(true)));
        assert_eq!(value(&has("b"), &object), Ok(Value::Bool(false)));
        let contains = |document: &[u8]| {
            let constant = Node::Const(Value::Bytes(document.to_vec().into()));
            fused(CONTAINS, vec![fused(FIELD, vec![Node::Column(0), key("a")]), constant])
        };
        assert_eq!(value(&contains(&scalar), &object), Ok(Value::Bool(true)));
        assert_eq!(value(&contains(&object), &object), Ok(Value::Bool(false)));
    }
}
