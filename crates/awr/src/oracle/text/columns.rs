//! Columns of a text table: the ruler draws them, the lines above the ruler name them.

use super::line::{Offsets, Range, phrases, ruler, slice};
use crate::oracle::builder::Names;

/// How a table's lines become rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Columns of each ruler. A table with two rulers has rows of two lines.
    pub rulers: Vec<Vec<Range>>,
    /// Labels stand left of the first ruler's first column.
    pub labelled: bool,
    /// Names of all columns, the labels' first.
    pub names: Vec<Names>,
}

/// Whether a ruler above another one draws groups of its columns. A ruler whose ranges are all columns of the other one draws
/// the first line of rows of two lines.
fn is_group(group: &[Range], columns: &[Range]) -> bool {
    group.len() < columns.len()
        && group.iter().any(|range| !columns.contains(range))
        && group.iter().all(|(start, end)| {
            columns.iter().any(|column| column.0 == *start) && columns.iter().any(|column| column.1 == *end)
        })
}

impl Layout {
    /// The layout of a table from its last ruler and the lines above it. `hidden` is the part of the first header line that is
    /// the heading of the section.
    pub fn new(header: &[String], columns: Vec<Range>) -> Self {
        let mut rulers: Vec<(usize, Vec<Range>)> = Vec::new();
        for (at, line) in header.iter().enumerate() {
            rulers.extend(ruler(line).map(|ruler| (at, ruler)));
        }
        rulers.push((header.len(), columns));
        for at in (0..rulers.len() - 1).rev() {
            if is_group(&rulers[at].1, &rulers[at + 1].1) {
                rulers.remove(at);
            }
        }
        if rulers.len() > 1 {
            let mut from = 0;
            let mut names = Vec::new();
            for (at, columns) in &rulers {
                names.extend(named(&header[from..*at], columns));
                from = at + 1;
            }
            return Self { rulers: rulers.into_iter().map(|(_, columns)| columns).collect(), labelled: false, names };
        }
        let columns = rulers.remove(0).1;
        let labelled = columns.first().is_some_and(|first| first.0 >= 4);
        let mut names = named(header, &columns);
        if labelled {
            let labels = (0, columns.first().map_or(0, |first| first.0));
            let name: Vec<&str> = header.iter().map(|line| slice(line, labels).trim()).collect();
            let name = if header.iter().any(|line| ruler(line).is_some()) { String::new() } else { joined(&name) };
            names.insert(0, (String::new(), name));
        }
        Self { rulers: vec![columns], labelled, names }
    }

    /// Whether two layouts have the same rulers: a page repeats the header.
    pub fn same_rulers(&self, other: &Self) -> bool {
        self.rulers == other.rulers
    }

    /// The cells of a line below a ruler. None if a text crosses the columns.
    pub fn cells<'a>(&self, line: &'a str, ruler: usize) -> Option<Vec<&'a str>> {
        self.fits(line, ruler).then(|| self.split(line, ruler).collect())
    }

    /// Whether no text of a line crosses the columns of a ruler.
    pub fn fits(&self, line: &str, ruler: usize) -> bool {
        let columns = &self.rulers[ruler];
        let mut offsets = Offsets::new(line);
        let mut end = 0;
        for (index, column) in columns.iter().enumerate() {
            let start = offsets.at(column.0);
            // Labels stand before the first column.
            let is_label = index == 0 && self.labelled;
            if !is_label && !is_blank(&line[end..start]) {
                return false;
            }
            if start >= line.len() {
                break;
            }
            end = offsets.at(column.1);
        }
        true
    }

    /// The cells of a line that fits the columns.
    pub fn split<'a>(&self, line: &'a str, ruler: usize) -> impl Iterator<Item = &'a str> {
        let columns = &self.rulers[ruler];
        let mut offsets = Offsets::new(line);
        let label = self.labelled.then(|| {
            let start = Offsets::new(line).at(columns[0].0);
            line[..start].trim()
        });
        let cells = columns.iter().enumerate().map(move |(index, column)| {
            let start = offsets.at(column.0);
            // The last column takes the rest of the line.
            let end = if index + 1 == columns.len() { line.len() } else { offsets.at(column.1) };
            line[start..end].trim()
        });
        label.into_iter().chain(cells)
    }
}

fn is_blank(text: &str) -> bool {
    text.is_empty() || text.trim().is_empty()
}

fn joined(words: &[&str]) -> String {
    words.iter().flat_map(|words| words.split_whitespace()).collect::<Vec<_>>().join(" ")
}

