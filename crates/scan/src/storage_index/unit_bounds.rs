//! Bounds of a column in a chunk of a compression unit, from the unit's directory.
//!
//! Invariant: all values of the chunk are within the bounds in PostgreSQL's order of their type.

use crate::bounds::{Bounds, Prefix};
use crate::unit::{self, AttributeChunk};
use crate::value::{Numeric, float_key, without_trailing_blanks};
use cellar_format::postgres::{Oid, type_oid};

/// The bounds of numerics with a greater scale are unknown.
const SCALE_MAX: u8 = 6;

/// The bounds of an attribute of type `oid`. Unknown if some values are exceptions, which the directory has no bounds
/// for.
pub fn unit_bounds(entry: &AttributeChunk, oid: Oid) -> Bounds {
    if entry.exceptions() > 0 {
        return Bounds::Unknown;
    }
    match (entry.bounds(), oid) {
        (unit::Bounds::Number { min, max }, type_oid::FLOAT4) => floats(float4(min), float4(max)),
        (unit::Bounds::Number { min, max }, type_oid::FLOAT8) => floats(float8(min), float8(max)),
        (unit::Bounds::Number { min, max }, type_oid::BOOL) => {
            Bounds::Int { min: i64::from(min != 0), max: i64::from(max != 0) }
        }
        (unit::Bounds::Number { min, max }, _) => Bounds::Int { min, max },
        (unit::Bounds::Numeric { min, max, scale }, type_oid::NUMERIC) if scale <= SCALE_MAX => {
            let number = |value| Numeric::from_decimal(value, scale as u32);
            Bounds::Numeric(Box::new((number(min), number(max))))
        }
        (unit::Bounds::Bytes { min, max, .. }, type_oid::TEXT | type_oid::VARCHAR | type_oid::BYTEA) => {
            Bounds::Bytes { min: Prefix::new(&min), max: Prefix::new(&max) }
        }
        (unit::Bounds::Bytes { min, max, .. }, type_oid::BPCHAR) => blank_padded(&min, &max),
        _ => Bounds::Unknown,
    }
}

/// The float4 that a unit stores as `key`.
fn float4(key: i64) -> f64 {
    let key = key as i32;
    f64::from(f32::from_bits((key ^ ((key >> 31) as u32 >> 1) as i32) as u32))
}

/// The float8 that a unit stores as `key`.
fn float8(key: i64) -> f64 {
    f64::from_bits((key ^ ((key >> 63) as u64 >> 1) as i64) as u64)
}

/// A unit orders floats by their bits, so a NaN with a sign is its least value; in PostgreSQL all NaNs are greatest.
fn floats(min: f64, max: f64) -> Bounds {
    match min.is_nan() {
        true => Bounds::Int { min: float_key(f64::NEG_INFINITY), max: float_key(f64::NAN) },
        false => Bounds::Int { min: float_key(min), max: float_key(max) },
    }
}

/// A unit orders `bpchar` values with their trailing blanks. Trimming never makes a string greater, so the maximum
/// stays a bound. The trimmed minimum is a bound unless it contains a control character, which sorts before a blank.
fn blank_padded(min: &[u8], max: &[u8]) -> Bounds {
    let least = without_trailing_blanks(min);
    let least = if least.iter().all(|byte| *byte >= b' ') { least } else { &[] };
    Bounds::Bytes { min: Prefix::new(least), max: Prefix::new(max) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_between_two_keys_is_within_their_bounds() {
        let bits = |value: f64| value.to_bits() as i64;
        let unit_key = |value: f64| bits(value) ^ ((bits(value) >> 63) as u64 >> 1) as i64;
        let small = |value: f64| {
            let bits = (value as f32).to_bits() as i32;
            i64::from(bits ^ ((bits >> 31) as u32 >> 1) as i32)
        };
        let mut values = vec![-f64::NAN, f64::NAN, f64::NEG_INFINITY, f64::INFINITY, 0.0, -0.0];
        values.extend([1.5, -1.5, 1e-30, -1e-30, 1e30, -1e30, 0.1]);
        for (index, low) in values.iter().enumerate() {
            assert_eq!(float8(unit_key(*low)).to_bits(), low.to_bits());
            for high in &values[index..] {
                for (key, float) in
                    [(&unit_key as &dyn Fn(f64) -> i64, &float8 as &dyn Fn(i64) -> f64), (&small, &float4)]
                {
                    let (min, max) = (key(*low).min(key(*high)), key(*low).max(key(*high)));
                    let Bounds::Int { min: least, max: greatest } = floats(float(min), float(max)) else { panic!() };
                    for value in values.iter().filter(|value| (min..=max).contains(&key(**value))) {
                        let key = float_key(float(key(*value)));
                        assert!((least..=greatest).contains(&key), "{value} between {low} and {high}");
                    }
                }
            }
        }
        let narrow = floats(-0.0, 1.5);
        assert_eq!(narrow, Bounds::Int { min: float_key(0.0), max: float_key(1.5) });
    }

    #[test]
    fn trimmed_strings_are_within_the_bounds_of_padded_strings() {
        let all = [&b""[..], b" ", b"a", b"a ", b"a  ", b"a\x01", b"a \x01", b"ab", b"a b", b"b ", b"\x01 ", b"a\x01 "];
        let mut sorted = all.to_vec();
        sorted.sort_unstable();
        for (index, low) in sorted.iter().enumerate() {
            for (more, high) in sorted[index..].iter().enumerate() {
                let Bounds::Bytes { min, max } = blank_padded(low, high) else { panic!() };
                for value in sorted[index..=index + more].iter().map(|value| without_trailing_blanks(value)) {
                    assert!(!min.is_above(value) && !max.is_below(value), "{value:?} between {low:?} and {high:?}");
                }
            }
        }
        let Bounds::Bytes { min, max } = blank_padded(b"MAIL  ", b"RAIL  ") else { panic!() };
        assert!(min.is_above(b"AIR") && max.is_below(b"SHIP"));
    }
}
