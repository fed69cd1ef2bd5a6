//! Splits lines into commands: a command ends with its line or at a semicolon, a hyphen at the end of a line continues the
//! command on the next line, and lines that start with `--`, `REM` or `REMARK` are comments.

use super::lexer::closing_quotes;

#[derive(Debug, Default)]
pub struct Splitter {
    /// The lines so far of a command that continues.
    pending: String,
}

impl Splitter {
    /// Takes the next line, and returns the commands that it completes.
    pub fn line(&mut self, line: &str) -> Vec<String> {
        let line = line.trim_end();
        if self.pending.is_empty() && is_comment(line) {
            return Vec::new();
        }
        // A hyphen within a word, as in a name, does not continue the command.
        if let Some(continued) =
            line.strip_suffix('-').filter(|rest| rest.is_empty() || rest.ends_with(char::is_whitespace))
        {
            self.pending += continued;
            self.pending.push(' ');
            return Vec::new();
        }
        let text = std::mem::take(&mut self.pending) + line;
        split_at_semicolons(&text)
    }

    pub fn is_continued(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns the commands of the last line if no line follows that continues it.
    pub fn end(&mut self) -> Vec<String> {
        split_at_semicolons(&std::mem::take(&mut self.pending))
    }
}

/// Returns the commands of a whole text.
pub fn commands(text: &str) -> Vec<String> {
    let mut splitter = Splitter::default();
    let mut commands: Vec<String> = text.lines().flat_map(|line| splitter.line(line)).collect();
    commands.extend(splitter.end());
    commands
}

fn is_comment(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    first.starts_with("--") || first.eq_ignore_ascii_case("REM") || first.eq_ignore_ascii_case("REMARK")
}

fn split_at_semicolons(text: &str) -> Vec<String> {
    let (mut commands, mut start, mut closing) = (Vec::new(), 0, None::<&[char]>);
    for (at, c) in text.char_indices() {
        match closing {
            Some(marks) if marks.contains(&c) => closing = None,
            Some(_) => {}
            None if c == ';' => {
                commands.push(&text[start..at]);
                start = at + 1;
            }
            None => closing = closing_quotes(c),
        }
    }
    commands.push(&text[start..]);
    let commands = commands.into_iter().map(str::trim);
    commands.filter(|command| !command.is_empty() && !is_comment(command)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyphens_continue_lines_and_semicolons_end_commands() {
        let text = "list cell; list celldisk\n\nLIST METRICCURRENT WHERE objectType = 'CELLDISK' AND   -  \n\
                    metricValue != 0 -\nATTRIBUTES name;\n";
        let expected = [
            "list cell",
            "list celldisk",
            "LIST METRICCURRENT WHERE objectType = 'CELLDISK' AND    metricValue != 0  ATTRIBUTES name",
        ];
        assert_eq!(commands(text), expected);
        assert_eq!(commands("list cell -"), ["list cell"]);
        assert_eq!(commands("list celldisk CD-"), ["list celldisk CD-"]);
    }

    #[test]
    fn comments_are_skipped_and_quoted_semicolons_are_text() {
        let text =
            "REM a comment; list cell\n-- another\n  remark third\nremove\nlist cell where name = 'a;--b';-- note\n";
        assert_eq!(commands(text), ["remove", "list cell where name = 'a;--b'"]);
    }

    #[test]
    fn a_splitter_knows_whether_a_command_continues() {
        let mut splitter = Splitter::default();
        assert!(splitter.line("list -").is_empty() && splitter.is_continued());
        assert_eq!(splitter.line("cell"), ["list  cell"]);
        assert!(!splitter.is_continued() && splitter.end().is_empty());
    }
}