/// The names of columns in the lines above a ruler.
fn named(header: &[String], columns: &[Range]) -> Vec<Names> {
    let mut names: Vec<(Vec<&str>, Vec<&str>)> = vec![(Vec::new(), Vec::new()); columns.len()];
    for (index, line) in header.iter().enumerate() {
        if ruler(line).is_some() {
            continue;
        }
        // A ruler below a line draws its groups.
        let groups = header.get(index + 1).and_then(|next| ruler(next));
        for phrase in phrases(line, 2) {
            let text = slice(line, phrase);
            let overlapping = |range: Range| {
                let over = move |(_, column): &(usize, &Range)| column.0 < range.1 && range.0 < column.1;
                columns.iter().enumerate().filter(over).map(|(index, _)| index)
            };
            let group = groups.as_ref().and_then(|groups| groups.iter().find(|g| g.0 < phrase.1 && phrase.0 < g.1));
            if let Some(group) = group {
                overlapping(*group).for_each(|column| names[column].0.push(text));
                continue;
            }
            // Words that each stand above one column name it; a phrase that crosses columns names their group.
            let words: Vec<Range> = phrases(text, 1).iter().map(|w| (w.0 + phrase.0, w.1 + phrase.0)).collect();
            let owner = |word: &Range| columns.iter().position(|column| column.0 <= word.0 && word.1 <= column.1);
            let owners: Option<Vec<usize>> = words.iter().map(owner).collect();
            match owners {
                Some(owners) => {
                    for (word, owner) in words.iter().zip(owners) {
                        names[owner].1.push(slice(line, *word));
                    }
                }
                None => {
                    let over: Vec<usize> = overlapping(phrase).collect();
                    match over.as_slice() {
                        [one] => names[*one].1.push(text),
                        several => several.iter().for_each(|column| names[*column].0.push(text)),
                    }
                }
            }
        }
    }
    names.into_iter().map(|(group, name)| (joined(&group), joined(&name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(text: &str) -> Layout {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let last = lines.pop().unwrap();
        Layout::new(&lines, ruler(&last).unwrap())
    }

    fn names(layout: &Layout) -> Vec<&str> {
        layout.names.iter().map(|(_, name)| name.as_str()).collect()
    }

    #[test]
    fn names_are_assembled_from_several_lines() {
        let layout = layout(
            "                                                             Avg
                                        %Time Total Wait    wait    Waits   % DB
Event                             Waits -outs   Time (s)    (ms)     /txn   time
-------------------------- ------------ ----- ---------- ------- -------- ------",
        );
        let expected =
            ["Event", "Waits", "%Time -outs", "Total Wait Time (s)", "Avg wait (ms)", "Waits /txn", "% DB time"];
        assert_eq!(names(&layout), expected);
        let cells = layout.cells("jobq slave wait                     960   100        481     501     33.1", 0);
        assert_eq!(cells.unwrap(), ["jobq slave wait", "960", "100", "481", "501", "33.1", ""]);
    }

    #[test]
    fn a_ruler_of_groups_is_no_ruler_of_columns() {
        let layout = layout(
            "                              % of Waits
                           -----------
                     Total
Event                Waits  <1ms   >1s
-------------------- ----- ----- -----",
        );
        assert_eq!(layout.rulers.len(), 1);
        assert_eq!(layout.names[2], ("% of Waits".to_owned(), "<1ms".to_owned()));
        assert_eq!(layout.names[1], (String::new(), "Total Waits".to_owned()));
    }

    #[test]
    fn a_ruler_of_the_same_columns_is_the_first_of_two() {
        let layout = layout(
            "                     Tablespace
Owner                   Name
-------------------- ----------
                     Subobject  Obj.  Obj#
Object Name            Name     Type
-------------------- ---------- ----- ----------",
        );
        assert_eq!(layout.rulers.len(), 2);
        let expected = ["Owner", "Tablespace Name", "Object Name", "Subobject Name", "Obj. Type", "Obj#"];
        assert_eq!(names(&layout), expected);
    }

    #[test]
    fn two_rulers_make_rows_of_two_lines() {
        let layout = layout(
            "Tablespace               Filename
------------------------ ----------------------------
          Av       Av
  Reads   Rds/s  Rd(ms)
------- ------- -------",
        );
        assert_eq!(layout.rulers.len(), 2);
        assert_eq!(names(&layout), ["Tablespace", "Filename", "Reads", "Av Rds/s", "Av Rd(ms)"]);
    }
}
