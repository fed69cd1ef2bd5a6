//! Numerics as integers: converts a datum to the value times `10^scale`, and such an integer to the datum that PostgreSQL writes.
//!
//! Invariant: if `decode` accepts a datum, `encode` returns the same bytes. Source: `utils/adt/numeric.c` (`make_result_opt_error`).

const SHORT: u16 = 0x8000;
const SHORT_NEGATIVE: u16 = 0x2000;
const SHORT_SCALE_SHIFT: u32 = 7;
const SHORT_SCALE_MAX: u16 = 63;
const SHORT_WEIGHT_SIGN: u16 = 0x0040;
const SHORT_WEIGHT_MASK: u16 = 0x003f;
const BASE: u64 = 10_000;
const POWERS: [u64; 4] = [1, 10, 100, 1000];

/// Base-10000 digits of the largest u64.
const DIGITS_MAX: usize = 5;
/// Maximum bytes of an encoded datum.
pub const DATUM_BYTES_MAX: usize = 16;
const _: () = assert!(3 + 2 * DIGITS_MAX <= DATUM_BYTES_MAX);

/// The display scale of a datum with short varlena and numeric headers; None for any other datum.
#[inline(always)]
fn scale_of(datum: &[u8]) -> Option<u8> {
    let [first, low, high, ..] = datum else { return None };
    let header = u16::from_le_bytes([*low, *high]);
    let short = first & 1 == 1 && *first != 1 && header & 0xc000 == SHORT;
    short.then_some((header >> SHORT_SCALE_SHIFT & SHORT_SCALE_MAX) as u8)
}

/// The value times `10^scale`, and the display scale, of a whole datum. None when [`encode`] would return other bytes.
pub fn decode(datum: &[u8]) -> Option<(i64, u8)> {
    let scale = scale_of(datum)?;
    if (datum[0] >> 1) as usize != datum.len() {
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
        return (weight == 0 && !negative).then_some((0, scale));
    }
    // Digit i has the factor BASE^(weight - i); the last digit of the scaled integer has BASE^-fraction.
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
    Some((if negative { -value } else { value }, scale))
}

/// Like [`decode`], from the first eight bytes of a datum. Accepts most datums of at most two digits; None: use [`decode`].
#[inline(always)]
pub fn decode_start(word: u64) -> Option<(i64, u8)> {
    const BYTES_OF_NONE: u64 = 3;
    const BYTES_OF_ONE: u64 = 5;
    const BYTES_OF_TWO: u64 = 7;
    let (length, header) = (word >> 1 & 0x7f, (word >> 8) as u16);
    let (is_two, scale) = (length == BYTES_OF_TWO, header >> SHORT_SCALE_SHIFT & SHORT_SCALE_MAX);
    if word & 1 == 0 || header & 0xc000 != SHORT {
        return None;
    }
    if !is_two && length != BYTES_OF_ONE {
        let is_zero = length == BYTES_OF_NONE && header == SHORT | scale << SHORT_SCALE_SHIFT;
        return is_zero.then_some((0, scale as u8));
    }
    let (first, second) = (word >> 24 & 0xffff, word >> 40 & 0xffff);
    let (value, last) = if is_two { (first * BASE + second, second) } else { (first, first) };
    if first == 0 || last == 0 || first >= BASE || last >= BASE {
        return None;
    }
    // Sign-extends the seven bits of the weight.
    let weight = (header << 9) as i16 >> 9;
    let fraction = scale.div_ceil(4);
    let value = match weight + fraction as i16 - i16::from(is_two) {
        0 => value,
        1 => value * BASE,
        2 => value * BASE * BASE,
        _ => return None,
    };
    let (value, rest) = match fraction * 4 - scale {
        0 => (value, 0),
        1 => (value / 10, value % 10),
        2 => (value / 100, value % 100),
        _ => (value / 1000, value % 1000),
    };
    let value = if header & SHORT_NEGATIVE != 0 { -(value as i64) } else { value as i64 };
    (rest == 0).then_some((value, scale as u8))
}

