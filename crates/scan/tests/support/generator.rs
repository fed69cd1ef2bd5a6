//! Random typed expressions, each as SQL and as the equivalent wire expression.

use super::Random;
use super::cluster::Cluster;
use cellar_format::postgres::{Collation, Oid, type_oid};
use cellar_format::wire::{BooleanTest, Expr};
use cellar_scan::{FunctionInfo, offloadable_functions};
use std::collections::HashMap;

/// A type with literals for boundary cases.
pub struct Type {
    pub oid: Oid,
    pub name: &'static str,
    pub send: &'static str,
    pub literals: &'static [&'static str],
}

pub const TYPES: &[Type] = &[
    Type { oid: type_oid::BOOL, name: "bool", send: "boolsend", literals: &["true", "false"] },
    Type { oid: type_oid::CHAR, name: "\"char\"", send: "charsend", literals: &["a", "b", "Z", "\\200"] },
    Type { oid: type_oid::INT2, name: "int2", send: "int2send", literals: &["0", "1", "-1", "7", "32767", "-32768"] },
    Type {
        oid: type_oid::INT4,
        name: "int4",
        send: "int4send",
        literals: &["0", "1", "-1", "2", "7", "100", "2147483647", "-2147483648"],
    },
    Type {
        oid: type_oid::INT8,
        name: "int8",
        send: "int8send",
        literals: &["0", "1", "-1", "7", "100000", "9223372036854775807", "-9223372036854775808"],
    },
    Type { oid: type_oid::OID, name: "oid", send: "oidsend", literals: &["0", "1", "7", "4294967295"] },
    Type {
        oid: type_oid::FLOAT4,
        name: "float4",
        send: "float4send",
        literals: &["0", "-0", "1.5", "-1.5", "0.1", "1e30", "1e-40", "NaN", "Infinity", "-Infinity", "7"],
    },
    Type {
        oid: type_oid::FLOAT8,
        name: "float8",
        send: "float8send",
        literals: &["0", "-0", "1.5", "2.5", "-1.5", "0.1", "1e300", "1e-310", "NaN", "Infinity", "-Infinity", "7"],
    },
    Type {
        oid: type_oid::NUMERIC,
        name: "numeric",
        send: "numeric_send",
        literals: &[
            "0",
            "0.00",
            "1",
            "-1",
            "7",
            "0.5",
            "-0.5",
            "1.50",
            "99999999.99999999",
            "0.000000001",
            "1e20",
            "123456789012345678901234567890.123456789",
            "-1e-30",
            "NaN",
            "Infinity",
            "-Infinity",
            "9999",
            "10000.0001",
        ],
    },
    Type {
        oid: type_oid::TEXT,
        name: "text",
        send: "textsend",
        literals: &[
            "",
            "a",
            "abc",
            "ab%",
            "%b%",
            "%abc%",
            "_b_",
            "a_c",
            "äöü",
            "日本語",
            "A",
            "abc ",
            "a\\%",
            "%",
            "b",
            "year",
        ],
    },
    Type {
        oid: type_oid::VARCHAR,
        name: "varchar",
        send: "varcharsend",
        literals: &["", "a", "abc", "ä", "zz", "abc  "],
    },
    Type { oid: type_oid::BPCHAR, name: "bpchar", send: "bpcharsend", literals: &["", "a", "abc", "abc  ", "ä", "b"] },
    Type {
        oid: type_oid::BYTEA,
        name: "bytea",
        send: "byteasend",
        literals: &["", "\\x00", "\\x61", "\\xff00", "abc"],
    },
    Type { oid: type_oid::NAME, name: "name", send: "namesend", literals: &["", "a", "abc", "pg_class", "zz"] },
    Type {
        oid: type_oid::UUID,
        name: "uuid",
        send: "uuid_send",
        literals: &["00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    },
    Type {
        oid: type_oid::DATE,
        name: "date",
        send: "date_send",
        literals: &[
            "2000-01-01",
            "1999-12-31",
            "2024-02-29",
            "0044-03-15 BC",
            "infinity",
            "-infinity",
            "4713-01-01 BC",
            "5874897-12-31",
            "294277-01-01",
            "1995-06-17",
        ],
    },
    Type {
        oid: type_oid::TIME,
        name: "time",
        send: "time_send",
        literals: &["00:00", "12:34:56.789", "24:00", "23:59:59.999999"],
    },
    Type {
        oid: type_oid::TIMESTAMP,
        name: "timestamp",
        send: "timestamp_send",
        literals: &[
            "2000-01-01",
            "1999-12-31 23:59:59.999999",
            "2024-02-29 12:00",
            "0044-03-15 01:02:03 BC",
            "infinity",
            "-infinity",
            "294276-12-31 23:59:59.999999",
            "1995-06-17",
        ],
    },
    Type {
        oid: type_oid::TIMESTAMPTZ,
        name: "timestamptz",
        send: "timestamptz_send",
        literals: &["2000-01-01 00:00+00", "1999-12-31 23:59:59+05", "infinity", "-infinity"],
    },
    Type {
        oid: type_oid::JSONB,
        name: "jsonb",
        send: "jsonb_send",
        literals: &[
            "{}",
            "[]",
            "null",
            "true",
            "1.50",
            "\"a\"",
            "{\"a\": 1}",
            "{\"a\": 1.0, \"b\": null, \"abc\": \"2024-02-29\"}",
            "{\"a\": {\"a\": [1, \"abc\"], \"b\": -0.00}, \"A\": \"12\"}",
            "[1, \"a\", {\"a\": 1}, [true, 1e3], \"äöü\\n\\u0001\\\"\"]",
            "[[1], {\"a\": 1, \"b\": 2}, \"b\", 123456789012345678901234567890.50]",
        ],
    },
    Type {
        oid: type_oid::TEXT_ARRAY,
        name: "text[]",
        send: "array_send",
        literals: &["{}", "{a}", "{a,a}", "{0}", "{-1,a}", "{a,b,0}", "{NULL,a}", "{{a,b},{abc,äöü}}", "{2,a}"],
    },
];

pub fn type_of(oid: Oid) -> &'static Type {
    TYPES.iter().find(|known| known.oid == oid).expect("a type of the list")
}

pub fn quote(literal: &str) -> String {
    format!("'{}'", literal.replace('\'', "''"))
}

/// Converts the type's binary output to a constant's bytes: those of a fixed-width type, or the payload of a varlena.
pub fn from_wire(oid: Oid, sent: &[u8]) -> Vec<u8> {
    match oid {
        type_oid::TEXT | type_oid::VARCHAR | type_oid::BPCHAR | type_oid::BYTEA | type_oid::UUID => sent.to_vec(),
        type_oid::NAME => {
            let mut name = sent.to_vec();
            name.resize(64, 0);
            name
        }
        type_oid::TEXT_ARRAY => array_from_wire(sent),
        type_oid::NUMERIC => {
            let word = |index: usize| u16::from_be_bytes([sent[index * 2], sent[index * 2 + 1]]);
            let (count, weight, sign, scale) = (word(0) as usize, word(1), word(2), word(3));
            if sign & 0xc000 == 0xc000 {
                return sign.to_le_bytes().to_vec();
            }
            let mut payload = (sign | scale).to_le_bytes().to_vec();
            payload.extend(weight.to_le_bytes());
            (0..count).for_each(|index| payload.extend(word(4 + index).to_le_bytes()));
            payload
        }
        _ => sent.iter().rev().copied().collect(),
    }
}

/// Converts the binary output of a `text[]`: words in network order, and elements with their lengths.
fn array_from_wire(sent: &[u8]) -> Vec<u8> {
    let word = |at: usize| i32::from_be_bytes(sent[at..at + 4].try_into().unwrap());
    let (dimensions, has_nulls) = (word(0) as usize, word(4) != 0);
    let lengths: Vec<i32> = (0..dimensions).map(|index| word(12 + 8 * index)).collect();
    let count = if dimensions == 0 { 0 } else { lengths.iter().product::<i32>() as usize };
    let mut at = 12 + 8 * dimensions;
    let (mut bitmap, mut data) = (vec![0u8; count.div_ceil(8)], Vec::new());
    for index in 0..count {
        let bytes = word(at);
        at += 4;
        if bytes >= 0 {
            bitmap[index / 8] |= 1 << (index % 8);
            data.extend(((bytes as u32 + 4) << 2).to_le_bytes());
            data.extend(&sent[at..at + bytes as usize]);
            data.resize(data.len().next_multiple_of(4), 0);
            at += bytes as usize;
        }
    }
    // Offsets include the header of four bytes.
    let start = (16 + 8 * dimensions + if has_nulls { bitmap.len() } else { 0 }).next_multiple_of(8);
    let mut payload = (dimensions as i32).to_le_bytes().to_vec();
    payload.extend(if has_nulls { start as i32 } else { 0 }.to_le_bytes());
    payload.extend(type_oid::TEXT.to_le_bytes());
    lengths.iter().for_each(|length| payload.extend(length.to_le_bytes()));
    lengths.iter().for_each(|_| payload.extend(1i32.to_le_bytes()));
    if has_nulls {
        payload.extend(bitmap);
    }
    if dimensions > 0 {
        payload.resize(start - 4, 0);
    }
    payload.extend(data);
    payload
}

/// The types whose constants the generator can convert. PostgreSQL sends jsonb as text.
fn has_constants(known: &&Type) -> bool {
    known.oid != type_oid::JSONB
}

pub fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|index| u8::from_str_radix(&hex[index * 2..index * 2 + 2], 16).unwrap()).collect()
}

