//! Completion of commands at the prompt: what may follow the text before the cursor.

use super::keyword::resolve;
use super::objects;
use super::parser::{CLAUSES, VERBS};

/// Returns where the word before the cursor starts, and the words that it may become.
pub fn complete(before: &str) -> (usize, Vec<String>) {
    let separates = |c: char| c.is_whitespace() || "=<>!,(;".contains(c);
    let separator = before.char_indices().rfind(|(_, c)| separates(*c));
    let start = separator.map_or(0, |(at, c)| at + c.len_utf8());
    let command = before[..start].rsplit(';').next().unwrap_or_default();
    let words: Vec<&str> = command.split_whitespace().collect();
    let word = &before[start..];
    let candidates: Vec<&str> = match words[..] {
        [] => VERBS.to_vec(),
        ["@" | "start" | "START" | "spool" | "SPOOL", ..] => Vec::new(),
        [verb] => match resolve(verb, VERBS.into_iter()) {
            Ok("LIST" | "DESCRIBE") => objects::names().collect(),
            Ok("ALTER") => altered(),
            Ok("HELP") => VERBS.to_vec(),
            Ok("SET") => vec!["DATEFORMAT", "ECHO"],
            _ => Vec::new(),
        },
        ["help" | "HELP", _] => objects::names().collect(),
        [verb, object_type, ..] => after_object_type(verb, object_type, words[words.len() - 1]),
    };
    let is_start = |candidate: &&str| candidate.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    (start, candidates.into_iter().filter(is_start).map(|candidate| as_typed(candidate, word)).collect())
}

fn altered() -> Vec<&'static str> {
    let types = objects::types().filter(|object_type| !object_type.alterations().is_empty());
    types.map(|object_type| object_type.name()).collect()
}

fn after_object_type(verb: &str, object_type: &str, last: &str) -> Vec<&'static str> {
    let resolved = objects::resolve_name(object_type).ok().and_then(|name| objects::get(name).ok());
    let Some(object_type) = resolved else { return Vec::new() };
    match resolve(verb, VERBS.into_iter()) {
        Ok("LIST") if last.eq_ignore_ascii_case("ORDER") => vec!["BY"],
        Ok("LIST") => CLAUSES.into_iter().chain(object_type.attributes().iter().copied()).collect(),
        Ok("ALTER") => {
            let operations =
                object_type.alterations().iter().flat_map(|operation| operation.split([' ', '{', '}', '|', '[', ']']));
            let mut words: Vec<&str> =
                operations.filter(|word| word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase())).collect();
            words.sort_unstable();
            words.dedup();
            words
        }
        _ => Vec::new(),
    }
}

/// Returns a keyword in the case of the word that it completes; names of attributes have their own.
fn as_typed(candidate: &str, word: &str) -> String {
    let is_keyword = candidate.chars().all(|c| c.is_ascii_uppercase());
    match is_keyword && word.starts_with(|c: char| c.is_ascii_lowercase()) {
        true => candidate.to_ascii_lowercase(),
        false => candidate.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_complete_to_what_may_follow() {
        let check = |before: &str, start: usize, expected: &[&str]| {
            assert_eq!(complete(before), (start, expected.iter().map(|word| (*word).to_owned()).collect()), "{before}");
        };
        check("li", 0, &["list"]);
        check("D", 0, &["DESCRIBE", "DROP"]);
        check("list gr", 5, &["griddisk"]);
        check("LIST CELL", 5, &["CELL", "CELLDISK"]);
        check("list cell; list ce", 16, &["cell", "celldisk"]);
        check("list celldisk attributes name,dev", 30, &["deviceName"]);
        check("list celldisk where sta", 20, &["status"]);
        check("list celldisk order ", 20, &["BY"]);
        check("alter griddisk all ina", 19, &["inactive"]);
        check("alter ce", 6, &["cell", "celldisk"]);
        check("help list metricc", 10, &["metriccurrent"]);
        check("list lun d", 9, &[]);
        check("start ", 6, &[]);
        check("list\u{a0}gr", 6, &["griddisk"]);
    }
}