/// The datum of `value * 10^-scale` with short varlena and numeric headers, and its length. None if the short numeric header
/// cannot express the scale or the weight, or the value is too large.
#[inline(always)]
pub fn encode(value: i64, scale: u8) -> Option<([u8; DATUM_BYTES_MAX], usize)> {
    if scale as u16 > SHORT_SCALE_MAX {
        return None;
    }
    let fraction = (scale as u32).div_ceil(4) as i32;
    let pad = POWERS[(fraction * 4 - scale as i32) as usize & 3];
    let magnitude = value.unsigned_abs().checked_mul(pad)?;
    let sign = if value < 0 { SHORT_NEGATIVE } else { 0 };
    let header = SHORT | sign | (scale as u16) << SHORT_SCALE_SHIFT;
    if magnitude >= BASE.pow(4) {
        return encode_long(magnitude, fraction, header);
    }
    // Four digits, the most significant in the lowest bits, without data-dependent branches.
    let (high, low, base) = ((magnitude / BASE.pow(2)) as u32, (magnitude % BASE.pow(2)) as u32, BASE as u32);
    let digits = [high / base, high % base, low / base, low % base];
    let digits = (0..4).fold(0, |word, digit| word | u64::from(digits[digit]) << (16 * digit));
    // Zero has no digits and weight 0.
    let (leading, trailing) = (digits.trailing_zeros() / 16, digits.leading_zeros() / 16);
    let (count, weight) = match digits {
        0 => (0, 0),
        _ => (4 - leading - trailing, 3 - leading as i32 - fraction),
    };
    let length = 3 + 2 * count as usize;
    let header = header | weight as u16 & (SHORT_WEIGHT_MASK | SHORT_WEIGHT_SIGN);
    let digits = digits >> (16 * leading % 64);
    let datum = (length as u128) << 1 | 1 | u128::from(header) << 8 | u128::from(digits) << 24;
    Some((datum.to_le_bytes(), length))
}

/// [`encode`] for values of five digits.
#[cold]
fn encode_long(mut magnitude: u64, fraction: i32, mut header: u16) -> Option<([u8; DATUM_BYTES_MAX], usize)> {
    let mut out = [0; DATUM_BYTES_MAX];
    let mut weight = -fraction - 1;
    // Digits are produced from the last to the first.
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

    fn first_bytes(datum: &[u8]) -> u64 {
        let mut start = [0xff; 8];
        let bytes = datum.len().min(8);
        start[..bytes].copy_from_slice(&datum[..bytes]);
        u64::from_le_bytes(start)
    }

    #[track_caller]
    fn check(datum: &[u8], expected: Option<(i64, u8)>) {
        assert_eq!(decode(datum), expected);
        assert_eq!(decode_start(first_bytes(datum)), expected);
    }

    #[test]
    fn values_of_every_scale_decode_to_themselves() {
        let magnitudes = (0..63).map(|bit| 1i64 << bit).chain((0..19).map(|power| 10i64.pow(power)));
        for magnitude in magnitudes {
            for value in [magnitude, -magnitude, magnitude - 1, magnitude.saturating_add(1), magnitude / 7 * 7] {
                for scale in 0..=40 {
                    let Some((datum, length)) = encode(value, scale) else { continue };
                    let datum = &datum[..length];
                    let (decoded, start) = (decode(datum), decode_start(first_bytes(datum)));
                    assert!(start.is_none() || start == decoded, "scale {scale}: {datum:?}");
                    if let Some(decoded) = decoded {
                        assert_eq!(decoded, (value, scale), "{datum:?}");
                        assert!(start.is_some() || value.unsigned_abs() >= BASE || scale > 8, "{datum:?}");
                    } else {
                        assert!(scale > 15 || magnitude > 1 << 49, "{value} at scale {scale}: {datum:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn only_canonical_datums_decode() {
        let datum = |header: u16, digits: &[u16]| {
            let mut datum = vec![((3 + digits.len() * 2) << 1 | 1) as u8];
            datum.extend(header.to_le_bytes());
            digits.iter().for_each(|digit| datum.extend(digit.to_le_bytes()));
            datum
        };
        check(&datum(0x8100, &[5]), Some((500, 2)));
        check(&datum(0x8100, &[5, 6700]), Some((567, 2)));
        check(&datum(0xa100, &[5, 6700]), Some((-567, 2)));
        // More digits than the scale shows, leading and trailing zeroes, a digit too large, a signed zero.
        check(&datum(0x8100, &[5, 6789]), None);
        check(&datum(0x8101, &[0, 5]), None);
        check(&datum(0x8101, &[5, 0]), None);
        check(&datum(0x8100, &[10_000]), None);
        check(&datum(0xa100, &[]), None);
        check(&datum(0x8101, &[]), None);
        // Another scale; NaN, a long header, a TOAST pointer.
        check(&datum(0xc000, &[]), None);
        check(&datum(0x8180, &[5]), Some((5000, 3)));
        check(&datum(0x0002, &[0, 5]), None);
        check(&[1, 18, 0x81, 0, 0], None);
    }
}