pub struct Generator {
    /// Column name and type by number, 1-based; None for a dropped column.
    columns: Vec<Option<(String, Oid)>>,
    constants: HashMap<Oid, Vec<(String, Vec<u8>)>>,
    functions: Vec<(FunctionInfo, String)>,
}

impl Generator {
    pub fn new(cluster: &Cluster, columns: Vec<Option<(String, Oid)>>) -> Self {
        let mut script = String::new();
        for known in TYPES.iter().filter(has_constants) {
            for literal in known.literals {
                script += &format!("select encode({}({}::{}), 'hex');\n", known.send, quote(literal), known.name);
            }
        }
        let output = cluster.sql(&script);
        let mut lines = output.lines();
        let mut constants: HashMap<Oid, Vec<(String, Vec<u8>)>> = HashMap::new();
        for known in TYPES.iter().filter(has_constants) {
            for literal in known.literals {
                let sent = unhex(lines.next().expect("a line for each literal"));
                let sql = format!("{}::{}", quote(literal), known.name);
                constants.entry(known.oid).or_default().push((sql, from_wire(known.oid, &sent)));
            }
        }
        let names: HashMap<Oid, String> = cluster
            .sql("select oid, quote_ident(proname) from pg_proc where pronamespace = 'pg_catalog'::regnamespace")
            .lines()
            .filter_map(|line| line.split_once('|').map(|(oid, name)| (oid.parse().unwrap(), name.to_owned())))
            .collect();
        // The differ compares enums, whose constants are those of a type.
        let functions = offloadable_functions()
            .filter(|function| !function.args.contains(&type_oid::ANYENUM))
            .map(|function| (function, format!("pg_catalog.{}", names[&function.oid])))
            .collect();
        Self { columns, constants, functions }
    }

