//! Column types and random values of them, as SQL literals without quotes.

use super::rng::Rng;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Uuid,
    Bytea,
    Enum,
    Jsonb,
}

/// The declarations of a column's type: varchar(n) and bpchar(n) count as text, numeric(p,s) as numeric.
pub const DECLARED: [(Type, &str); 26] = [
    (Type::Bool, "bool"),
    (Type::Int2, "int2"),
    (Type::Int4, "int4"),
    (Type::Int4, "int4"),
    (Type::Int8, "int8"),
    (Type::Float4, "float4"),
    (Type::Float8, "float8"),
    (Type::Numeric, "numeric"),
    (Type::Numeric, "numeric(12,2)"),
    (Type::Numeric, "numeric(20,4)"),
    (Type::Numeric, "numeric(40,12)"),
    (Type::Text, "text"),
    (Type::Text, "text"),
    (Type::Text, "text COLLATE \"C\""),
    (Type::Text, "varchar(30)"),
    (Type::Text, "char(12)"),
    (Type::Date, "date"),
    (Type::Time, "time"),
    (Type::Timestamp, "timestamp"),
    (Type::Timestamptz, "timestamptz"),
    (Type::Uuid, "uuid"),
    (Type::Bytea, "bytea"),
    (Type::Enum, "mood"),
    (Type::Text, "char(1)"),
    (Type::Jsonb, "jsonb"),
    (Type::Jsonb, "jsonb"),
];

/// The values of the enum type `mood`, whose order differs from that of their texts.
pub const MOODS: [&str; 5] = ["sad", "Ok", "happy", "", "très content"];

pub const WORDS: [&str; 20] = [
    "",
    " ",
    "a",
    "A",
    "ab",
    "abc",
    "pinto",
    "beans",
    "express",
    "pinto beans",
    "x%y",
    "u_v",
    "back\\slash",
    "ünïcode",
    "日本語テキスト",
    "trailing  ",
    "  leading",
    "zebra",
    "Zebra",
    "0123",
];

impl Type {
    pub fn name(self) -> &'static str {
        match self {
            Type::Bool => "bool",
            Type::Int2 => "int2",
            Type::Int4 => "int4",
            Type::Int8 => "int8",
            Type::Float4 => "float4",
            Type::Float8 => "float8",
            Type::Numeric => "numeric",
            Type::Text => "text",
            Type::Date => "date",
            Type::Time => "time",
            Type::Timestamp => "timestamp",
            Type::Timestamptz => "timestamptz",
            Type::Uuid => "uuid",
            Type::Bytea => "bytea",
            Type::Enum => "mood",
            Type::Jsonb => "jsonb",
        }
    }

    pub fn is_number(self) -> bool {
        matches!(self, Type::Int2 | Type::Int4 | Type::Int8 | Type::Float4 | Type::Float8 | Type::Numeric)
    }

    /// Returns a random value that fits the declaration `declared`.
    pub fn value(self, declared: &str, rng: &mut Rng) -> String {
        match self {
            Type::Bool => ["t", "f"][rng.below(2)].to_owned(),
            Type::Int2 => integer(rng, i16::MIN.into(), i16::MAX.into()),
            Type::Int4 => integer(rng, i32::MIN.into(), i32::MAX.into()),
            Type::Int8 => integer(rng, i64::MIN, i64::MAX),
            Type::Float4 => float(rng, &["3.4e38", "-3.4e38", "1e-38", "1.1754944e-38"]),
            Type::Float8 => float(rng, &["1.7e308", "-1.7e308", "2.3e-308", "9007199254740993", "0.1"]),
            Type::Numeric => numeric(declared, rng),
            Type::Text => text(declared, rng),
            Type::Date => date(rng),
            Type::Time => match rng.below(12) {
                0 => "24:00:00".to_owned(),
                1 => "00:00:00".to_owned(),
                _ => clock(rng),
            },
            Type::Timestamp => timestamp(rng),
            Type::Timestamptz => {
                let value = timestamp(rng);
                if value.ends_with("infinity") || value.ends_with("BC") || rng.chance(50) {
                    value
                } else {
                    format!("{value}{}", rng.pick(&["+00", "+05:30", "-08", "+14"]))
                }
            }
            Type::Uuid => {
                let (high, low) = if rng.chance(60) { (0, rng.below(20) as u64) } else { (rng.next(), rng.next()) };
                let hex = format!("{high:016x}{low:016x}");
                format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
            }
            Type::Enum => (*rng.pick(&MOODS)).to_owned(),
            Type::Jsonb => match rng.below(40) {
                // Keys beyond the 32 that share an offset.
                0 => {
                    let pair = |number: usize| format!("\"k{number}\": {}", number * 7 % 13);
                    format!("{{{}}}", (0..70).map(pair).collect::<Vec<_>>().join(", "))
                }
                // Values that are compressed, or stored out of line.
                1 => format!("{{\"a\": \"{}\", \"b\": 1}}", "pinto ".repeat(1000)),
                2 => format!("{{\"a\": {}, \"n\": \"{}\"}}", json(rng, 1), text("text", rng).replace(['\\', '"'], "")),
                n if n < 25 => json(rng, 3),
                n => JSON[n % JSON.len()].to_owned(),
            },
            Type::Bytea => {
                let length = match rng.below(30) {
                    0 => 9000,
                    1 => 3000,
                    n => n % 6,
                };
                let random = rng.chance(50);
                let bytes = (0..length).map(|_| if random { rng.next() as u8 } else { 0x41 });
                bytes.fold("\\x".to_owned(), |hex, byte| hex + &format!("{byte:02x}"))
            }
        }
    }
}

