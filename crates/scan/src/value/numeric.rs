//! PostgreSQL's `numeric`: decoding, exact comparison, and arithmetic on values that are not too long.
//!
//! Invariant: a finite value has neither leading nor trailing zero digits, and zero has no digits. Equal values
//! therefore differ at most in `scale`, the display scale, which determines the digits of a quotient and the text of a
//! value. Source: `utils/adt/numeric.c`.

use crate::heap::u16_at;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// Digits are base 10000.
pub const BASE: i64 = 10_000;
/// Results with more digits are left to PostgreSQL, whose own limits are far higher.
const RESULT_DIGITS_MAX: usize = 2000;
const DSCALE_MAX: i32 = 0x3fff;
/// Decimals of the i64 key of a numeric: two base-10000 digits.
pub const KEY_SCALE: u32 = 8;

pub type Digits = SmallVec<[i16; 16]>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    NegativeInfinity,
    Finite,
    PositiveInfinity,
    /// Equal to itself and greater than everything else.
    NaN,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numeric {
    pub class: Class,
    pub negative: bool,
    /// The first digit is multiplied by `BASE^weight`.
    pub weight: i32,
    /// Decimal digits displayed after the point.
    pub scale: i32,
    pub digits: Digits,
}

/// The parts of a finite numeric: sign (true: negative), weight, display scale, and the bytes of the digits.
#[inline(always)]
fn parts(payload: &[u8]) -> Option<(bool, i32, i32, &[u8])> {
    let header = u16_at(payload.get(..2)?, 0);
    match header & 0xc000 {
        0x8000 => {
            let low = (header & 0x003f) as i32;
            let weight = if header & 0x0040 != 0 { low - 64 } else { low };
            Some((header & 0x2000 != 0, weight, ((header & 0x1f80) >> 7) as i32, &payload[2..]))
        }
        0xc000 => None,
        sign => {
            let weight = u16_at(payload.get(2..4)?, 0) as i16;
            Some((sign == 0x4000, weight as i32, (header & 0x3fff) as i32, &payload[4..]))
        }
    }
}

/// Returns the display scale of a finite value.
#[inline(always)]
pub fn display_scale(payload: &[u8]) -> Option<u16> {
    parts(payload).map(|(_, _, scale, _)| scale as u16)
}

/// Returns the key of a value: the value times 10^8. None: the value is not finite, has more than two base-10000 digits
/// before the point, or is not an integer after the multiplication.
#[inline(always)]
pub fn key(payload: &[u8]) -> Option<i64> {
    scaled(payload, KEY_SCALE / 4)
}

/// Returns the value times `BASE^fraction_digits`. None: the value is not finite, or the product is not an integer of at
/// most four base-10000 digits.
#[inline(always)]
pub fn scaled(payload: &[u8], fraction_digits: u32) -> Option<i64> {
    let (negative, weight, _, digits) = parts(payload)?;
    let count = digits.len() / 2;
    // Digit i stands for BASE^(weight - i), and `last - i` must lie in 0..=3.
    if count == 0 {
        return Some(0);
    }
    let last = weight + fraction_digits as i32;
    if last > 3 || last < count as i32 - 1 {
        return None;
    }
    let mut value = 0i64;
    for digit in digits.chunks_exact(2) {
        value = value * BASE + u16_at(digit, 0) as i64;
    }
    // At most four digits: below 2^16 * (BASE^4 - 1) / (BASE - 1), no overflow even for digits out of range.
    const POWERS: [i64; 5] = [1, BASE, BASE * BASE, BASE * BASE * BASE, BASE * BASE * BASE * BASE];
    let trailing = last + 1 - count as i32;
    let value = value.wrapping_mul(POWERS[trailing.clamp(0, 4) as usize]);
    Some(if negative { -value } else { value })
}