    pub fn constant(&self, random: &mut Random, oid: Oid) -> (String, Expr) {
        let Some(constants) = self.constants.get(&oid) else {
            return (format!("NULL::{}", type_of(oid).name), Expr::Const { type_oid: oid, value: None });
        };
        let (sql, value) = random.pick(constants).clone();
        (sql, Expr::Const { type_oid: oid, value: Some(value) })
    }

    pub fn condition(&self, random: &mut Random, depth: usize) -> (String, Expr) {
        match random.below(if depth == 0 { 4 } else { 12 }) {
            0 => self.null_test(random),
            1..=3 => self.comparison(random, depth),
            4 | 5 => self.junction(random, depth),
            6 => {
                let (sql, expr) = self.condition(random, depth - 1);
                (format!("(NOT {sql})"), Expr::Not(Box::new(expr)))
            }
            7 => self.list(random),
            8 => self.boolean_test(random, depth),
            9 => self.distinct(random, depth),
            _ => self.call(random, type_oid::BOOL, depth),
        }
    }

    fn null_test(&self, random: &mut Random) -> (String, Expr) {
        let (sql, expr) = loop {
            let index = random.below(self.columns.len());
            if let Some((name, _)) = &self.columns[index] {
                break (name.clone(), Expr::Column(index as u16 + 1));
            }
        };
        match random.one_in(2) {
            true => (format!("({sql} IS NULL)"), Expr::IsNull(Box::new(expr))),
            false => (format!("({sql} IS NOT NULL)"), Expr::IsNotNull(Box::new(expr))),
        }
    }