/// Keys of JSON objects; also texts that can be cast.
pub const JSON_KEYS: [&str; 8] = ["a", "b", "n", "ab", "d", "k33", "", "ü"];

const JSON: [&str; 15] = [
    "{}",
    "[]",
    "null",
    "\"a\"",
    "7",
    "{\"a\": 1}",
    "{\"a\": 1.0}",
    "{\"a\": \"1\", \"b\": 2}",
    "{\"a\": \"x\", \"b\": true}",
    "{\"a\": null, \"d\": \"2024-02-29\"}",
    "{\"d\": \"1999-12-31 23:59:59.5\", \"b\": [1, 2.50]}",
    "{\"d\": \"31.12.1999\", \"n\": \" 1e3 \"}",
    "{\"n\": 12.50, \"a\": {\"b\": [\"a\"]}}",
    "{\"n\": -1, \"a\": 1, \"a\": 3}",
    "[\"a\", \"b\", {\"a\": 1}]",
];

/// Returns a random JSON value with at most `depth` levels of containers.
fn json(rng: &mut Rng, depth: usize) -> String {
    match rng.below(if depth == 0 { 6 } else { 10 }) {
        0 => (*rng.pick(&["null", "true", "false"])).to_owned(),
        1 => (*rng.pick(&["0.00", "-0", "1e3", "1.50e-3", "12345678901234567890.10", "2147483648", "2.5"])).to_owned(),
        2 | 3 => rng.between(-5, 20).to_string(),
        4 => format!("\"{}\"", rng.pick(&["a", "é\\n\\u0001", "\\\"q\\\\", "5", "2024-02-29", "t", "1.5", "/\\t"])),
        5 => format!("\"{}\"", rng.pick(&WORDS).replace('\\', "")),
        6 | 7 => {
            let items: Vec<String> = (0..rng.below(4)).map(|_| json(rng, depth - 1)).collect();
            format!("[{}]", items.join(", "))
        }
        _ => {
            let count = rng.below(5);
            let pair = |rng: &mut Rng| format!("\"{}\": {}", rng.pick(&JSON_KEYS), json(rng, depth - 1));
            format!("{{{}}}", (0..count).map(|_| pair(rng)).collect::<Vec<_>>().join(", "))
        }
    }
}

fn integer(rng: &mut Rng, low: i64, high: i64) -> String {
    match rng.below(20) {
        0 => low,
        1 => high,
        2 => 0,
        3 => rng.between(low / 4, high / 4),
        n if n < 12 => rng.between(-5, 20),
        _ => rng.between(-200, 1000),
    }
    .to_string()
}

