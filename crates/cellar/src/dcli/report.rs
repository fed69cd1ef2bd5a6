//! What dcli prints about the cells, in the layout of Oracle's dcli.

use regex_lite::Regex;

/// What a command did on one cell.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Why the command did not succeed.
    pub failure: Option<String>,
    pub output: String,
}

impl Outcome {
    pub fn succeeded(&self) -> bool {
        self.failure.is_none()
    }
}

/// Returns the output of all cells: each line after the name of its cell, without blanks around it. A cell that failed and
/// printed nothing has a line that says why.
pub fn report(cells: &[String], outcomes: &[Outcome], abbreviates: bool, removed: Option<(&str, &Regex)>) -> String {
    let mut text = String::new();
    let with = |condition: &dyn Fn(&Outcome) -> bool| -> Vec<String> {
        let found = cells.iter().zip(outcomes).filter(|(_, outcome)| condition(outcome));
        found.map(|(cell, _)| cell.clone()).collect()
    };
    let succeeded = with(&Outcome::succeeded);
    if abbreviates && !succeeded.is_empty() {
        text += &format!("OK: {}\n", python_list(&succeeded));
    }
    let is_removed = |line: &str| removed.is_some_and(|(_, pattern)| pattern.is_match(line));
    if let Some((pattern, _)) = removed {
        let matching = with(&|outcome| outcome.output.lines().any(|line| is_removed(line.trim())));
        if !matching.is_empty() {
            text += &format!("{pattern}: {}\n", python_list(&matching));
        }
    }
    for (cell, outcome) in cells.iter().zip(outcomes).filter(|(_, outcome)| !(abbreviates && outcome.succeeded())) {
        let printed = outcome.output.lines().map(str::trim).filter(|line| !is_removed(line));
        let failure = outcome.failure.as_deref().filter(|_| outcome.output.trim().is_empty());
        for line in printed.chain(failure) {
            text += format!("{cell}: {line}").trim_end();
            text.push('\n');
        }
    }
    text
}

/// Formats names as Python prints a list, which Oracle's dcli does.
pub fn python_list(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    format!("[{}]", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(abbreviates: bool, removed: Option<&str>) -> String {
        let cells = ["abcd2x3", "stsd2s2"].map(str::to_owned);
        let outcome = |failure: Option<&str>, output: &str| Outcome {
            failure: failure.map(str::to_owned),
            output: output.to_owned(),
        };
        let outcomes = [
            outcome(None, "\t CD_00\t normal\n\t CD_06\t importRequired\n"),
            outcome(Some("exit code 1"), "\nCELL-90003: no\n\t CD_00\t normal\n"),
        ];
        let regex = removed.map(|removed| Regex::new(&format!("^(?:{removed})")).unwrap());
        report(&cells, &outcomes, abbreviates, removed.zip(regex.as_ref()))
    }

    #[test]
    fn lines_follow_the_names_of_cells() {
        let expected = "abcd2x3: CD_00\t normal\nabcd2x3: CD_06\t importRequired\n\
                        stsd2s2:\nstsd2s2: CELL-90003: no\nstsd2s2: CD_00\t normal\n";
        assert_eq!(reported(false, None), expected);
    }

    #[test]
    fn abbreviated_output_shows_errors_only() {
        assert_eq!(
            reported(true, None),
            "OK: ['abcd2x3']\nstsd2s2:\nstsd2s2: CELL-90003: no\nstsd2s2: CD_00\t normal\n"
        );
    }

    #[test]
    fn lines_that_match_are_replaced_by_the_names_of_their_cells() {
        let expected =
            ".*normal: ['abcd2x3', 'stsd2s2']\nabcd2x3: CD_06\t importRequired\nstsd2s2:\nstsd2s2: CELL-90003: no\n";
        assert_eq!(reported(false, Some(".*normal")), expected);
    }
}