    /// Returns a comparison, mostly of a column or of another expression with a constant, which kernels evaluate.
    fn comparison(&self, random: &mut Random, depth: usize) -> (String, Expr) {
        for _ in 0..1000 {
            let (function, name) = random.pick(&self.functions);
            // LIKE fails only for an invalid pattern; no literal is one.
            let fails = function.fallible && !function.name.ends_with("like");
            if function.result != type_oid::BOOL || fails || function.args.len() != 2 {
                continue;
            }
            let Some(left) = self.operand(random, function.args[0]) else { continue };
            let right = match random.below(4) {
                _ if takes_regular_expression(function) => regular_expression(random),
                0 => self.expr(random, function.args[1], depth.min(1)),
                _ => self.constant(random, function.args[1]),
            };
            return apply(function, name, vec![left, right]);
        }
        self.null_test(random)
    }

    fn junction(&self, random: &mut Random, depth: usize) -> (String, Expr) {
        let arms: Vec<_> = (0..2 + random.below(2)).map(|_| self.condition(random, depth - 1)).collect();
        let (sql, exprs): (Vec<_>, Vec<_>) = arms.into_iter().unzip();
        match random.one_in(2) {
            true => (format!("({})", sql.join(" AND ")), Expr::And(exprs)),
            false => (format!("({})", sql.join(" OR ")), Expr::Or(exprs)),
        }
    }

    fn boolean_test(&self, random: &mut Random, depth: usize) -> (String, Expr) {
        use BooleanTest::*;
        let tests = [
            (IsTrue, "TRUE"),
            (IsNotTrue, "NOT TRUE"),
            (IsFalse, "FALSE"),
            (IsNotFalse, "NOT FALSE"),
            (IsUnknown, "UNKNOWN"),
            (IsNotUnknown, "NOT UNKNOWN"),
        ];
        let (sql, expr) = self.condition(random, depth - 1);
        let (test, words) = *random.pick(&tests);
        (format!("({sql} IS {words})"), Expr::BooleanTest { test, arg: Box::new(expr) })
    }