fn float(rng: &mut Rng, extremes: &[&str]) -> String {
    match rng.below(20) {
        0 => "NaN".to_owned(),
        1 => "Infinity".to_owned(),
        2 => "-Infinity".to_owned(),
        3 => "-0".to_owned(),
        4 => (*rng.pick(extremes)).to_owned(),
        n if n < 12 => rng.between(-5, 20).to_string(),
        _ => format!("{}.{}", rng.between(-1000, 1000), rng.below(1000)),
    }
}

fn numeric(declared: &str, rng: &mut Rng) -> String {
    let digits = |rng: &mut Rng, count: usize| -> String {
        (0..count).map(|_| char::from(b'0' + rng.below(10) as u8)).collect()
    };
    match (declared, rng.below(20)) {
        (_, 0) => "NaN".to_owned(),
        ("numeric", 1) => "Infinity".to_owned(),
        ("numeric", 2) => "-Infinity".to_owned(),
        ("numeric", 3) => {
            let count = 20 + rng.below(60);
            format!("-1{}", digits(rng, count))
        }
        ("numeric", 4) => {
            let count = 10 + rng.below(30);
            format!("0.{}", digits(rng, count))
        }
        ("numeric", 5) => format!("{}.5000", rng.between(-9, 9)),
        ("numeric", 6) => format!("{}e{}", rng.between(-9, 9), rng.between(-20, 40)),
        ("numeric(40,12)", 1..=6) => {
            let (whole, fraction) = (digits(rng, 27), digits(rng, 12));
            format!("{}{whole}.{fraction}", if rng.chance(50) { "-" } else { "" })
        }
        ("numeric(20,4)", 1..=3) => format!("{}e{}", rng.between(-9, 9), rng.between(8, 15)),
        (_, n) if n < 12 => rng.between(-5, 20).to_string(),
        _ => format!("{}.{:02}", rng.between(-1000, 100_000), rng.below(100)),
    }
}

fn text(declared: &str, rng: &mut Rng) -> String {
    let word = |rng: &mut Rng| *rng.pick(&WORDS);
    match declared {
        "char(1)" => rng.pick(&["a", "b", "A", " ", "é", "%"]).to_string(),
        "char(12)" | "varchar(30)" => {
            let limit = if declared == "char(12)" { 12 } else { 30 };
            let text = format!("{}{}", word(rng), if rng.chance(30) { word(rng) } else { "" });
            text.chars().take(limit).collect()
        }
        _ => match rng.below(40) {
            // Long enough to be compressed within the row.
            0 => format!("{} pinto", word(rng).repeat(400 + rng.below(300))),
            // Long enough to be toasted: random letters that do not compress, or repeated ones that do.
            1 => (0..12_000).map(|_| char::from(b'!' + rng.below(90) as u8)).filter(|c| *c != '\\').collect(),
            2 => format!("{}{}", word(rng).repeat(6000), word(rng)),
            n if n < 20 => word(rng).to_owned(),
            _ => format!("{} {} {}", word(rng), word(rng), rng.below(100)),
        },
    }
}

fn date(rng: &mut Rng) -> String {
    match rng.below(25) {
        0 => "infinity".to_owned(),
        1 => "-infinity".to_owned(),
        2 => "0044-03-15 BC".to_owned(),
        3 => "9999-12-31".to_owned(),
        4 => "2000-02-29".to_owned(),
        n if n < 14 => format!("1995-03-{:02}", 1 + rng.below(28)),
        _ => format!("{}-{:02}-{:02}", 1960 + rng.below(90), 1 + rng.below(12), 1 + rng.below(28)),
    }
}

fn clock(rng: &mut Rng) -> String {
    let (hours, minutes, seconds) = (rng.below(24), rng.below(60), rng.below(60));
    let fraction = if rng.chance(40) { format!(".{:06}", rng.below(1_000_000)) } else { String::new() };
    format!("{hours:02}:{minutes:02}:{seconds:02}{fraction}")
}

fn timestamp(rng: &mut Rng) -> String {
    let date = date(rng);
    if date.ends_with("infinity") || date.ends_with("BC") { date } else { format!("{date} {}", clock(rng)) }
}

/// Returns the value as a quoted SQL literal.
pub fn quoted(value: &str) -> String {
    if value.contains('\\') {
        format!("E'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
    } else {
        format!("'{}'", value.replace('\'', "''"))
    }
}
