//! How LIST prints objects: each on a line of columns, or with DETAIL one attribute on a line, indented as CellCLI does.

use super::objects::Object;
use super::value::Value;
use serde_json::{Map, Value as Json};

/// A tab and a blank, as CellCLI prints before each value; programs that read its output split there.
const GAP: &str = "\t ";
/// Width of the names with DETAIL.
const NAME_WIDTH: usize = 24;

/// Returns a line for each object. Columns are as wide as their longest value.
pub fn lines(objects: &[Object], attributes: &[usize]) -> String {
    let rows: Vec<Vec<String>> =
        objects.iter().map(|object| attributes.iter().map(|index| object[*index].text()).collect()).collect();
    let mut widths = vec![0; attributes.len()];
    for row in &rows {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = (*width).max(text.chars().count());
        }
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(text, width)| format!("{GAP}{text:width$}"));
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Returns a paragraph for each object. Attributes that are not set are missing.
pub fn paragraphs(objects: &[Object], attributes: &[usize], names: &[&str]) -> String {
    let paragraph = |object: &Object| {
        let set = attributes.iter().filter(|index| object[**index] != Value::Unset);
        let line = |index: &usize| {
            let name = format!("{}:", names[*index]);
            let width = NAME_WIDTH.max(name.len() + 1);
            format!("{GAP}{name:width$}{}", object[*index].text()).trim_end().to_owned() + "\n"
        };
        set.map(line).collect::<String>()
    };
    objects.iter().map(paragraph).collect::<Vec<_>>().join("\n")
}

pub fn json(objects: &[Object], attributes: &[usize], names: &[&str]) -> Json {
    let object = |object: &Object| {
        let fields = attributes.iter().map(|index| (names[*index].to_owned(), object[*index].json()));
        Json::Object(fields.collect::<Map<_, _>>())
    };
    objects.iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> Vec<Object> {
        let row = |name: &str, size, status| vec![Value::from(name), size, status];
        vec![row("CD_00_c", Value::Size(3 << 29), "normal".into()), row("CD_10_cell", Value::Unset, "offline".into())]
    }

    const NAMES: [&str; 3] = ["name", "size", "status"];

    #[test]
    fn objects_are_lines_of_columns() {
        let text = lines(&objects(), &[0, 2]);
        assert_eq!(text, "\t CD_00_c   \t normal\n\t CD_10_cell\t offline\n");
        assert_eq!(lines(&objects(), &[1]), "\t 1.5G\n\n", "a value that is not set is empty");
        assert_eq!(lines(&[], &[0]), "");
    }

    #[test]
    fn detail_omits_attributes_that_are_not_set() {
        let text = paragraphs(&objects(), &[0, 1, 2], &NAMES);
        let expected = "\t name:                   CD_00_c\n\t size:                   1.5G\n\t status:                 normal\n\
                        \n\t name:                   CD_10_cell\n\t status:                 offline\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn json_has_bytes_and_nulls() {
        let expected = serde_json::json!([
            { "name": "CD_00_c", "size": 1610612736_u64 }, { "name": "CD_10_cell", "size": null }
        ]);
        assert_eq!(json(&objects(), &[0, 1], &NAMES), expected);
    }
}