    /// Returns `x = ANY`, `x <> ALL` or, rarely, another operator with a list; some elements are NULL.
    fn list(&self, random: &mut Random) -> (String, Expr) {
        let operators = [("=", "eq"), ("<>", "ne"), ("<", "lt")];
        for _ in 0..1000 {
            let (operator, suffix) = *random.pick(&operators);
            let (function, _) = random.pick(&self.functions);
            let compares = function.result == type_oid::BOOL && function.args.len() == 2;
            if !compares
                || !function.name.ends_with(suffix)
                || function.name.contains("pattern")
                || takes_regular_expression(function)
            {
                continue;
            }
            if function.args[0] != function.args[1] {
                continue;
            }
            let oid = function.args[0];
            let Some((scalar_sql, scalar)) = self.operand(random, oid) else { continue };
            let any = (operator != "<>") != random.one_in(4);
            let mut sql = Vec::new();
            let mut elements = Vec::new();
            for _ in 0..random.below(14) {
                if random.one_in(10) {
                    sql.push("NULL".to_owned());
                    elements.push(Expr::Const { type_oid: oid, value: None });
                } else {
                    let (literal, expr) = self.constant(random, oid);
                    sql.push(literal);
                    elements.push(expr);
                }
            }
            let word = if any { "ANY" } else { "ALL" };
            let array = format!("ARRAY[{}]::{}[]", sql.join(","), type_of(oid).name);
            let expr = Expr::AnyAll {
                function: function.oid,
                collation: Collation::Bytewise,
                any,
                scalar: Box::new(scalar),
                elements,
            };
            return (format!("({scalar_sql} {operator} {word} ({array}))"), expr);
        }
        self.null_test(random)
    }

    fn distinct(&self, random: &mut Random, depth: usize) -> (String, Expr) {
        for _ in 0..1000 {
            let (function, _) = random.pick(&self.functions);
            let equality = function.result == type_oid::BOOL && function.name.ends_with("eq") && !function.fallible;
            if !equality || function.args[0] != function.args[1] || takes_regular_expression(function) {
                continue;
            }
            let left = self.expr(random, function.args[0], depth - 1);
            let right = self.expr(random, function.args[1], depth - 1);
            let expr = Expr::Distinct {
                equal: function.oid,
                collation: Collation::Bytewise,
                left: Box::new(left.1),
                right: Box::new(right.1),
            };
            return (format!("({} IS DISTINCT FROM {})", left.0, right.0), expr);
        }
        self.null_test(random)
    }

    fn column(&self, random: &mut Random, oid: Oid) -> Option<(String, Expr)> {
        let fitting: Vec<_> = (0..self.columns.len())
            .filter(|index| match &self.columns[*index] {
                // varchar is binary coercible to text, so no function call is needed.
                Some((_, found)) => *found == oid || *found == type_oid::VARCHAR && oid == type_oid::TEXT,
                None => false,
            })
            .collect();
        let index = *fitting.get(random.below(fitting.len()))?;
        let (name, found) = self.columns[index].as_ref()?;
        let sql = if *found == oid { name.clone() } else { format!("{name}::{}", type_of(oid).name) };
        Some((sql, Expr::Column(index as u16 + 1)))
    }

    /// Returns a column or, rarely, an expression of columns: the operand of a test against constants.
    fn operand(&self, random: &mut Random, oid: Oid) -> Option<(String, Expr)> {
        match random.below(6) {
            0 => Some(self.call(random, oid, 1)),
            1 => Some(self.expr(random, oid, 1)),
            _ => self.column(random, oid),
        }
    }

