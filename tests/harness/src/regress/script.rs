//! Splits a psql script into statements, to find places between them where a line can be inserted: the line where each
//! statement ends, and the table that it writes to.
//!
//! Follows psql's own scanner (src/fe_utils/psqlscan.l): quotes, dollar quotes, nested comments, parentheses, the bodies of
//! SQL-standard functions, backslash commands and the data after a COPY FROM stdin.

/// A statement that ends its line.
#[derive(Debug, PartialEq, Eq)]
pub struct Statement {
    /// The last line of the statement, including the data of a COPY.
    pub line: usize,
    /// The name of the written table, without its schema.
    pub table: Option<String>,
    pub temporary: bool,
}

/// A prefix that no line of data has.
const NO_DATA: [&str; 9] = ["COPY ", "SELECT ", "SET ", "RESET ", "CREATE ", "DROP ", "INSERT ", "ALTER ", "TABLE "];

#[derive(Default)]
struct Scanner {
    within: Within,
    parentheses: usize,
    /// Nesting depth of BEGIN and CASE in a function's body.
    blocks: usize,
    tokens: Vec<String>,
}

#[derive(Default, PartialEq, Eq, Debug)]
enum Within {
    #[default]
    Nothing,
    Quote {
        escapes: bool,
    },
    Name,
    Dollar(String),
    Comment(usize),
    /// In the data of a COPY.
    Data,
}

/// Returns the statements that end at the end of a line. Returns None if the script ends inside a statement, quote or
/// comment: then it was parsed incorrectly.
pub fn statements(script: &str) -> Option<Vec<Statement>> {
    let mut scanner = Scanner::default();
    let mut found = Vec::new();
    for (number, line) in script.lines().enumerate() {
        if scanner.within == Within::Data {
            if line == "\\." {
                scanner.within = Within::Nothing;
                found.push(scanner.take(number));
                continue;
            }
            // A COPY that is expected to fail has no data.
            if !NO_DATA.iter().any(|word| line.starts_with(word)) {
                continue;
            }
            scanner.within = Within::Nothing;
            scanner.tokens.clear();
        }
        if scanner.line(line) && scanner.within == Within::Nothing {
            if scanner.reads_data() {
                scanner.within = Within::Data;
            } else {
                found.push(scanner.take(number));
            }
        }
    }
    (scanner.within == Within::Nothing && scanner.tokens.is_empty()).then_some(found)
}

impl Scanner {
    /// Scans a line. Returns whether a statement ended on the line and no other began.
    fn line(&mut self, line: &str) -> bool {
        let mut rest = line;
        let mut ended = false;
        while let Some(c) = rest.chars().next() {
            let next = &rest[c.len_utf8()..];
            match &mut self.within {
                Within::Quote { escapes } => {
                    rest = if *escapes && c == '\\' {
                        &next[next.chars().next().map_or(0, char::len_utf8)..]
                    } else {
                        next
                    };
                    if c == '\'' {
                        match rest.strip_prefix('\'') {
                            Some(after) => rest = after,
                            None => self.within = Within::Nothing,
                        }
                    }
                }
                Within::Name => {
                    rest = next;
                    match c {
                        '"' => self.within = Within::Nothing,
                        _ => self.tokens.last_mut().expect("a quoted name is a token").push(c),
                    }
                }
                Within::Dollar(tag) => match rest.strip_prefix(tag.as_str()) {
                    Some(after) => {
                        self.within = Within::Nothing;
                        rest = after;
                    }
                    None => rest = next,
                },
                Within::Comment(depth) => {
                    if let Some(after) = rest.strip_prefix("*/") {
                        rest = after;
                        *depth -= 1;
                        if *depth == 0 {
                            self.within = Within::Nothing;
                        }
                    } else if let Some(after) = rest.strip_prefix("/*") {
                        *depth += 1;
                        rest = after;
                    } else {
                        rest = next;
                    }
                }
                Within::Data => return false,
                Within::Nothing => {
                    if rest.starts_with("--") {
                        return ended;
                    }
                    if let Some(after) = rest.strip_prefix("/*") {
                        self.within = Within::Comment(1);
                        rest = after;
                        continue;
                    }
                    if c == '\\' {
                        if let Some(after) = next.strip_prefix([';', ':']) {
                            rest = after;
                            continue;
                        }
                        return self.command(next);
                    }
                    if !c.is_whitespace() && ended {
                        // A second statement begins on the line, so no line can be inserted after the first.
                        self.tokens.clear();
                        ended = false;
                    }
                    rest = self.plain(c, rest, next, &mut ended);
                }
            }
        }
        ended
    }

