//! Commands as the parser returns them. Object types are names of [`super::objects`], in upper case.

use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    List(List),
    Describe(&'static str),
    /// The words of the topic; empty for the list of topics.
    Help(Vec<String>),
    Alter(Alter),
    /// Measures the disks; with `is_forced` also while they serve requests.
    Calibrate {
        is_forced: bool,
    },
    DropFlashCache,
    Create {
        object_type: &'static str,
        name: String,
        values: Vec<(String, String)>,
    },
    Drop {
        object_type: &'static str,
        targets: Targets,
        filter: Option<Condition>,
    },
    /// Another CREATE or DROP, with the object type, if the command names one.
    Unsupported {
        verb: &'static str,
        object_type: Option<&'static str>,
    },
    Start(PathBuf),
    Spool(Spool),
    SetEcho(bool),
    /// The only format, STANDARD.
    SetDateFormat,
    Exit,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    pub object_type: &'static str,
    /// Empty for all objects.
    pub names: Vec<String>,
    pub attributes: Attributes,
    pub detail: bool,
    pub filter: Option<Condition>,
    pub order: Vec<Order>,
    pub limit: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attributes {
    /// Those that the object type shows without a list of attributes.
    Default,
    All,
    Named(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub attribute: String,
    pub descending: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
    Compare { attribute: String, operator: Operator, operand: Operand },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Like,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    Null,
    /// A number, a size with a suffix, a time or a literal such as `normal`.
    Bare(String),
    /// Always compared as a string.
    Quoted(String),
}

impl Operand {
    /// Returns whether the operand stands for an attribute that is not set.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bare(text) | Self::Quoted(text) => text.is_empty(),
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Self::Null => "NULL",
            Self::Bare(text) | Self::Quoted(text) => text,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alter {
    pub object_type: &'static str,
    pub targets: Targets,
    pub filter: Option<Condition>,
    pub operation: Operation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Targets {
    /// No name, as for the only object of a type.
    None,
    All,
    Named(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// The words after the targets, in upper case, with the names that follow DISK as they are written.
    Words(Vec<String>),
    Assign(Vec<(String, String)>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spool {
    Off,
    Show,
    Write { path: PathBuf, mode: SpoolMode },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpoolMode {
    Create,
    Append,
    Replace,
}
