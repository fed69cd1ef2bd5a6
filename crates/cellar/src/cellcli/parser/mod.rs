//! Parses commands of CellCLI.
//!
//! ```text
//! LIST type [ALL | name [, name]...] [WHERE condition] [ATTRIBUTES {ALL | a [, a]...}] [DETAIL]
//!           [ORDER BY a [ASC | DESC] [, ...]] [LIMIT n]          the clauses in any order
//! CREATE type name a = value [, a = value]...
//! DROP type {ALL | name [, name]...} [WHERE condition]
//! ALTER type [ALL | name [, name]...] [WHERE condition] {operation | a = value [, a = value]...}
//! condition: a [NOT | !] {= | != | < | <= | > | >= | LIKE} value, with AND, OR, NOT and parentheses
//! ```
//!
//! Verbs and object types may be abbreviated to three letters or more, if only one has that start.

mod condition;

use super::ast::*;
use super::error::Error;
use super::keyword::resolve;
use super::lexer::{Token, tokens};
use super::objects;
use std::path::PathBuf;

pub const VERBS: [&str; 12] =
    ["ALTER", "CALIBRATE", "CREATE", "DESCRIBE", "DROP", "EXIT", "HELP", "LIST", "QUIT", "SET", "SPOOL", "START"];
/// Words that begin a clause of LIST, and are therefore no names unless they are quoted.
pub const CLAUSES: [&str; 5] = ["ATTRIBUTES", "DETAIL", "WHERE", "ORDER", "LIMIT"];

pub fn parse(text: &str) -> Result<Statement, Error> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, comparisons: 0 };
    let statement = parser.statement()?;
    match parser.peek() {
        None => Ok(statement),
        Some(_) => Err(parser.unexpected("the end of the command")),
    }
}

struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
    /// The comparisons of the condition so far.
    comparisons: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<&'t Token> {
        let token = self.peek();
        self.at += usize::from(token.is_some());
        token
    }

    /// Takes the next token if it is this keyword.
    fn takes(&mut self, keyword: &str) -> bool {
        let is = self.peek().is_some_and(|token| token.is(keyword));
        self.at += usize::from(is);
        is
    }

    fn takes_sign(&mut self, sign: &str) -> bool {
        let is = matches!(self.peek(), Some(Token::Sign(found)) if *found == sign);
        self.at += usize::from(is);
        is
    }

    fn unexpected(&self, expected: &str) -> Error {
        Error::syntax(self.peek().map(Token::text), expected)
    }

    /// Takes a word or a quoted string.
    fn text(&mut self, expected: &str) -> Result<String, Error> {
        match self.peek() {
            Some(Token::Word(text) | Token::Quoted(text)) => {
                self.at += 1;
                Ok(text.clone())
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// Takes a list with commas between its elements.
    fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let mut elements = vec![element(self)?];
        while self.takes_sign(",") {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    fn statement(&mut self) -> Result<Statement, Error> {
        let expected = || format!("one of {}, or @file", VERBS.join(", "));
        let Some(Token::Word(word)) = self.peek() else { return Err(self.unexpected(&expected())) };
        if let Some(path) = word.strip_prefix('@') {
            self.at += 1;
            let path = if path.is_empty() { self.text("the name of a file")? } else { path.to_owned() };
            return Ok(Statement::Start(PathBuf::from(path)));
        }
        let verb = match resolve(word, VERBS.into_iter()) {
            Ok(verb) => verb,
            Err(starts) if starts.is_empty() => return Err(self.unexpected(&expected())),
            Err(starts) => return Err(self.unexpected(&format!("one of {}", starts.join(", ")))),
        };
        self.at += 1;
        Ok(match verb {
            "LIST" => Statement::List(self.list_statement()?),
            "DESCRIBE" => Statement::Describe(self.object_type()?),
            "ALTER" => Statement::Alter(self.alter()?),
            "HELP" => Statement::Help(self.rest().iter().map(|token| token.text().to_owned()).collect()),
            "START" => Statement::Start(PathBuf::from(self.text("the name of a file")?)),
            "SPOOL" => Statement::Spool(self.spool()?),
            "SET" => match self.takes("ECHO") {
                true if self.takes("ON") => Statement::SetEcho(true),
                true if self.takes("OFF") => Statement::SetEcho(false),
                true => return Err(self.unexpected("ON or OFF")),
                false if self.takes("DATEFORMAT") => match self.takes("STANDARD") {
                    true => Statement::SetDateFormat,
                    false => return Err(self.unexpected("STANDARD: times are in UTC, with the offset")),
                },
                false => return Err(self.unexpected("ECHO or DATEFORMAT")),
            },
            "EXIT" | "QUIT" => Statement::Exit,
            "CALIBRATE" => Statement::Calibrate { is_forced: self.takes("FORCE") },
            "DROP" if self.peek().is_some_and(|token| objects::resolve_name(token.text()) == Ok("FLASHCACHE")) => {
                self.at += 1;
                self.takes("ALL");
                Statement::DropFlashCache
            }
            "CREATE" if self.is_followed_by(|object_type| !object_type.creations().is_empty()) => self.create()?,
            "DROP" if self.is_followed_by(|object_type| object_type.can_drop()) => self.drop()?,
            verb => {
                // Whatever follows, the answer is that cells do not have the command.
                let first = self.rest().first();
                let object_type = first.and_then(|token| objects::resolve_name(token.text()).ok());
                Statement::Unsupported { verb, object_type }
            }
        })
    }

    /// Returns whether the next token names an object type with a property.
    fn is_followed_by(&self, has: impl Fn(&dyn objects::ObjectType) -> bool) -> bool {
        let name = self.peek().and_then(|token| objects::resolve_name(token.text()).ok());
        name.and_then(|name| objects::get(name).ok()).is_some_and(has)
    }

    fn create(&mut self) -> Result<Statement, Error> {
        let object_type = self.object_type()?;
        let name = self.text("a name")?;
        let values = self.list(Self::assignment)?;
        Ok(Statement::Create { object_type, name, values })
    }

    fn drop(&mut self) -> Result<Statement, Error> {
        let object_type = self.object_type()?;
        let targets = self.targets()?;
        let filter = if self.takes("WHERE") { Some(self.condition()?) } else { None };
        Ok(Statement::Drop { object_type, targets, filter })
    }

    fn targets(&mut self) -> Result<Targets, Error> {
        match self.takes("ALL") {
            true => Ok(Targets::All),
            false => Ok(Targets::Named(self.list(|parser| parser.text("ALL or a name"))?)),
        }
    }

    fn rest(&mut self) -> &'t [Token] {
        let rest = &self.tokens[self.at..];
        self.at = self.tokens.len();
        rest
    }

    fn object_type(&mut self) -> Result<&'static str, Error> {
        let expected = || format!("one of {}", objects::names().collect::<Vec<_>>().join(", "));
        let Some(Token::Word(word)) = self.peek() else { return Err(self.unexpected(&expected())) };
        match objects::resolve_name(word) {
            Ok(name) => {
                self.at += 1;
                Ok(name)
            }
            Err(starts) if starts.len() > 1 => Err(self.unexpected(&format!("one of {}", starts.join(", ")))),
            Err(_) => Err(self.unexpected(&expected())),
        }
    }

    fn list_statement(&mut self) -> Result<List, Error> {
        let object_type = self.object_type()?;
        let mut list = List {
            object_type,
            names: Vec::new(),
            attributes: Attributes::Default,
            detail: false,
            filter: None,
            order: Vec::new(),
            limit: None,
        };
        let begins_clause = |token: &Token| CLAUSES.iter().any(|clause| token.is(clause));
        if !self.takes("ALL") && self.peek().is_some_and(|token| !begins_clause(token)) {
            let expected = format!("ALL, a name, {}", clauses());
            list.names = self.list(|parser| parser.text(&expected))?;
        }
        while self.peek().is_some() {
            if list.attributes == Attributes::Default && self.takes("ATTRIBUTES") {
                list.attributes = match self.takes("ALL") {
                    true => Attributes::All,
                    false => Attributes::Named(self.list(|parser| parser.text("ALL or the name of an attribute"))?),
                };
            } else if !list.detail && self.takes("DETAIL") {
                list.detail = true;
            } else if list.filter.is_none() && self.takes("WHERE") {
                list.filter = Some(self.condition()?);
            } else if list.order.is_empty() && self.takes("ORDER") {
                if !self.takes("BY") {
                    return Err(self.unexpected("BY"));
                }
                list.order = self.list(Self::order)?;
            } else if list.limit.is_none() && self.takes("LIMIT") {
                list.limit = Some(self.limit()?);
            } else {
                return Err(self.unexpected(&clauses()));
            }
        }
        Ok(list)
    }

    fn order(&mut self) -> Result<Order, Error> {
        let attribute = self.text("the name of an attribute")?;
        let descending = self.takes("DESC");
        if !descending {
            self.takes("ASC");
        }
        Ok(Order { attribute, descending })
    }

    fn limit(&mut self) -> Result<usize, Error> {
        let number = self.peek().and_then(|token| token.text().parse().ok()).filter(|number| *number > 0);
        let number = number.ok_or_else(|| self.unexpected("a number from 1"))?;
        self.at += 1;
        Ok(number)
    }

    fn alter(&mut self) -> Result<Alter, Error> {
        let object_type = self.object_type()?;
        let takes_names = objects::get(object_type).is_ok_and(|object_type| object_type.has_names());
        let targets = if takes_names { self.targets()? } else { Targets::None };
        let filter = if self.takes("WHERE") { Some(self.condition()?) } else { None };
        let is_assignment = self.tokens.get(self.at + 1) == Some(&Token::Sign("="));
        let operation = match is_assignment {
            true => Operation::Assign(self.list(Self::assignment)?),
            false => {
                // RATE = 20 is RATE 20. Other signs are no part of an operation.
                let words = self.rest().iter().filter(|token| **token != Token::Sign("="));
                Operation::Words(words.map(|token| token.text().to_owned()).collect())
            }
        };
        Ok(Alter { object_type, targets, filter, operation })
    }

    fn assignment(&mut self) -> Result<(String, String), Error> {
        let attribute = self.text("the name of an attribute")?;
        if !self.takes_sign("=") {
            return Err(self.unexpected("="));
        }
        // The value of comparison, whose quotation marks the shell has taken.
        if let Some(Token::Sign(sign @ ("<" | "<=" | "=" | ">=" | ">"))) = self.peek() {
            self.at += 1;
            return Ok((attribute, (*sign).to_owned()));
        }
        // A value in parentheses is kept as text.
        let value = match self.takes_sign("(") {
            false => self.text("a value")?,
            true => {
                let (mut value, mut open) = (String::from("("), 1);
                while open > 0 {
                    let Some(token) = self.next() else { return Err(self.unexpected(")")) };
                    match token {
                        Token::Sign("(") => open += 1,
                        Token::Sign(")") => open -= 1,
                        _ => {}
                    }
                    value += token.text();
                }
                value
            }
        };
        Ok((attribute, value))
    }

    fn spool(&mut self) -> Result<Spool, Error> {
        if self.peek().is_none() {
            return Ok(Spool::Show);
        }
        if self.takes("OFF") {
            return Ok(Spool::Off);
        }
        let path = PathBuf::from(self.text("OFF or the name of a file")?);
        let mode = match () {
            () if self.takes("CREATE") => SpoolMode::Create,
            () if self.takes("APPEND") => SpoolMode::Append,
            () => {
                self.takes("REPLACE");
                SpoolMode::Replace
            }
        };
        Ok(Spool::Write { path, mode })
    }
}

fn clauses() -> String {
    "ATTRIBUTES, DETAIL, WHERE, ORDER BY or LIMIT, each at most once".to_owned()
}

#[cfg(test)]
mod tests;
