//! Numerics as integers: those whose datum is what Postgres would write for the integer at a decimal scale.
//!
//! Invariant: `encode(decode(datum))` is the datum. Source: `utils/adt/numeric.c` (`make_result_opt_error`).

const SHORT: u16 = 0x8000;
const SHORT_NEGATIVE: u16 = 0x2000;
const SHORT_SCALE_SHIFT: u32 = 7;
const SHORT_SCALE_MAX: u32 = 63;
const SHORT_WEIGHT_SIGN: u16 = 0x0040;
const SHORT_WEIGHT_MASK: u16 = 0x003f;
const BASE: u64 = 10_000;
const POWERS: [u64; 4] = [1, 10, 100, 1000];

/// Digits that any u64 fits into.
const DIGITS_MAX: usize = 5;
pub const DATUM_BYTES_MAX: usize = 3 + 2 * DIGITS_MAX;

/// The display scale of a whole datum that has a short header; None for any other.
#[inline(always)]
pub fn scale_of(datum: &[u8]) -> Option<u8> {
    let [first, low, high, ..] = datum else { return None };
    let header = u16::from_le_bytes([*low, *high]);
    let short = first & 1 == 1 && *first != 1 && header & 0xc000 == SHORT;
    short.then_some((header >> SHORT_SCALE_SHIFT & SHORT_SCALE_MAX as u16) as u8)
}

/// The value times `10^scale`, when the datum, header included, is the one form that [`encode`] gives it.
#[inline(always)]
pub fn decode(datum: &[u8], scale: u8) -> Option<i64> {
    if scale_of(datum)? != scale || (datum[0] >> 1) as usize != datum.len() {
        return None;
    }
    let header = u16::from_le_bytes([datum[1], datum[2]]);
    let low = (header & SHORT_WEIGHT_MASK) as i32;
    let weight = if header & SHORT_WEIGHT_SIGN != 0 { low - 64 } else { low };
    let negative = header & SHORT_NEGATIVE != 0;
    let digits = &datum[3..];
    let count = digits.len() / 2;
    if !digits.len().is_multiple_of(2) || count > DIGITS_MAX {
        return None;
    }
    if count == 0 {
        return (weight == 0 && !negative).then_some(0);
    }
    // Digit i counts BASE^(weight - i); the last of the scaled integer counts BASE^-fraction.
    let fraction = (scale as u32).div_ceil(4) as i32;
    let trailing = weight + fraction + 1 - count as i32;
    if !(0..=DIGITS_MAX as i32).contains(&trailing) {
        return None;
    }
    let mut value = 0u64;
    let (mut first, mut last) = (0, 0);
    for (index, digit) in digits.chunks_exact(2).enumerate() {
        last = u16::from_le_bytes([digit[0], digit[1]]) as u64;
        if last >= BASE {
            return None;
        }
        if index == 0 {
            first = last;
        }
        value = value.checked_mul(BASE)?.checked_add(last)?;
    }
    if first == 0 || last == 0 {
        return None;
    }
    for _ in 0..trailing {
        value = value.checked_mul(BASE)?;
    }
    let pad = POWERS[(fraction * 4 - scale as i32) as usize];
    if !value.is_multiple_of(pad) {
        return None;
    }
    let value = i64::try_from(value / pad).ok()?;
    Some(if negative { -value } else { value })
}

