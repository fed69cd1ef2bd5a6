//! Errors of commands, with a number as CellCLI prints it. 01504 and 01514 are Oracle's numbers for the same errors; Oracle uses
//! no number from 90001 on.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    number: u32,
    message: String,
}

impl Error {
    /// `found` is the token that does not fit, None at the end of the command.
    pub fn syntax(found: Option<&str>, expected: &str) -> Self {
        let found = found.map_or_else(|| "the end of the command".to_owned(), |token| format!("\"{token}\""));
        Self { number: 1504, message: format!("invalid command syntax at {found}: expected {expected}") }
    }

    pub fn no_connection(message: impl fmt::Display) -> Self {
        Self { number: 1514, message: message.to_string() }
    }

    pub fn unknown_attribute(object_type: &str, attribute: &str, attributes: &[&str]) -> Self {
        let message = format!(
            "\"{attribute}\" is not an attribute of {object_type}; its attributes are {}",
            attributes.join(", ")
        );
        Self { number: 90001, message }
    }

    pub fn unknown_object(object_type: &str, name: &str, names: &[String]) -> Self {
        let mut known = names.to_vec();
        known.sort();
        known.dedup();
        let exist = match known.len() {
            0 => format!("this cell has no {object_type}"),
            1..=16 => format!("this cell has {}", known.join(", ")),
            many => format!("LIST {object_type} shows the {many} that exist"),
        };
        Self { number: 90002, message: format!("{object_type} \"{name}\" does not exist; {exist}") }
    }

    /// A command for all objects of a type of which the cell has none.
    pub fn no_object(object_type: &str, reason: &str) -> Self {
        Self { number: 90002, message: format!("{object_type}: {reason}") }
    }

    /// An object type of CellCLI that cells do not have.
    pub fn absent_type(object_type: &str, reason: &str) -> Self {
        Self { number: 90003, message: format!("{object_type}: {reason}") }
    }

    pub fn unsupported(message: impl Into<String>) -> Self {
        Self { number: 90004, message: message.into() }
    }

    pub fn refused(message: impl fmt::Display) -> Self {
        Self { number: 90005, message: message.to_string() }
    }

    pub fn read_only(verb: &str) -> Self {
        Self { number: 90006, message: format!("{verb} changes the cell, which option -m forbids") }
    }

    pub fn invalid_value(message: impl Into<String>) -> Self {
        Self { number: 90007, message: message.into() }
    }

    pub fn file(action: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self { number: 90008, message: format!("could not {action} {}: {error}", path.display()) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CELL-{:05}: {}", self.number, self.message)
    }
}