    fn call(&self, random: &mut Random, result: Oid, depth: usize) -> (String, Expr) {
        for _ in 0..1000 {
            let (function, name) = random.pick(&self.functions);
            if function.result == result {
                let fields: &[&str] = match function.name {
                    "extract_date" | "timestamp_part" | "timestamptz_part" => {
                        &["year", "month", "day", "doy", "dow", "isodow", "quarter", "week"]
                    }
                    "extract_timestamp" | "extract_timestamptz" => {
                        &["year", "month", "week", "day", "doy", "hour", "minute", "second", "epoch"]
                    }
                    "extract_time" => &["hour", "minute", "second", "milliseconds", "microseconds", "epoch"],
                    "timestamptz_zone" => &["UTC", "utc", "Etc/UTC"],
                    "timestamp_trunc" | "timestamptz_trunc" => {
                        &["year", "quarter", "month", "week", "day", "hour", "minute", "second", "milliseconds"]
                    }
                    _ => &[],
                };
                if function.args[0] == type_oid::CSTRING {
                    return cast(function, self.expr(random, type_oid::TEXT, depth.saturating_sub(1)));
                }
                let args = function.args.iter().enumerate().map(|(index, oid)| {
                    if index == 0 && !fields.is_empty() {
                        let field = *random.pick(fields);
                        let value = Some(field.as_bytes().to_vec());
                        return (format!("'{field}'::text"), Expr::Const { type_oid: type_oid::TEXT, value });
                    }
                    if index == 1 && takes_regular_expression(function) {
                        return regular_expression(random);
                    }
                    self.expr(random, *oid, depth.saturating_sub(1))
                });
                let args = args.collect();
                return apply(function, name, args);
            }
        }
        self.constant(random, result)
    }

    pub fn expr(&self, random: &mut Random, oid: Oid, depth: usize) -> (String, Expr) {
        if oid == type_oid::BOOL && depth > 0 && random.one_in(2) {
            return self.condition(random, depth - 1);
        }
        match random.below(if depth == 0 { 6 } else { 12 }) {
            0 => (format!("NULL::{}", type_of(oid).name), Expr::Const { type_oid: oid, value: None }),
            1 => self.constant(random, oid),
            2..=6 => self.column(random, oid).unwrap_or_else(|| self.constant(random, oid)),
            7 => {
                let (left, right) = (self.expr(random, oid, depth - 1), self.expr(random, oid, depth - 1));
                (format!("coalesce({}, {})", left.0, right.0), Expr::Coalesce(vec![left.1, right.1]))
            }
            8 => {
                let condition = self.condition(random, depth - 1);
                let (then, other) = (self.expr(random, oid, depth - 1), self.expr(random, oid, depth - 1));
                let sql = format!("(CASE WHEN {} THEN {} ELSE {} END)", condition.0, then.0, other.0);
                (sql, Expr::Case { whens: vec![(condition.1, then.1)], otherwise: Box::new(other.1) })
            }
            _ => self.call(random, oid, depth),
        }
    }
}

/// A cast of a text: a call of an input function, whose other arguments are a type and a type modifier.
fn cast(function: &FunctionInfo, (sql, text): (String, Expr)) -> (String, Expr) {
    let constant = |type_oid: Oid, value: i32| Expr::Const { type_oid, value: Some(value.to_le_bytes().to_vec()) };
    let mut args = vec![text];
    args.extend(function.args.iter().skip(1).map(|oid| constant(*oid, if *oid == type_oid::INT4 { -1 } else { 0 })));
    let expr = Expr::Call { function: function.oid, collation: Collation::None, args };
    (format!("({sql})::{}", type_of(function.result).name), expr)
}

fn takes_regular_expression(function: &FunctionInfo) -> bool {
    function.name.contains("regex")
}

fn regular_expression(random: &mut Random) -> (String, Expr) {
    let patterns =
        [r"^(.)(.*)", r"^a?(?:ab|[^e])*(.+)$", r"^.*([^a-m]+).?", r"^(e|[a-z]+).?(.*)", r"^[^.]*\.(.)", r"^( ?.)"];
    let pattern = *random.pick(&patterns);
    let value = Some(pattern.as_bytes().to_vec());
    (format!("'{pattern}'::text"), Expr::Const { type_oid: type_oid::TEXT, value })
}

fn apply(function: &FunctionInfo, name: &str, args: Vec<(String, Expr)>) -> (String, Expr) {
    let (sql, exprs): (Vec<_>, Vec<_>) = args.into_iter().unzip();
    let expr = Expr::Call { function: function.oid, collation: Collation::Bytewise, args: exprs };
    (format!("{name}({})", sql.join(", ")), expr)
}