/// Returns the value times `10^decimals`. None: the value is not finite, or the product is not an integer or too large, as
/// in [`scaled`].
#[inline(always)]
pub fn scaled_by_ten(payload: &[u8], decimals: u32) -> Option<i64> {
    without_zeroes(scaled(payload, decimals.div_ceil(4))?, decimals)
}

/// Converts a number of units of `BASE^-n` to units of `10^-decimals`, where `n` is `decimals / 4` rounded up. None:
/// the result is not an integer.
#[inline(always)]
fn without_zeroes(value: i64, decimals: u32) -> Option<i64> {
    // Constant divisors let the compiler avoid division instructions.
    let (quotient, remainder) = match decimals % 4 {
        0 => (value, 0),
        1 => (value / 1000, value % 1000),
        2 => (value / 100, value % 100),
        _ => (value / 10, value % 10),
    };
    (remainder == 0).then_some(quotient)
}

/// The direction in which [`Numeric::rounded`] rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    HalfAwayFromZero,
    TowardZero,
    Up,
    Down,
}

/// The greatest scale, and minus the least scale, of [`Numeric::rounded`].
const ROUNDED_SCALE_MAX: i32 = 20;

/// The base-10000 digits of a number, most significant first; none for 0.
pub fn digits_of(mut magnitude: u128) -> Digits {
    // Divisions of 128 bits are slow, so each of them splits off four digits.
    const FOUR_DIGITS: u128 = (BASE as u128).pow(4);
    let mut digits = Digits::new();
    while magnitude > u64::MAX as u128 {
        let quotient = magnitude / FOUR_DIGITS;
        let mut four = (magnitude - quotient * FOUR_DIGITS) as u64;
        for _ in 0..4 {
            digits.push((four % BASE as u64) as i16);
            four /= BASE as u64;
        }
        magnitude = quotient;
    }
    let mut rest = magnitude as u64;
    while rest > 0 {
        digits.push((rest % BASE as u64) as i16);
        rest /= BASE as u64;
    }
    digits.reverse();
    digits
}

/// The quotient and the remainder. Avoids a slow division if both numbers have 64 bits.
#[inline(always)]
fn divided(dividend: u128, divisor: u128) -> (u128, u128) {
    match (u64::try_from(dividend), u64::try_from(divisor)) {
        (Ok(dividend), Ok(divisor)) => ((dividend / divisor).into(), (dividend % divisor).into()),
        _ => {
            let quotient = dividend / divisor;
            (quotient, dividend - quotient * divisor)
        }
    }
}

impl Numeric {
    pub fn zero() -> Self {
        Self { class: Class::Finite, negative: false, weight: 0, scale: 0, digits: Digits::new() }
    }

    pub fn special(class: Class) -> Self {
        Self { class, ..Self::zero() }
    }

