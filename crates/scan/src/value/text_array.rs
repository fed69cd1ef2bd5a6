//! PostgreSQL's arrays of variable-length elements, such as `text[]`.
//!
//! Arrays are not trusted: a malformed array is [`Undecided`]. Source: `utils/array.h`, `utils/adt/arrayfuncs.c`.

use super::Undecided;
use crate::heap::varlena;

/// The bytes of a varlena's header, which precede the payload; the array's alignment and offsets count from there.
const HEADER: usize = 4;
/// `MAXDIM`
const DIMENSIONS_MAX: usize = 6;

fn int(payload: &[u8], index: usize) -> Result<i32, Undecided> {
    let bytes = payload.get(4 * index..).and_then(|bytes| bytes.first_chunk()).ok_or(Undecided)?;
    Ok(i32::from_le_bytes(*bytes))
}

/// The elements of an array in storage order, given its payload. None stands for NULL. An element that is compressed or
/// stored out of line is undecided; arrays have none.
pub fn elements(payload: &[u8]) -> Result<Vec<Option<&[u8]>>, Undecided> {
    let dimensions = usize::try_from(int(payload, 0)?).map_err(|_| Undecided)?;
    if dimensions > DIMENSIONS_MAX {
        return Err(Undecided);
    }
    if dimensions == 0 {
        return Ok(Vec::new());
    }
    let mut count = 1usize;
    for dimension in 0..dimensions {
        let length = usize::try_from(int(payload, 3 + dimension)?).map_err(|_| Undecided)?;
        count = count.checked_mul(length).ok_or(Undecided)?;
    }
    // Each element has at least a bit of the NULL bitmap or a byte of data.
    if count > 8 * payload.len() {
        return Err(Undecided);
    }
    let bitmap = 12 + 8 * dimensions;
    let has_nulls = int(payload, 1)? != 0;
    let mut at = match int(payload, 1)? {
        0 => (HEADER + bitmap).next_multiple_of(8),
        offset => usize::try_from(offset).map_err(|_| Undecided)?,
    };
    let mut elements = Vec::with_capacity(count);
    for index in 0..count {
        if has_nulls && payload.get(bitmap + index / 8).ok_or(Undecided)? >> (index % 8) & 1 == 0 {
            elements.push(None);
            continue;
        }
        let byte = |at: usize| at.checked_sub(HEADER).and_then(|at| payload.get(at)).ok_or(Undecided);
        // A zero byte is padding before a header of four bytes (`att_align_pointer`).
        if *byte(at)? == 0 {
            at = at.next_multiple_of(4);
        }
        let start = at.checked_sub(HEADER).ok_or(Undecided)?;
        let length = varlena::datum_bytes(payload, start, payload.len()).ok_or(Undecided)?;
        elements.push(Some(varlena::plain_payload(&payload[start..start + length]).ok_or(Undecided)?));
        at += length;
    }
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The payload of `{ab,NULL,c}` or `{ab,c}`.
    fn array(with_null: bool) -> Vec<u8> {
        let mut words = [1, 0, 25, 2, 1];
        if with_null {
            (words[1], words[3]) = (32, 3);
        }
        let mut payload: Vec<u8> = words.iter().flat_map(|word: &i32| word.to_le_bytes()).collect();
        if with_null {
            payload.push(0b101);
        }
        payload.resize(if with_null { 28 } else { 20 }, 0);
        payload.extend([24, 0, 0, 0, b'a', b'b', 0, 0, 20, 0, 0, 0, b'c']);
        payload
    }

    #[test]
    fn elements_follow_the_bitmap_of_nulls() {
        assert_eq!(elements(&array(false)), Ok(vec![Some(&b"ab"[..]), Some(b"c")]));
        assert_eq!(elements(&array(true)), Ok(vec![Some(&b"ab"[..]), None, Some(b"c")]));
        assert_eq!(elements(&[0; 12]), Ok(Vec::new()));
    }

    #[test]
    fn malformed_arrays_do_not_panic() {
        for with_null in [false, true] {
            let good = array(with_null);
            for at in 0..good.len() {
                let _ = elements(&good[..at]);
                for flip in [1u8, 2, 4, 8, 16, 32, 64, 128, 255] {
                    let mut bytes = good.clone();
                    bytes[at] ^= flip;
                    let _ = elements(&bytes);
                }
            }
        }
    }
}