/// The datum, short varlena header included, of `value * 10^-scale`, and its length. None: it has none of this form.
#[inline(always)]
pub fn encode(value: i64, scale: u8) -> Option<([u8; DATUM_BYTES_MAX], usize)> {
    let fraction = (scale as u32).div_ceil(4) as i32;
    let pad = POWERS[(fraction * 4 - scale as i32) as usize & 3];
    let mut magnitude = value.unsigned_abs().checked_mul(pad)?;
    let mut header = SHORT | (scale as u16) << SHORT_SCALE_SHIFT;
    if scale as u32 > SHORT_SCALE_MAX {
        return None;
    }
    let mut out = [0; DATUM_BYTES_MAX];
    if value == 0 {
        out[..3].copy_from_slice(&[7, header as u8, (header >> 8) as u8]);
        return Some((out, 3));
    }
    if value < 0 {
        header |= SHORT_NEGATIVE;
    }
    if magnitude < BASE * BASE {
        // Most values: two digits at most, and no branch that depends on them.
        let (high, low) = ((magnitude / BASE) as u32, (magnitude % BASE) as u32);
        let weight = i32::from(high > 0) - fraction;
        let digits = if high > 0 { high | low << 16 } else { low };
        let length = 5 + 2 * usize::from(high > 0 && low > 0);
        header |= weight as u16 & (SHORT_WEIGHT_MASK | SHORT_WEIGHT_SIGN);
        out[..3].copy_from_slice(&[(length as u8) << 1 | 1, header as u8, (header >> 8) as u8]);
        out[3..7].copy_from_slice(&digits.to_le_bytes());
        return Some((out, length));
    }
    let mut weight = -fraction - 1;
    // Digits come from the last to the first.
    let mut digits = [0u16; DIGITS_MAX];
    let mut at = DIGITS_MAX;
    while magnitude > 0 {
        let digit = (magnitude % BASE) as u16;
        magnitude /= BASE;
        weight += 1;
        if digit == 0 && at == DIGITS_MAX {
            continue;
        }
        at -= 1;
        digits[at] = digit;
    }
    if !(-64..=63).contains(&weight) {
        return None;
    }
    header |= weight as u16 & (SHORT_WEIGHT_MASK | SHORT_WEIGHT_SIGN);
    let digits = &digits[at..];
    let length = 3 + 2 * digits.len();
    out[..3].copy_from_slice(&[(length as u8) << 1 | 1, header as u8, (header >> 8) as u8]);
    for (bytes, digit) in out[3..].chunks_exact_mut(2).zip(digits) {
        bytes.copy_from_slice(&digit.to_le_bytes());
    }
    Some((out, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_at_every_scale() {
        let magnitudes = (0..63).map(|bit| 1i64 << bit).chain((0..19).map(|power| 10i64.pow(power)));
        for magnitude in magnitudes {
            for value in [magnitude, -magnitude, magnitude - 1, magnitude.saturating_add(1), magnitude / 7 * 7] {
                for scale in 0..=40 {
                    let Some((datum, length)) = encode(value, scale) else { continue };
                    let datum = &datum[..length];
                    assert_eq!(scale_of(datum), Some(scale));
                    if let Some(decoded) = decode(datum, scale) {
                        assert_eq!(decoded, value, "scale {scale}: {datum:?}");
                    } else {
                        assert!(scale > 15 || magnitude > 1 << 49, "{value} at scale {scale}: {datum:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn only_the_canonical_form_is_taken() {
        let datum = |header: u16, digits: &[u16]| {
            let mut datum = vec![((3 + digits.len() * 2) << 1 | 1) as u8];
            datum.extend(header.to_le_bytes());
            digits.iter().for_each(|digit| datum.extend(digit.to_le_bytes()));
            datum
        };
        assert_eq!(decode(&datum(0x8100, &[5]), 2), Some(500));
        assert_eq!(decode(&datum(0x8100, &[5, 6700]), 2), Some(567));
        assert_eq!(decode(&datum(0xa100, &[5, 6700]), 2), Some(-567));
        // More digits than the scale shows, leading and trailing zeroes, a digit too large, a signed zero.
        assert_eq!(decode(&datum(0x8100, &[5, 6789]), 2), None);
        assert_eq!(decode(&datum(0x8101, &[0, 5]), 2), None);
        assert_eq!(decode(&datum(0x8101, &[5, 0]), 2), None);
        assert_eq!(decode(&datum(0x8100, &[10_000]), 2), None);
        assert_eq!(decode(&datum(0xa100, &[]), 2), None);
        assert_eq!(decode(&datum(0x8101, &[]), 2), None);
        // NaN, another scale, a long header, a TOAST pointer.
        assert_eq!(decode(&datum(0xc000, &[]), 2), None);
        assert_eq!(decode(&datum(0x8180, &[5]), 2), None);
        assert_eq!(decode(&datum(0x0002, &[0, 5]), 2), None);
        assert_eq!(decode(&[1, 18, 0x81, 0, 0], 2), None);
    }
}
