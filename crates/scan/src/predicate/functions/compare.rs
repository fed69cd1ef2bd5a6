//! Comparison operators and btree support functions.
//!
//! Each works in a domain: a set of values with one total order. Types that are integers to the evaluator share one,
//! which makes the cross-type operators exact.

use super::super::value::{Value, float_key, without_trailing_blanks};
use super::{compares as compare_with, functions, three_way};
use std::cmp::Ordering;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    Int,
    Float,
    Numeric,
    /// Byte order; a shorter string precedes the longer one that it begins.
    Bytes,
    /// Byte order without trailing blanks: `bpchar`.
    Blanks,
    /// A date with a timestamp (without time zone).
    DateTimestamp,
    TimestampDate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    #[cfg(test)]
    pub const ALL: [Self; 6] =
        [Self::Equal, Self::NotEqual, Self::Less, Self::LessOrEqual, Self::Greater, Self::GreaterOrEqual];

    #[inline(always)]
    pub fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }

    /// True exactly where this one is false.
    pub fn negated(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
            Self::GreaterOrEqual => Self::Less,
        }
    }

    /// The same comparison with its sides exchanged.
    pub fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }
}

impl Domain {
    pub fn mirrored(self) -> Self {
        match self {
            Self::DateTimestamp => Self::TimestampDate,
            Self::TimestampDate => Self::DateTimestamp,
            same => same,
        }
    }
}

const USECS_PER_DAY: i64 = 86_400_000_000;
/// `TIMESTAMP_END_JULIAN - POSTGRES_EPOCH_JDATE`: the first date that no timestamp reaches.
pub const DATE_BEYOND_TIMESTAMP: i64 = 109_203_528 - 2_451_545;

/// `date_cmp_timestamp_internal`.
pub fn date_against_timestamp(date: i64, timestamp: i64) -> Ordering {
    if date == i32::MIN as i64 {
        return i64::MIN.cmp(&timestamp);
    }
    if date == i32::MAX as i64 {
        return i64::MAX.cmp(&timestamp);
    }
    if date >= DATE_BEYOND_TIMESTAMP {
        // Larger than any finite timestamp, less than infinity.
        return if timestamp == i64::MAX { Ordering::Less } else { Ordering::Greater };
    }
    // Only a corrupt page has a date that overflows here.
    date.saturating_mul(USECS_PER_DAY).cmp(&timestamp)
}

/// The order of two values; None when they are not of the domain, NULL included.
#[inline]
pub fn compare(domain: Domain, left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    Some(match (domain, left, right) {
        (Domain::Int, Value::Int(left), Value::Int(right)) => left.cmp(right),
        (Domain::Int, Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Domain::Float, Value::Float(left), Value::Float(right)) => float_key(*left).cmp(&float_key(*right)),
        (Domain::Numeric, Value::Numeric(left), Value::Numeric(right)) => left.compare(right),
        (Domain::Bytes, Value::Bytes(left), Value::Bytes(right)) => left.cmp(right),
        (Domain::Blanks, Value::Bytes(left), Value::Bytes(right)) => {
            without_trailing_blanks(left).cmp(without_trailing_blanks(right))
        }
        (Domain::DateTimestamp, Value::Int(date), Value::Int(timestamp)) => date_against_timestamp(*date, *timestamp),
        (Domain::TimestampDate, Value::Int(timestamp), Value::Int(date)) => {
            date_against_timestamp(*date, *timestamp).reverse()
        }
        _ => return None,
    })
}

use Comparison::*;
use Domain::*;

