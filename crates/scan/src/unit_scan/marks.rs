//! Marks: one byte per row of a block, 1 for rows that are still selected, otherwise 0.

/// Whether any row is marked.
pub fn any(marks: &[u8]) -> bool {
    marks.iter().fold(0, |any, mark| any | mark) != 0
}

/// Replaces `out` by the marked rows.
pub fn select(marks: &[u8], out: &mut Vec<u16>) {
    out.clear();
    append_selected(marks, 0, out);
}

/// Appends the marked rows; the first mark belongs to row `first`.
pub fn append_selected(marks: &[u8], first: u16, out: &mut Vec<u16>) {
    let start = out.len();
    out.resize(start + marks.len(), 0);
    let mut count = start;
    let mut append = |row: usize, mark: u8| {
        out[count] = first + row as u16;
        count += mark as usize;
    };
    let (eights, rest) = marks.as_chunks::<8>();
    for (index, eight) in eights.iter().enumerate() {
        // Most groups of eight have at most one marked row.
        match u64::from_le_bytes(*eight) {
            0 => {}
            word if word.is_power_of_two() => append(index * 8 + word.trailing_zeros() as usize / 8, 1),
            _ => eight.iter().enumerate().for_each(|(row, mark)| append(index * 8 + row, *mark)),
        }
    }
    rest.iter().enumerate().for_each(|(row, mark)| append(eights.len() * 8 + row, *mark));
    out.truncate(count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_marked_rows_are_selected() {
        for length in [0usize, 1, 7, 8, 9, 64, 1023] {
            for step in [1, 2, 8, 13, 2000] {
                let marks: Vec<u8> = (0..length).map(|row| u8::from(row % step == step - 1)).collect();
                let mut rows = vec![9; 3];
                select(&marks, &mut rows);
                assert!(rows.iter().map(|row| *row as usize).eq((0..length).filter(|row| marks[*row] == 1)));
                assert_eq!(any(&marks), !rows.is_empty());
            }
        }
    }
}
