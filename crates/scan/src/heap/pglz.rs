//! Decompression of PostgreSQL's LZ format, pglz. Source: `common/pg_lzcompress.c`.

/// Decompresses all of `source` to exactly `raw_bytes` bytes. None: `source` is malformed or has another length.
pub fn decompress(source: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(raw_bytes);
    let mut source = source.iter().copied();
    while out.len() < raw_bytes {
        let mut control = source.next()?;
        for _ in 0..8 {
            if out.len() == raw_bytes {
                break;
            }
            if control & 1 == 0 {
                // The last control byte may have bits for items that the input does not contain.
                let Some(literal) = source.next() else { break };
                out.push(literal);
            } else {
                let Some(first) = source.next() else { break };
                let second = source.next()?;
                let mut length = (first & 0x0f) as usize + 3;
                let distance = ((first & 0xf0) as usize) << 4 | second as usize;
                if length == 18 {
                    length += source.next()? as usize;
                }
                if distance == 0 || distance > out.len() {
                    return None;
                }
                for _ in 0..length.min(raw_bytes - out.len()) {
                    out.push(out[out.len() - distance]);
                }
            }
            control >>= 1;
        }
    }
    source.next().is_none().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::decompress;

    #[test]
    fn a_match_repeats_earlier_output() {
        // Two literals, then a match of nine bytes two back.
        assert_eq!(decompress(&[0b100, b'a', b'b', 0x06, 0x02], 11).unwrap(), b"abababababa");
    }

    #[test]
    fn malformed_input_is_rejected() {
        assert_eq!(decompress(&[0b1, 0x00, 0x00], 4), None);
        assert_eq!(decompress(&[0b1, 0x0f], 4), None);
        assert_eq!(decompress(&[0, b'a'], 4), None);
        assert_eq!(decompress(&[0, b'a', b'b'], 1), None);
    }
}
