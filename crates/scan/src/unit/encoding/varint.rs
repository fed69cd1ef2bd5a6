//! Variable-length integers: LEB128, and zigzag for signed numbers.

use cellar_format::bytes::{Corrupt, Reader};

/// Appends `value` as LEB128.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a LEB128 number of at most ten bytes; `what` names the number in an error.
pub fn varint(reader: &mut Reader<'_>, what: &'static str) -> Result<u64, Corrupt> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = reader.u8(what)?;
        value |= ((byte & 0x7f) as u64) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Corrupt::new(what, reader.position(), "a number of more than ten bytes"))
}

/// Maps numbers of small magnitude to small unsigned numbers.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