    /// Scans a character outside of quotes and comments. Returns the rest of the line.
    fn plain<'a>(&mut self, c: char, rest: &'a str, next: &'a str, ended: &mut bool) -> &'a str {
        match c {
            ';' if self.parentheses == 0 && self.blocks == 0 => *ended = true,
            '(' => {
                self.parentheses += 1;
                self.tokens.push("(".to_owned());
            }
            ')' => self.parentheses = self.parentheses.saturating_sub(1),
            '\'' => self.within = Within::Quote { escapes: false },
            '"' => {
                self.within = Within::Name;
                self.tokens.push("\"".to_owned());
            }
            '$' => {
                let tag = next.find('$').filter(|&at| next[..at].chars().all(|c| c.is_alphanumeric() || c == '_'));
                if let Some(at) = tag.filter(|_| !next.starts_with(|c: char| c.is_ascii_digit())) {
                    self.within = Within::Dollar(format!("${}$", &next[..at]));
                    return &next[at + 1..];
                }
            }
            _ if c.is_alphabetic() || c == '_' => {
                let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
                let word = rest[..end].to_lowercase();
                if word == "e" && rest[end..].starts_with('\'') {
                    self.within = Within::Quote { escapes: true };
                    return &rest[end + 1..];
                }
                self.block(&word);
                self.tokens.push(word);
                return &rest[end..];
            }
            _ if c.is_whitespace() => {}
            _ => self.tokens.push(c.to_string()),
        }
        next
    }

    /// Tracks the body of an SQL-standard function, whose semicolons do not end the statement.
    fn block(&mut self, word: &str) {
        let of_function = self.tokens.first().is_some_and(|first| first == "create")
            && self.tokens.iter().take(4).any(|token| token == "function" || token == "procedure");
        match word {
            "begin" if of_function => self.blocks += 1,
            "case" if self.blocks > 0 => self.blocks += 1,
            "end" => self.blocks = self.blocks.saturating_sub(1),
            _ => {}
        }
    }

    /// Scans a backslash command, which extends to the end of the line. Returns whether the command ends a statement.
    fn command(&mut self, command: &str) -> bool {
        let name = command.split_whitespace().next().unwrap_or_default();
        if name == "copy" {
            let words: Vec<String> = command.split_whitespace().map(str::to_lowercase).collect();
            if words.windows(2).any(|pair| pair == ["from", "stdin"]) {
                self.tokens = words;
                return true;
            }
        }
        let ends = name.starts_with('g') || name == "watch" || name.starts_with("crosstabview") || name == "r";
        if ends {
            self.parentheses = 0;
            self.blocks = 0;
            self.tokens.clear();
        }
        false
    }

    fn reads_data(&self) -> bool {
        self.tokens.first().is_some_and(|first| first == "copy")
            && self.tokens.windows(2).any(|pair| pair[0] == "from" && ["stdin", "stdout"].contains(&pair[1].as_str()))
    }

    fn take(&mut self, line: usize) -> Statement {
        let tokens = std::mem::take(&mut self.tokens);
        let words: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let temporary = words.first() == Some(&"create") && words.iter().take(3).any(|word| word.starts_with("temp"));
        Statement { line, table: written(&words), temporary }
    }
}

/// Returns the table that a statement writes to, creates or rewrites.
fn written(words: &[&str]) -> Option<String> {
    let after = |keywords: &[&str]| {
        words.windows(keywords.len()).position(|window| window == keywords).map(|at| at + keywords.len())
    };
    let at = match *words.first()? {
        "insert" | "merge" => after(&["into"]),
        "update" => Some(1),
        "delete" => after(&["from"]),
        "copy" => words.contains(&"from").then_some(1),
        "alter" => after(&["table"]),
        "refresh" => after(&["materialized", "view"]),
        "create" if words.get(1) == Some(&"materialized") => after(&["materialized", "view"]),
        "create" if words.iter().take(4).any(|word| *word == "table") => {
            if words.windows(2).any(|pair| pair[1] == "as" && pair[0] != "always") { after(&["table"]) } else { None }
        }
        "select" => after(&["into"]),
        "with" => ["insert", "merge", "update", "delete"].iter().find_map(|word| match *word {
            "update" => after(&["update"]),
            "delete" => after(&["delete", "from"]),
            word => after(&[word, "into"]),
        }),
        _ => None,
    }?;
    name(&words[at..])
}

