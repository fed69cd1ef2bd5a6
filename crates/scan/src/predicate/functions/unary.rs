//! Functions of one number that are evaluated over vectors. The functions of the table define their meaning.

use super::Function;
use crate::value::numeric::Rounding;
use crate::value::{Value, ValueKind};

/// The greatest magnitude of a scale that numerics are rounded to over vectors.
const ROUNDED_SCALE_MAX: i64 = 15;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unary {
    /// Also of a conversion that changes no value.
    Same,
    /// Of integers and numerics.
    Absolute,
    Negative,
    /// The inverted bits of an integer.
    Complement,
    /// Conversion to a narrower integer type.
    Narrow,
    /// Of numerics, to this scale.
    Round {
        rounding: Rounding,
        scale: i32,
    },
    FloatAbsolute,
    FloatNegative,
    FloatRound,
    FloatTruncate,
    FloatCeiling,
    FloatFloor,
    SquareRoot,
    /// float8 to float4.
    Single,
    IntegerToDouble,
    IntegerToSingle,
    NumericToDouble,
    FloatToInteger,
    NumericToInteger,
    /// The number by which floats are compared.
    FloatKey,
}

impl Unary {
    /// The function of its first argument that a call of `function` evaluates. `scale`: the constant second argument.
    pub fn of(function: &Function, scale: Option<&Value<'_>>) -> Option<Self> {
        let rounding = match function.name {
            "numeric_round" => Some(Rounding::HalfAwayFromZero),
            "numeric_trunc" => Some(Rounding::TowardZero),
            "numeric_ceil" => Some(Rounding::Up),
            "numeric_floor" => Some(Rounding::Down),
            _ => None,
        };
        if let Some(rounding) = rounding {
            let scale = match scale {
                Some(Value::Int(scale)) if scale.abs() <= ROUNDED_SCALE_MAX => *scale as i32,
                None if function.args.len() == 1 => 0,
                _ => return None,
            };
            return Some(Self::Round { rounding, scale });
        }
        if function.args.len() != 1 {
            return None;
        }
        Some(match function.name {
            "int2up" | "int4up" | "int8up" | "numeric_uplus" | "float4up" | "float8up" | "ftod" => Self::Same,
            "int2abs" | "int4abs" | "int8abs" | "numeric_abs" => Self::Absolute,
            "int2um" | "int4um" | "int8um" | "numeric_uminus" => Self::Negative,
            "int2not" | "int4not" | "int8not" => Self::Complement,
            "i4toi2" | "int82" | "int84" => Self::Narrow,
            "float4abs" | "float8abs" => Self::FloatAbsolute,
            "float4um" | "float8um" => Self::FloatNegative,
            "dround" => Self::FloatRound,
            "dtrunc" => Self::FloatTruncate,
            "dceil" => Self::FloatCeiling,
            "dfloor" => Self::FloatFloor,
            "dsqrt" => Self::SquareRoot,
            "dtof" => Self::Single,
            "i2tod" | "i4tod" | "i8tod" => Self::IntegerToDouble,
            "i2tof" | "i4tof" | "i8tof" => Self::IntegerToSingle,
            "numeric_float8" => Self::NumericToDouble,
            "dtoi2" | "dtoi4" | "dtoi8" | "ftoi2" | "ftoi4" | "ftoi8" => Self::FloatToInteger,
            "numeric_int2" | "numeric_int4" | "numeric_int8" => Self::NumericToInteger,
            _ => return None,
        })
    }

    /// The kind of the argument.
    pub fn argument_kind(function: &Function) -> Option<ValueKind> {
        ValueKind::of(*function.args.first()?)
    }
}