functions! {
    60 booleq (BOOL, BOOL) -> BOOL, Any, compare_with(Int, Equal);
    84 boolne (BOOL, BOOL) -> BOOL, Any, compare_with(Int, NotEqual);
    56 boollt (BOOL, BOOL) -> BOOL, Any, compare_with(Int, Less);
    1691 boolle (BOOL, BOOL) -> BOOL, Any, compare_with(Int, LessOrEqual);
    57 boolgt (BOOL, BOOL) -> BOOL, Any, compare_with(Int, Greater);
    1692 boolge (BOOL, BOOL) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    61 chareq (CHAR, CHAR) -> BOOL, Any, compare_with(Int, Equal);
    70 charne (CHAR, CHAR) -> BOOL, Any, compare_with(Int, NotEqual);
    1246 charlt (CHAR, CHAR) -> BOOL, Any, compare_with(Int, Less);
    72 charle (CHAR, CHAR) -> BOOL, Any, compare_with(Int, LessOrEqual);
    73 chargt (CHAR, CHAR) -> BOOL, Any, compare_with(Int, Greater);
    74 charge (CHAR, CHAR) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    63 int2eq (INT2, INT2) -> BOOL, Any, compare_with(Int, Equal);
    145 int2ne (INT2, INT2) -> BOOL, Any, compare_with(Int, NotEqual);
    64 int2lt (INT2, INT2) -> BOOL, Any, compare_with(Int, Less);
    148 int2le (INT2, INT2) -> BOOL, Any, compare_with(Int, LessOrEqual);
    146 int2gt (INT2, INT2) -> BOOL, Any, compare_with(Int, Greater);
    151 int2ge (INT2, INT2) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    65 int4eq (INT4, INT4) -> BOOL, Any, compare_with(Int, Equal);
    144 int4ne (INT4, INT4) -> BOOL, Any, compare_with(Int, NotEqual);
    66 int4lt (INT4, INT4) -> BOOL, Any, compare_with(Int, Less);
    149 int4le (INT4, INT4) -> BOOL, Any, compare_with(Int, LessOrEqual);
    147 int4gt (INT4, INT4) -> BOOL, Any, compare_with(Int, Greater);
    150 int4ge (INT4, INT4) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    467 int8eq (INT8, INT8) -> BOOL, Any, compare_with(Int, Equal);
    468 int8ne (INT8, INT8) -> BOOL, Any, compare_with(Int, NotEqual);
    469 int8lt (INT8, INT8) -> BOOL, Any, compare_with(Int, Less);
    471 int8le (INT8, INT8) -> BOOL, Any, compare_with(Int, LessOrEqual);
    470 int8gt (INT8, INT8) -> BOOL, Any, compare_with(Int, Greater);
    472 int8ge (INT8, INT8) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    158 int24eq (INT2, INT4) -> BOOL, Any, compare_with(Int, Equal);
    164 int24ne (INT2, INT4) -> BOOL, Any, compare_with(Int, NotEqual);
    160 int24lt (INT2, INT4) -> BOOL, Any, compare_with(Int, Less);
    166 int24le (INT2, INT4) -> BOOL, Any, compare_with(Int, LessOrEqual);
    162 int24gt (INT2, INT4) -> BOOL, Any, compare_with(Int, Greater);
    168 int24ge (INT2, INT4) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    1850 int28eq (INT2, INT8) -> BOOL, Any, compare_with(Int, Equal);
    1851 int28ne (INT2, INT8) -> BOOL, Any, compare_with(Int, NotEqual);
    1852 int28lt (INT2, INT8) -> BOOL, Any, compare_with(Int, Less);
    1854 int28le (INT2, INT8) -> BOOL, Any, compare_with(Int, LessOrEqual);
    1853 int28gt (INT2, INT8) -> BOOL, Any, compare_with(Int, Greater);
    1855 int28ge (INT2, INT8) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    159 int42eq (INT4, INT2) -> BOOL, Any, compare_with(Int, Equal);
    165 int42ne (INT4, INT2) -> BOOL, Any, compare_with(Int, NotEqual);
    161 int42lt (INT4, INT2) -> BOOL, Any, compare_with(Int, Less);
    167 int42le (INT4, INT2) -> BOOL, Any, compare_with(Int, LessOrEqual);
    163 int42gt (INT4, INT2) -> BOOL, Any, compare_with(Int, Greater);
    169 int42ge (INT4, INT2) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    852 int48eq (INT4, INT8) -> BOOL, Any, compare_with(Int, Equal);
    853 int48ne (INT4, INT8) -> BOOL, Any, compare_with(Int, NotEqual);
    854 int48lt (INT4, INT8) -> BOOL, Any, compare_with(Int, Less);
    856 int48le (INT4, INT8) -> BOOL, Any, compare_with(Int, LessOrEqual);
    855 int48gt (INT4, INT8) -> BOOL, Any, compare_with(Int, Greater);
    857 int48ge (INT4, INT8) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    1856 int82eq (INT8, INT2) -> BOOL, Any, compare_with(Int, Equal);
    1857 int82ne (INT8, INT2) -> BOOL, Any, compare_with(Int, NotEqual);
    1858 int82lt (INT8, INT2) -> BOOL, Any, compare_with(Int, Less);
    1860 int82le (INT8, INT2) -> BOOL, Any, compare_with(Int, LessOrEqual);
    1859 int82gt (INT8, INT2) -> BOOL, Any, compare_with(Int, Greater);
    1861 int82ge (INT8, INT2) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    474 int84eq (INT8, INT4) -> BOOL, Any, compare_with(Int, Equal);
    475 int84ne (INT8, INT4) -> BOOL, Any, compare_with(Int, NotEqual);
    476 int84lt (INT8, INT4) -> BOOL, Any, compare_with(Int, Less);
    478 int84le (INT8, INT4) -> BOOL, Any, compare_with(Int, LessOrEqual);
    477 int84gt (INT8, INT4) -> BOOL, Any, compare_with(Int, Greater);
    479 int84ge (INT8, INT4) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    184 oideq (OID, OID) -> BOOL, Any, compare_with(Int, Equal);
    185 oidne (OID, OID) -> BOOL, Any, compare_with(Int, NotEqual);
    716 oidlt (OID, OID) -> BOOL, Any, compare_with(Int, Less);
    717 oidle (OID, OID) -> BOOL, Any, compare_with(Int, LessOrEqual);
    1638 oidgt (OID, OID) -> BOOL, Any, compare_with(Int, Greater);
    1639 oidge (OID, OID) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    1086 date_eq (DATE, DATE) -> BOOL, Any, compare_with(Int, Equal);
    1091 date_ne (DATE, DATE) -> BOOL, Any, compare_with(Int, NotEqual);
    1087 date_lt (DATE, DATE) -> BOOL, Any, compare_with(Int, Less);
    1088 date_le (DATE, DATE) -> BOOL, Any, compare_with(Int, LessOrEqual);
    1089 date_gt (DATE, DATE) -> BOOL, Any, compare_with(Int, Greater);
    1090 date_ge (DATE, DATE) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    1145 time_eq (TIME, TIME) -> BOOL, Any, compare_with(Int, Equal);
    1106 time_ne (TIME, TIME) -> BOOL, Any, compare_with(Int, NotEqual);
    1102 time_lt (TIME, TIME) -> BOOL, Any, compare_with(Int, Less);
    1103 time_le (TIME, TIME) -> BOOL, Any, compare_with(Int, LessOrEqual);
    1104 time_gt (TIME, TIME) -> BOOL, Any, compare_with(Int, Greater);
    1105 time_ge (TIME, TIME) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    1152 timestamp_eq (TIMESTAMPTZ, TIMESTAMPTZ) -> BOOL, Any, compare_with(Int, Equal);
    2052 timestamp_eq (TIMESTAMP, TIMESTAMP) -> BOOL, Any, compare_with(Int, Equal);
    1153 timestamp_ne (TIMESTAMPTZ, TIMESTAMPTZ) -> BOOL, Any, compare_with(Int, NotEqual);
    2053 timestamp_ne (TIMESTAMP, TIMESTAMP) -> BOOL, Any, compare_with(Int, NotEqual);
    1154 timestamp_lt (TIMESTAMPTZ, TIMESTAMPTZ) -> BOOL, Any, compare_with(Int, Less);
    2054 timestamp_lt (TIMESTAMP, TIMESTAMP) -> BOOL, Any, compare_with(Int, Less);
    1155 timestamp_le (TIMESTAMPTZ, TIMESTAMPTZ) -> BOOL, Any, compare_with(Int, LessOrEqual);
    2055 timestamp_le (TIMESTAMP, TIMESTAMP) -> BOOL, Any, compare_with(Int, LessOrEqual);
    1157 timestamp_gt (TIMESTAMPTZ, TIMESTAMPTZ) -> BOOL, Any, compare_with(Int, Greater);
    2057 timestamp_gt (TIMESTAMP, TIMESTAMP) -> BOOL, Any, compare_with(Int, Greater);
    1156 timestamp_ge (TIMESTAMPTZ, TIMESTAMPTZ) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    2056 timestamp_ge (TIMESTAMP, TIMESTAMP) -> BOOL, Any, compare_with(Int, GreaterOrEqual);
    287 float4eq (FLOAT4, FLOAT4) -> BOOL, Any, compare_with(Float, Equal);
    288 float4ne (FLOAT4, FLOAT4) -> BOOL, Any, compare_with(Float, NotEqual);
    289 float4lt (FLOAT4, FLOAT4) -> BOOL, Any, compare_with(Float, Less);
    290 float4le (FLOAT4, FLOAT4) -> BOOL, Any, compare_with(Float, LessOrEqual);
    291 float4gt (FLOAT4, FLOAT4) -> BOOL, Any, compare_with(Float, Greater);
    292 float4ge (FLOAT4, FLOAT4) -> BOOL, Any, compare_with(Float, GreaterOrEqual);
    293 float8eq (FLOAT8, FLOAT8) -> BOOL, Any, compare_with(Float, Equal);
    294 float8ne (FLOAT8, FLOAT8) -> BOOL, Any, compare_with(Float, NotEqual);
    295 float8lt (FLOAT8, FLOAT8) -> BOOL, Any, compare_with(Float, Less);
    296 float8le (FLOAT8, FLOAT8) -> BOOL, Any, compare_with(Float, LessOrEqual);
    297 float8gt (FLOAT8, FLOAT8) -> BOOL, Any, compare_with(Float, Greater);
    298 float8ge (FLOAT8, FLOAT8) -> BOOL, Any, compare_with(Float, GreaterOrEqual);
    299 float48eq (FLOAT4, FLOAT8) -> BOOL, Any, compare_with(Float, Equal);
    300 float48ne (FLOAT4, FLOAT8) -> BOOL, Any, compare_with(Float, NotEqual);
    301 float48lt (FLOAT4, FLOAT8) -> BOOL, Any, compare_with(Float, Less);
    302 float48le (FLOAT4, FLOAT8) -> BOOL, Any, compare_with(Float, LessOrEqual);
    303 float48gt (FLOAT4, FLOAT8) -> BOOL, Any, compare_with(Float, Greater);
    304 float48ge (FLOAT4, FLOAT8) -> BOOL, Any, compare_with(Float, GreaterOrEqual);
    305 float84eq (FLOAT8, FLOAT4) -> BOOL, Any, compare_with(Float, Equal);
    306 float84ne (FLOAT8, FLOAT4) -> BOOL, Any, compare_with(Float, NotEqual);
    307 float84lt (FLOAT8, FLOAT4) -> BOOL, Any, compare_with(Float, Less);
    308 float84le (FLOAT8, FLOAT4) -> BOOL, Any, compare_with(Float, LessOrEqual);
    309 float84gt (FLOAT8, FLOAT4) -> BOOL, Any, compare_with(Float, Greater);
    310 float84ge (FLOAT8, FLOAT4) -> BOOL, Any, compare_with(Float, GreaterOrEqual);
    1718 numeric_eq (NUMERIC, NUMERIC) -> BOOL, Any, compare_with(Numeric, Equal);
    1719 numeric_ne (NUMERIC, NUMERIC) -> BOOL, Any, compare_with(Numeric, NotEqual);
    1722 numeric_lt (NUMERIC, NUMERIC) -> BOOL, Any, compare_with(Numeric, Less);
    1723 numeric_le (NUMERIC, NUMERIC) -> BOOL, Any, compare_with(Numeric, LessOrEqual);
    1720 numeric_gt (NUMERIC, NUMERIC) -> BOOL, Any, compare_with(Numeric, Greater);
    1721 numeric_ge (NUMERIC, NUMERIC) -> BOOL, Any, compare_with(Numeric, GreaterOrEqual);
    2956 uuid_eq (UUID, UUID) -> BOOL, Any, compare_with(Bytes, Equal);
    2959 uuid_ne (UUID, UUID) -> BOOL, Any, compare_with(Bytes, NotEqual);
    2954 uuid_lt (UUID, UUID) -> BOOL, Any, compare_with(Bytes, Less);
    2955 uuid_le (UUID, UUID) -> BOOL, Any, compare_with(Bytes, LessOrEqual);
    2958 uuid_gt (UUID, UUID) -> BOOL, Any, compare_with(Bytes, Greater);
    2957 uuid_ge (UUID, UUID) -> BOOL, Any, compare_with(Bytes, GreaterOrEqual);
    1948 byteaeq (BYTEA, BYTEA) -> BOOL, Any, compare_with(Bytes, Equal);
    1953 byteane (BYTEA, BYTEA) -> BOOL, Any, compare_with(Bytes, NotEqual);
    1949 bytealt (BYTEA, BYTEA) -> BOOL, Any, compare_with(Bytes, Less);
    1950 byteale (BYTEA, BYTEA) -> BOOL, Any, compare_with(Bytes, LessOrEqual);
    1951 byteagt (BYTEA, BYTEA) -> BOOL, Any, compare_with(Bytes, Greater);
    1952 byteage (BYTEA, BYTEA) -> BOOL, Any, compare_with(Bytes, GreaterOrEqual);
    1693 btboolcmp (BOOL, BOOL) -> INT4, Any, three_way(Int);
    351 btint4cmp (INT4, INT4) -> INT4, Any, three_way(Int);
    842 btint8cmp (INT8, INT8) -> INT4, Any, three_way(Int);
    2190 btint24cmp (INT2, INT4) -> INT4, Any, three_way(Int);
    2192 btint28cmp (INT2, INT8) -> INT4, Any, three_way(Int);
    2191 btint42cmp (INT4, INT2) -> INT4, Any, three_way(Int);
    2188 btint48cmp (INT4, INT8) -> INT4, Any, three_way(Int);
    2193 btint82cmp (INT8, INT2) -> INT4, Any, three_way(Int);
    2189 btint84cmp (INT8, INT4) -> INT4, Any, three_way(Int);
    356 btoidcmp (OID, OID) -> INT4, Any, three_way(Int);
    1092 date_cmp (DATE, DATE) -> INT4, Any, three_way(Int);
    1107 time_cmp (TIME, TIME) -> INT4, Any, three_way(Int);
    1314 timestamp_cmp (TIMESTAMPTZ, TIMESTAMPTZ) -> INT4, Any, three_way(Int);
    2045 timestamp_cmp (TIMESTAMP, TIMESTAMP) -> INT4, Any, three_way(Int);
    354 btfloat4cmp (FLOAT4, FLOAT4) -> INT4, Any, three_way(Float);
    355 btfloat8cmp (FLOAT8, FLOAT8) -> INT4, Any, three_way(Float);
    2194 btfloat48cmp (FLOAT4, FLOAT8) -> INT4, Any, three_way(Float);
    2195 btfloat84cmp (FLOAT8, FLOAT4) -> INT4, Any, three_way(Float);
    1769 numeric_cmp (NUMERIC, NUMERIC) -> INT4, Any, three_way(Numeric);
    2340 date_eq_timestamp (DATE, TIMESTAMP) -> BOOL, Any, compare_with(DateTimestamp, Equal);
    2366 timestamp_eq_date (TIMESTAMP, DATE) -> BOOL, Any, compare_with(TimestampDate, Equal);
    2343 date_ne_timestamp (DATE, TIMESTAMP) -> BOOL, Any, compare_with(DateTimestamp, NotEqual);
    2369 timestamp_ne_date (TIMESTAMP, DATE) -> BOOL, Any, compare_with(TimestampDate, NotEqual);
    2338 date_lt_timestamp (DATE, TIMESTAMP) -> BOOL, Any, compare_with(DateTimestamp, Less);
    2364 timestamp_lt_date (TIMESTAMP, DATE) -> BOOL, Any, compare_with(TimestampDate, Less);
    2339 date_le_timestamp (DATE, TIMESTAMP) -> BOOL, Any, compare_with(DateTimestamp, LessOrEqual);
    2365 timestamp_le_date (TIMESTAMP, DATE) -> BOOL, Any, compare_with(TimestampDate, LessOrEqual);
    2341 date_gt_timestamp (DATE, TIMESTAMP) -> BOOL, Any, compare_with(DateTimestamp, Greater);
    2367 timestamp_gt_date (TIMESTAMP, DATE) -> BOOL, Any, compare_with(TimestampDate, Greater);
    2342 date_ge_timestamp (DATE, TIMESTAMP) -> BOOL, Any, compare_with(DateTimestamp, GreaterOrEqual);
    2368 timestamp_ge_date (TIMESTAMP, DATE) -> BOOL, Any, compare_with(TimestampDate, GreaterOrEqual);
    2344 date_cmp_timestamp (DATE, TIMESTAMP) -> INT4, Any, three_way(DateTimestamp);
    2370 timestamp_cmp_date (TIMESTAMP, DATE) -> INT4, Any, three_way(TimestampDate);
    67 texteq (TEXT, TEXT) -> BOOL, Deterministic, compare_with(Bytes, Equal);
    1048 bpchareq (BPCHAR, BPCHAR) -> BOOL, Deterministic, compare_with(Blanks, Equal);
    62 nameeq (NAME, NAME) -> BOOL, Deterministic, compare_with(Bytes, Equal);
    240 nameeqtext (NAME, TEXT) -> BOOL, Deterministic, compare_with(Bytes, Equal);
    247 texteqname (TEXT, NAME) -> BOOL, Deterministic, compare_with(Bytes, Equal);
    157 textne (TEXT, TEXT) -> BOOL, Deterministic, compare_with(Bytes, NotEqual);
    1053 bpcharne (BPCHAR, BPCHAR) -> BOOL, Deterministic, compare_with(Blanks, NotEqual);
    659 namene (NAME, NAME) -> BOOL, Deterministic, compare_with(Bytes, NotEqual);
    245 namenetext (NAME, TEXT) -> BOOL, Deterministic, compare_with(Bytes, NotEqual);
    252 textnename (TEXT, NAME) -> BOOL, Deterministic, compare_with(Bytes, NotEqual);
    740 text_lt (TEXT, TEXT) -> BOOL, Bytewise, compare_with(Bytes, Less);
    1049 bpcharlt (BPCHAR, BPCHAR) -> BOOL, Bytewise, compare_with(Blanks, Less);
    655 namelt (NAME, NAME) -> BOOL, Bytewise, compare_with(Bytes, Less);
    241 namelttext (NAME, TEXT) -> BOOL, Bytewise, compare_with(Bytes, Less);
    248 textltname (TEXT, NAME) -> BOOL, Bytewise, compare_with(Bytes, Less);
    2160 text_pattern_lt (TEXT, TEXT) -> BOOL, Deterministic, compare_with(Bytes, Less);
    2174 bpchar_pattern_lt (BPCHAR, BPCHAR) -> BOOL, Deterministic, compare_with(Blanks, Less);
    741 text_le (TEXT, TEXT) -> BOOL, Bytewise, compare_with(Bytes, LessOrEqual);
    1050 bpcharle (BPCHAR, BPCHAR) -> BOOL, Bytewise, compare_with(Blanks, LessOrEqual);
    656 namele (NAME, NAME) -> BOOL, Bytewise, compare_with(Bytes, LessOrEqual);
    242 nameletext (NAME, TEXT) -> BOOL, Bytewise, compare_with(Bytes, LessOrEqual);
    249 textlename (TEXT, NAME) -> BOOL, Bytewise, compare_with(Bytes, LessOrEqual);
    2161 text_pattern_le (TEXT, TEXT) -> BOOL, Deterministic, compare_with(Bytes, LessOrEqual);
    2175 bpchar_pattern_le (BPCHAR, BPCHAR) -> BOOL, Deterministic, compare_with(Blanks, LessOrEqual);
    742 text_gt (TEXT, TEXT) -> BOOL, Bytewise, compare_with(Bytes, Greater);
    1051 bpchargt (BPCHAR, BPCHAR) -> BOOL, Bytewise, compare_with(Blanks, Greater);
    657 namegt (NAME, NAME) -> BOOL, Bytewise, compare_with(Bytes, Greater);
    244 namegttext (NAME, TEXT) -> BOOL, Bytewise, compare_with(Bytes, Greater);
    251 textgtname (TEXT, NAME) -> BOOL, Bytewise, compare_with(Bytes, Greater);
    2164 text_pattern_gt (TEXT, TEXT) -> BOOL, Deterministic, compare_with(Bytes, Greater);
    2178 bpchar_pattern_gt (BPCHAR, BPCHAR) -> BOOL, Deterministic, compare_with(Blanks, Greater);
    743 text_ge (TEXT, TEXT) -> BOOL, Bytewise, compare_with(Bytes, GreaterOrEqual);
    1052 bpcharge (BPCHAR, BPCHAR) -> BOOL, Bytewise, compare_with(Blanks, GreaterOrEqual);
    658 namege (NAME, NAME) -> BOOL, Bytewise, compare_with(Bytes, GreaterOrEqual);
    243 namegetext (NAME, TEXT) -> BOOL, Bytewise, compare_with(Bytes, GreaterOrEqual);
    250 textgename (TEXT, NAME) -> BOOL, Bytewise, compare_with(Bytes, GreaterOrEqual);
    2163 text_pattern_ge (TEXT, TEXT) -> BOOL, Deterministic, compare_with(Bytes, GreaterOrEqual);
    2177 bpchar_pattern_ge (BPCHAR, BPCHAR) -> BOOL, Deterministic, compare_with(Blanks, GreaterOrEqual);
}