/// Returns the last part of the qualified name at the beginning of the words.
fn name(words: &[&str]) -> Option<String> {
    const BEFORE: [&str; 9] = ["only", "if", "not", "exists", "concurrently", "table", "unlogged", "temp", "temporary"];
    let mut words = words.iter().skip_while(|word| BEFORE.contains(word)).peekable();
    let mut name = words.next()?;
    while words.next_if(|word| **word == ".").is_some() {
        name = words.next()?;
    }
    let name = name.strip_prefix('"').unwrap_or(name);
    name.starts_with(|c: char| c.is_alphabetic() || c == '_').then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(script: &str) -> Vec<(usize, Option<String>)> {
        statements(script).expect("the script is whole").into_iter().map(|s| (s.line, s.table)).collect()
    }

    fn at(line: usize, table: &str) -> (usize, Option<String>) {
        (line, Some(table.to_owned()))
    }

    #[test]
    fn a_statement_ends_where_psql_ends_it() {
        let script = "INSERT INTO a VALUES (';', $$;$$, $x$ ; $x$, E'\\';', \"b;\"); -- ;\n/* ; /* ; */ */ UPDATE ONLY s.b\n SET x = 1;\n";
        assert_eq!(found(script), [at(0, "a"), at(2, "b")]);
        let function =
            "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC\n SELECT 1;\n SELECT CASE WHEN x THEN 1 END;\nEND;\n";
        assert_eq!(found(function), [(3, None)]);
        let rule = "CREATE RULE r AS ON INSERT TO t DO (\n INSERT INTO u VALUES (1);\n DELETE FROM v);\n";
        assert_eq!(found(rule), [(2, None)]);
    }

    #[test]
    fn the_data_of_a_copy_contains_no_statements() {
        let script = "COPY t FROM stdout; -- fails\nRESET ALL;\nCOPY t (a, b) FROM stdin;\nDELETE FROM u;\n'\n\\.\nDELETE FROM v;\n\\copy w from stdin\n\"\n\\.\n";
        assert_eq!(found(script), [(1, None), at(5, "t"), at(6, "v"), at(9, "w")]);
    }

    #[test]
    fn no_line_is_inserted_after_commands_or_two_statements_on_a_line() {
        assert_eq!(
            found("SELECT 1 AS a \\gset\n\\d t\nSELECT 1 \\; SELECT 2;\nBEGIN; DELETE FROM t;\n"),
            [(2, None), at(3, "t")]
        );
        assert!(statements("SELECT 'open;\n").is_none());
    }

    #[test]
    fn the_written_table_is_found_by_name() {
        for (statement, table) in [
            ("COPY s.t FROM 'file';", Some("t")),
            ("COPY t TO stdout;", None),
            ("CREATE UNLOGGED TABLE IF NOT EXISTS t AS SELECT 1;", Some("t")),
            ("CREATE TABLE t (a int GENERATED ALWAYS AS (1) STORED);", None),
            ("SELECT 1 INTO TABLE \"T u\" FROM x;", Some("T u")),
            ("WITH a AS (SELECT 1) DELETE FROM ONLY t;", Some("t")),
            ("REFRESH MATERIALIZED VIEW CONCURRENTLY t;", Some("t")),
            ("MERGE INTO t USING u ON true WHEN MATCHED THEN DELETE;", Some("t")),
            ("ALTER TABLE IF EXISTS s.t ADD COLUMN a int;", Some("t")),
        ] {
            assert_eq!(found(statement), [(0, table.map(str::to_owned))], "{statement}");
        }
        assert!(statements("CREATE TEMP TABLE t AS SELECT 1;").unwrap()[0].temporary);
    }
}
