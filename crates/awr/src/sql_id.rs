//! SQL_ID: Oracle's printed form of a 64-bit statement identifier, 13 digits of base 32.

/// Oracle's digits: e, i, l and o are omitted.
const DIGITS: &[u8; 32] = b"0123456789abcdfghjkmnpqrstuvwxyz";
const LENGTH: usize = 13;

/// Returns the 13 characters of a query identifier.
pub fn format(query_id: i64) -> String {
    let bits = query_id as u64;
    (0..LENGTH).rev().map(|digit| char::from(DIGITS[(bits >> (5 * digit) & 31) as usize])).collect()
}

/// Returns the query identifier of an SQL_ID, or None if the text is not one.
pub fn parse(sql_id: &str) -> Option<i64> {
    if sql_id.len() != LENGTH {
        return None;
    }
    let bits = sql_id.bytes().try_fold(0_u128, |bits, character| {
        let digit = DIGITS.iter().position(|digit| *digit == character)?;
        Some(bits << 5 | digit as u128)
    })?;
    u64::try_from(bits).ok().map(|bits| bits as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sql_ids_have_thirteen_characters_and_lead_back_to_the_query() {
        for query_id in [0, 1, -1, i64::MIN, i64::MAX, 1_234_567_890_123_456_789, -42] {
            let text = format(query_id);
            assert_eq!(text.len(), 13);
            assert_eq!(parse(&text), Some(query_id), "{text}");
        }
        assert_eq!(format(0), "0000000000000");
        assert_eq!(format(-1), "gzzzzzzzzzzzz");
    }

    #[test]
    fn texts_that_are_no_sql_id_are_refused() {
        for text in ["", "gzzzzzzzzzzz", "zzzzzzzzzzzzz", "000000000000e", "é00000000000"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