    /// Decodes the payload of a datum. None: not a numeric.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let Some((negative, weight, scale, bytes)) = parts(payload) else {
            let class = match u16_at(payload.get(..2)?, 0) & 0xf000 {
                0xc000 => Class::NaN,
                0xd000 => Class::PositiveInfinity,
                0xf000 => Class::NegativeInfinity,
                _ => return None,
            };
            return Some(Self::special(class));
        };
        if !bytes.len().is_multiple_of(2) {
            return None;
        }
        let mut digits = Digits::with_capacity(bytes.len() / 2);
        for digit in bytes.chunks_exact(2) {
            let digit = u16_at(digit, 0);
            if digit as i64 >= BASE {
                return None;
            }
            digits.push(digit as i16);
        }
        Some(Self { class: Class::Finite, negative, weight, scale, digits }.normalised())
    }

    fn normalised(mut self) -> Self {
        if self.digits.first() == Some(&0) {
            let leading = self.digits.iter().take_while(|digit| **digit == 0).count();
            self.digits.drain(..leading);
            self.weight -= leading as i32;
        }
        while self.digits.last() == Some(&0) {
            self.digits.pop();
        }
        if self.digits.is_empty() {
            self.negative = false;
            self.weight = 0;
        }
        self
    }

    /// Returns the value with this [`key`]. Its display scale is 0, so use the value only for comparisons.
    pub fn from_key(key: i64) -> Self {
        Self::from_scaled(key as i128, KEY_SCALE as i32 / 4)
    }

    pub fn from_i64(value: i64) -> Self {
        Self::from_scaled(value as i128, 0)
    }

    /// Returns `value * BASE^-fraction_digits`, with display scale 0.
    pub fn from_scaled(value: i128, fraction_digits: i32) -> Self {
        let digits = digits_of(value.unsigned_abs());
        let weight = digits.len() as i32 - 1 - fraction_digits;
        Self { class: Class::Finite, negative: value < 0, weight, scale: 0, digits }.normalised()
    }

    /// Returns `value * 10^-decimals`, exactly; `decimals` is at most 8.
    pub fn from_decimal(value: i64, decimals: u32) -> Self {
        let fraction_digits = decimals.div_ceil(4);
        let factor = 10i128.pow(fraction_digits * 4 - decimals);
        let mut result = Self::from_scaled(value as i128 * factor, fraction_digits as i32);
        result.scale = decimals as i32;
        result
    }

    /// Parses decimal or scientific notation, as `float8_numeric` prints it.
    pub fn parse(text: &str) -> Option<Self> {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let exponent: i32 = exponent.parse().ok()?;
        let (negative, mantissa) = match mantissa.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, mantissa),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut decimal: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|byte| byte.wrapping_sub(b'0')).collect();
        if decimal.iter().any(|digit| *digit > 9) {
            return None;
        }
        // The decimal digit i stands for 10^(point - 1 - i); pad so that whole base-10000 digits result.
        let point = whole.len() as i32 + exponent;
        let lead = (4 - point.rem_euclid(4)) % 4;
        decimal.splice(0..0, std::iter::repeat_n(0, lead as usize));
        while !decimal.len().is_multiple_of(4) {
            decimal.push(0);
        }
        let digits =
            decimal.chunks_exact(4).map(|d| d.iter().fold(0i16, |all, digit| all * 10 + *digit as i16)).collect();
        let weight = (point + lead) / 4 - 1;
        let scale = (fraction.len() as i32 - exponent).max(0);
        Some(Self { class: Class::Finite, negative, weight, scale, digits }.normalised())
    }

    /// Returns the [`key`] of a decoded value.
    pub fn key(&self) -> Option<i64> {
        self.scaled(KEY_SCALE / 4)
    }

    /// Returns [`scaled`] of a decoded value.
    pub fn scaled(&self, fraction_digits: u32) -> Option<i64> {
        if self.class != Class::Finite {
            return None;
        }
        let count = self.digits.len() as i32;
        if count == 0 {
            return Some(0);
        }
        let last = self.weight + fraction_digits as i32;
        if last > 3 || last < count - 1 {
            return None;
        }
        let value = self.digits.iter().fold(0i64, |all, digit| all * BASE + *digit as i64);
        let value = value * BASE.pow((last + 1 - count) as u32);
        Some(if self.negative { -value } else { value })
    }

    /// Returns [`scaled_by_ten`] of a decoded value.
    pub fn scaled_by_ten(&self, decimals: u32) -> Option<i64> {
        without_zeroes(self.scaled(decimals.div_ceil(4))?, decimals)
    }

    /// Compares two values in the order of `numeric_cmp`.
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self.class, other.class) {
            (Class::Finite, Class::Finite) => {}
            (left, right) => return (left as u8).cmp(&(right as u8)),
        }
        match (self.sign(), other.sign()) {
            (left, right) if left != right => left.cmp(&right),
            (0, _) => Ordering::Equal,
            (1, _) => self.compare_magnitude(other),
            _ => other.compare_magnitude(self),
        }
    }

    fn sign(&self) -> i32 {
        match (self.digits.is_empty(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    fn compare_magnitude(&self, other: &Self) -> Ordering {
        self.weight.cmp(&other.weight).then_with(|| self.digits.as_slice().cmp(other.digits.as_slice()))
    }

    pub fn negate(mut self) -> Self {
        match self.class {
            Class::NegativeInfinity => self.class = Class::PositiveInfinity,
            Class::PositiveInfinity => self.class = Class::NegativeInfinity,
            Class::Finite => self.negative = !self.negative && !self.digits.is_empty(),
            Class::NaN => {}
        }
        self
    }

    pub fn abs(mut self) -> Self {
        if self.class == Class::NegativeInfinity {
            self.class = Class::PositiveInfinity;
        }
        self.negative = false;
        self
    }

    /// Returns the sum, or None if the sum is so long that PostgreSQL may raise an error.
    pub fn add(&self, other: &Self) -> Option<Self> {
        match (self.class, other.class) {
            (Class::Finite, Class::Finite) => {}
            (Class::NaN, _) | (_, Class::NaN) => return Some(Self::special(Class::NaN)),
            (Class::Finite, infinity) | (infinity, Class::Finite) => return Some(Self::special(infinity)),
            (left, right) => return Some(Self::special(if left == right { left } else { Class::NaN })),
        }
        let scale = self.scale.max(other.scale);
        if self.digits.is_empty() || other.digits.is_empty() {
            let value = if self.digits.is_empty() { other } else { self };
            return Some(Self { scale, ..value.clone() });
        }
        let top = self.weight.max(other.weight);
        let bottom = self.last_weight().min(other.last_weight());
        let length = (top - bottom) as usize + 1;
        if length > RESULT_DIGITS_MAX {
            return None;
        }
        // Signed digit sums, least significant first, then carries.
        let mut sums: SmallVec<[i64; 24]> = SmallVec::from_elem(0, length + 1);
        for value in [self, other] {
            let sign = if value.negative { -1 } else { 1 };
            for (index, digit) in value.digits.iter().enumerate() {
                sums[(value.weight - index as i32 - bottom) as usize] += sign * *digit as i64;
            }
        }
        let negative = sums.iter().rev().find(|sum| **sum != 0).is_some_and(|sum| *sum < 0);
        let mut carry = 0;
        let mut digits = Digits::with_capacity(length + 1);
        for sum in sums {
            let sum = if negative { -sum } else { sum } + carry;
            carry = sum.div_euclid(BASE);
            digits.push(sum.rem_euclid(BASE) as i16);
        }
        digits.reverse();
        Some(Self { class: Class::Finite, negative, weight: top + 1, scale, digits }.normalised())
    }

    /// Returns the product, or None if the product is so long that PostgreSQL may round it or raise an error.
    pub fn multiply(&self, other: &Self) -> Option<Self> {
        match (self.class, other.class) {
            (Class::Finite, Class::Finite) => {}
            (Class::NaN, _) | (_, Class::NaN) => return Some(Self::special(Class::NaN)),
            _ => {
                let sign = |value: &Self| match value.class {
                    Class::NegativeInfinity => -1,
                    Class::PositiveInfinity => 1,
                    _ => value.sign(),
                };
                return Some(Self::special(match sign(self) * sign(other) {
                    0 => Class::NaN,
                    1 => Class::PositiveInfinity,
                    _ => Class::NegativeInfinity,
                }));
            }
        }
        let scale = self.scale + other.scale;
        let length = self.digits.len() + other.digits.len();
        if length > RESULT_DIGITS_MAX || scale > DSCALE_MAX {
            return None;
        }
        if self.digits.is_empty() || other.digits.is_empty() {
            return Some(Self { scale, ..Self::zero() });
        }
        let mut products: SmallVec<[i64; 32]> = SmallVec::from_elem(0, length);
        for (i, left) in self.digits.iter().enumerate() {
            for (j, right) in other.digits.iter().enumerate() {
                products[i + j + 1] += *left as i64 * *right as i64;
            }
        }
        let mut carry = 0;
        for product in products.iter_mut().rev() {
            *product += carry;
            carry = *product / BASE;
            *product %= BASE;
        }
        let digits = products.iter().map(|digit| *digit as i16).collect();
        let weight = self.weight + other.weight + 1;
        if weight.abs() > 0x7000 {
            return None;
        }
        let negative = self.negative != other.negative;
        Some(Self { class: Class::Finite, negative, weight, scale, digits }.normalised())
    }

    /// Returns the quotient, rounded as `numeric_div` does. None: PostgreSQL raises an error, a value is not finite, or the
    /// digits do not fit in 128 bits.
    pub fn divide(&self, other: &Self) -> Option<Self> {
        if (self.class, other.class) != (Class::Finite, Class::Finite) || other.digits.is_empty() {
            return None;
        }
        let scale = self.quotient_scale(other);
        let (mut dividend, mut divisor) = (self.magnitude()?, other.magnitude()?);
        // The power of ten that the quotient of the magnitudes is multiplied by.
        let shift = 4 * (self.last_weight() - other.last_weight()) + scale;
        let power = 10u128.checked_pow(shift.unsigned_abs())?;
        let enlarged = if shift < 0 { &mut divisor } else { &mut dividend };
        *enlarged = enlarged.checked_mul(power)?;
        let (quotient, remainder) = divided(dividend, divisor);
        // Round half away from zero. Cannot overflow: with a remainder the divisor is at least 2, so the quotient is at
        // most half of the maximum.
        let quotient = quotient + u128::from(remainder >= divisor - remainder);
        let fraction_digits = (scale + 3) / 4;
        let quotient = quotient.checked_mul(10u128.pow((4 * fraction_digits - scale) as u32))?;
        let quotient = i128::try_from(quotient).ok()?;
        let quotient = if self.negative != other.negative { -quotient } else { quotient };
        Some(Self { scale, ..Self::from_scaled(quotient, fraction_digits) })
    }

    /// Returns the value rounded to a multiple of `10^-scale`, with the display scale `scale`, or 0 if `scale` is negative. None: the
    /// value is not finite, or the digits do not fit in 128 bits.
    pub fn rounded(&self, scale: i32, rounding: Rounding) -> Option<Self> {
        if self.class != Class::Finite || !(-ROUNDED_SCALE_MAX..=ROUNDED_SCALE_MAX).contains(&scale) {
            return None;
        }
        let display_scale = scale.max(0);
        if self.digits.is_empty() {
            return Some(Self { scale: display_scale, ..Self::zero() });
        }
        // The value is the magnitude times 10^-decimals.
        let (magnitude, decimals) = (self.magnitude()?, -4 * self.last_weight());
        let units = if decimals <= scale {
            magnitude.checked_mul(10u128.checked_pow((scale - decimals) as u32)?)?
        } else {
            let unit = 10u128.checked_pow((decimals - scale) as u32)?;
            let (units, remainder) = divided(magnitude, unit);
            let is_away = match rounding {
                Rounding::HalfAwayFromZero => remainder >= unit - remainder,
                Rounding::TowardZero => false,
                Rounding::Up => remainder > 0 && !self.negative,
                Rounding::Down => remainder > 0 && self.negative,
            };
            units + u128::from(is_away)
        };
        let fraction_digits = (display_scale + 3) / 4;
        let units = units.checked_mul(10u128.checked_pow((4 * fraction_digits - scale) as u32)?)?;
        let units = i128::try_from(units).ok()?;
        let units = if self.negative { -units } else { units };
        Some(Self { scale: display_scale, ..Self::from_scaled(units, fraction_digits) })
    }

    /// Returns the display scale of a quotient (`select_div_scale`): at least 16 significant digits, and at least the scales
    /// of both operands.
    fn quotient_scale(&self, divisor: &Self) -> i32 {
        const SIGNIFICANT_MIN: i32 = 16;
        const DISPLAY_SCALE_MAX: i32 = 1000;
        let first = |value: &Self| value.digits.first().copied().unwrap_or(0);
        let weight = self.weight - divisor.weight - i32::from(first(self) <= first(divisor));
        (SIGNIFICANT_MIN - 4 * weight).max(self.scale).max(divisor.scale).clamp(0, DISPLAY_SCALE_MAX)
    }

    /// Returns the digits as one number. None: the value has too many digits.
    fn magnitude(&self) -> Option<u128> {
        let next = |all: u128, digit: &i16| all.checked_mul(BASE as u128)?.checked_add(*digit as u128);
        self.digits.iter().try_fold(0, next)
    }

    /// Returns the value with the least display scale that shows all digits (`get_min_scale`).
    pub fn trimmed(mut self) -> Self {
        let last = self.digits.last().copied().unwrap_or(0);
        let zeroes = [1000, 100, 10].iter().position(|power| last % power == 0).map_or(0, |at| 3 - at as i32);
        self.scale = (-4 * self.last_weight() - zeroes).max(0);
        if self.digits.is_empty() {
            self.scale = 0;
        }
        self
    }

    fn last_weight(&self) -> i32 {
        self.weight - self.digits.len() as i32 + 1
    }

    /// Converts to an integer, rounding half away from zero (`numericvar_to_int64`). None: the value is not finite or out of
    /// range.
    pub fn to_i64(&self) -> Option<i64> {
        if self.class != Class::Finite {
            return None;
        }
        let mut value = 0i128;
        for place in (0..=self.weight).rev() {
            let digit = self.digits.get((self.weight - place) as usize).copied().unwrap_or(0);
            value = value * BASE as i128 + digit as i128;
            if value > u64::MAX as i128 {
                return None;
            }
        }
        let fraction_first = usize::try_from(self.weight + 1).ok().and_then(|index| self.digits.get(index));
        if fraction_first.is_some_and(|digit| *digit as i64 >= BASE / 2) {
            value += 1;
        }
        i64::try_from(if self.negative { -value } else { value }).ok()
    }

    /// Returns the correctly rounded double, as `float8in` reads the decimal form. None: the double would overflow or
    /// underflow.
    pub fn to_f64(&self) -> Option<f64> {
        match self.class {
            Class::NaN => return Some(f64::NAN),
            Class::PositiveInfinity => return Some(f64::INFINITY),
            Class::NegativeInfinity => return Some(f64::NEG_INFINITY),
            Class::Finite => {}
        }
        if self.digits.is_empty() {
            return Some(0.0);
        }
        let value: f64 = self.scientific().parse().ok()?;
        value.is_normal().then_some(value)
    }

    /// Returns the correctly rounded float, as `float4in` reads the decimal form. None: the float would overflow or
    /// underflow.
    pub fn to_f32(&self) -> Option<f32> {
        match self.class {
            Class::Finite if self.digits.is_empty() => Some(0.0),
            Class::Finite => self.scientific().parse().ok().filter(|value: &f32| value.is_normal()),
            _ => self.to_f64().map(|value| value as f32),
        }
    }

    fn scientific(&self) -> String {
        use std::fmt::Write;
        let mut text = String::with_capacity(self.digits.len() * 4 + 8);
        if self.negative {
            text.push('-');
        }
        for digit in &self.digits {
            let _ = write!(text, "{digit:04}");
        }
        let _ = write!(text, "e{}", self.last_weight() * 4);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Numeric {
        Numeric::parse(text).unwrap()
    }

    #[test]
    fn equal_values_have_equal_digits() {
        assert_eq!(number("0.0001").digits.as_slice(), [1]);
        assert_eq!(number("123456.789").digits.as_slice(), [12, 3456, 7890]);
        assert_eq!(number("1e8").compare(&number("100000000.00")), Ordering::Equal);
        assert_eq!(number("-0.0").compare(&Numeric::zero()), Ordering::Equal);
    }

    #[test]
    fn numerics_order_by_value() {
        let ascending = ["-1e20", "-12345.6", "-12345.5", "-0.00001", "0", "1e-9", "0.5", "1", "9999", "10000", "1e30"];
        for (i, left) in ascending.iter().enumerate() {
            for (j, right) in ascending.iter().enumerate() {
                assert_eq!(number(left).compare(&number(right)), i.cmp(&j), "{left} {right}");
            }
        }
        assert_eq!(Numeric::special(Class::NaN).compare(&Numeric::special(Class::PositiveInfinity)), Ordering::Greater);
    }

    #[test]
    fn sums_and_products_are_exact() {
        let sum = |a, b| number(a).add(&number(b)).unwrap();
        assert_eq!(sum("9999.9999", "0.0001").compare(&number("10000")), Ordering::Equal);
        assert_eq!(sum("1e20", "-1").compare(&number("99999999999999999999")), Ordering::Equal);
        assert_eq!(sum("5", "-5").compare(&Numeric::zero()), Ordering::Equal);
        let product = number("-123456.789").multiply(&number("9999.0001")).unwrap();
        assert_eq!(product.compare(&number("-1234444445.5566789")), Ordering::Equal, "{product:?}");
    }

    #[test]
    fn quotients_have_the_same_digits_as_in_postgresql() {
        // Results of SELECT a / b in PostgreSQL 15.
        let known = [
            ("1", "3", "0.33333333333333333333"),
            ("2", "3", "0.66666666666666666667"),
            ("-20", "3", "-6.6666666666666667"),
            ("123456.789", "0.003", "41152263.000000000000"),
            ("1", "99999999.99", "0.000000010000000001000000"),
            ("0.00", "7.123", "0.00000000000000000000"),
            ("100000000", "7", "14285714.285714285714"),
            ("12345678901234.5678", "-2.5", "-4938271560493.8271"),
        ];
        for (left, right, expected) in known {
            let quotient = number(left).divide(&number(right)).unwrap();
            assert_eq!(quotient, number(expected), "{left} / {right}");
        }
        let most = number("34028236692093846346337.4607431768211455");
        assert_eq!(most.divide(&number("2")), None);
        assert_eq!(number("1").divide(&number("0.0")), None);
        assert_eq!(number("1").divide(&Numeric::special(Class::NaN)), None);
        assert_eq!(number("1e30").divide(&number("3e-30")), None);
    }

    #[test]
    fn conversion_rounds_half_away_from_zero() {
        for (text, expected) in [("0.5", 1), ("-0.5", -1), ("1.4999", 1), ("9999.5", 10000), ("0.00005", 0)] {
            assert_eq!(number(text).to_i64(), Some(expected), "{text}");
        }
        assert_eq!(number("9223372036854775807.4").to_i64(), Some(i64::MAX));
        assert_eq!(number("9223372036854775807.5").to_i64(), None);
        assert_eq!(number("-9223372036854775808").to_i64(), Some(i64::MIN));
    }

    #[test]
    fn a_payload_and_its_decoded_value_have_the_same_key() {
        // Short header: 1234567.89 is weight 1, scale 2.
        let payload = [0x01, 0x81, 123, 0, 4567u16.to_le_bytes()[0], 4567u16.to_le_bytes()[1], 0xc4, 0x22];
        let decoded = Numeric::decode(&payload).unwrap();
        assert_eq!(key(&payload), Some(123_456_789_000_000));
        assert_eq!(decoded.key(), key(&payload));
        assert_eq!(decoded.compare(&number("1234567.89")), Ordering::Equal);
    }
}
