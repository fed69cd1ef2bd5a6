//! Evaluates conditions, and orders objects.

use super::ast::{Condition, Operand, Operator, Order};
use super::error::Error;
use super::objects::{Object, ObjectType};
use super::value::{self, Value};
use regex_lite::Regex;
use std::ops::RangeInclusive;

/// Bytes of memory that a compiled pattern may take.
const PATTERN_SIZE_MAX: usize = 1 << 20;

/// Compiles the regular expression of LIKE. It describes the whole value, and is case-sensitive. In `[a|b]`, the words between the
/// bars are alternatives, too: Oracle's manual writes `severity like '[warning|critical]'`.
pub fn pattern(text: &str) -> Result<Regex, Error> {
    let words = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match words.filter(|words| words.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '|' | '_' | ' '))) {
        Some(words) if words.contains('|') => compiled(&format!("{text}|{words}")),
        _ => compiled(text),
    }
}

fn compiled(text: &str) -> Result<Regex, Error> {
    let compile = |text: &str| regex_lite::RegexBuilder::new(text).size_limit(PATTERN_SIZE_MAX).build();
    // On its own first: parentheses that only match those added below are an error.
    let compiled = compile(text).and_then(|_| {
        // A comment, which flag x allows, ends with its line. If # begins a comment, the parenthesis after it is missing.
        let line_end = if compile(&format!("(?:{text}#)")).is_err() { "\n" } else { "" };
        compile(&format!("^(?:{text}{line_end})$"))
    });
    compiled.map_err(|error| Error::invalid_value(format!("\"{text}\" is not a regular expression: {error}")))
}

/// A condition whose attributes and patterns are resolved for an object type.
pub enum Filter {
    And(Box<Filter>, Box<Filter>),
    Or(Box<Filter>, Box<Filter>),
    Not(Box<Filter>),
    Compare { index: usize, operator: Operator, operand: Operand },
    Like { index: usize, pattern: Regex, operand: Operand },
}

impl Filter {
    pub fn new(condition: &Condition, object_type: &dyn ObjectType) -> Result<Self, Error> {
        let new = |condition: &Condition| Self::new(condition, object_type).map(Box::new);
        Ok(match condition {
            Condition::And(left, right) => Self::And(new(left)?, new(right)?),
            Condition::Or(left, right) => Self::Or(new(left)?, new(right)?),
            Condition::Not(inner) => Self::Not(new(inner)?),
            Condition::Compare { attribute, operator: Operator::Like, operand } => {
                let (index, pattern) = (object_type.attribute(attribute)?, pattern(operand.text())?);
                Self::Like { index, pattern, operand: operand.clone() }
            }
            Condition::Compare { attribute, operator, operand } => {
                let index = object_type.attribute(attribute)?;
                Self::Compare { index, operator: *operator, operand: operand.clone() }
            }
        })
    }

    /// Returns whether the condition holds for an object; None if that depends on a value that is not read yet.
    pub fn holds(&self, object: &Object) -> Option<bool> {
        match self {
            Self::And(left, right) => match (left.holds(object), right.holds(object)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (left, right) => left.and(right),
            },
            Self::Or(left, right) => match (left.holds(object), right.holds(object)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (left, right) => left.and(right),
            },
            Self::Not(inner) => inner.holds(object).map(|holds| !holds),
            Self::Compare { index, operator, operand } => match &object[*index] {
                Value::Pending => None,
                value => Some(value.compare(*operator, operand)),
            },
            Self::Like { index, pattern, operand } => match &object[*index] {
                Value::Pending => None,
                Value::Unset => Some(false),
                value if value.is_number_for(operand) => Some(value.compare(Operator::Equal, operand)),
                value => Some(pattern.is_match(&value.plain())),
            },
        }
    }
}

impl Filter {
    /// Returns the times in milliseconds since 1970 outside of which the condition does not hold, as far as an attribute of that
    /// index decides about it. Fails if the condition compares the attribute with something else than a time.
    pub fn times(&self, index: usize) -> Result<RangeInclusive<u64>, Error> {
        const ALL: RangeInclusive<u64> = 0..=u64::MAX;
        Ok(match self {
            Self::And(left, right) => {
                let (left, right) = (left.times(index)?, right.times(index)?);
                *left.start().max(right.start())..=*left.end().min(right.end())
            }
            Self::Or(left, right) => {
                let (left, right) = (left.times(index)?, right.times(index)?);
                *left.start().min(right.start())..=*left.end().max(right.end())
            }
            Self::Not(inner) => inner.times(index).map(|_| ALL)?,
            Self::Compare { index: at, operator, operand } if *at == index => {
                let text = operand.text();
                let Some(time) = value::time(text) else {
                    return Err(Error::invalid_value(format!(
                        "\"{text}\" is not a time; write one like '2026-08-06T11:30:00'"
                    )));
                };
                // The attribute has whole seconds, a record milliseconds.
                let time = (time.seconds() * 1000.0).max(0.0) as u64;
                match operator {
                    Operator::Less | Operator::LessOrEqual => 0..=time.saturating_add(999),
                    Operator::Greater | Operator::GreaterOrEqual => time..=u64::MAX,
                    Operator::Equal | Operator::Like => time..=time.saturating_add(999),
                }
            }
            _ => ALL,
        })
    }

    /// Returns whether the condition is about the attribute of this index only.
    pub fn is_only_about(&self, index: usize) -> bool {
        match self {
            Self::And(left, right) | Self::Or(left, right) => left.is_only_about(index) && right.is_only_about(index),
            Self::Not(inner) => inner.is_only_about(index),
            Self::Compare { index: at, .. } | Self::Like { index: at, .. } => *at == index,
        }
    }
}

/// Orders objects by attributes. Objects that are equal keep their order.
pub fn sort(objects: &mut [Object], order: &[Order], object_type: &dyn ObjectType) -> Result<(), Error> {
    let keys = order.iter().map(|order| Ok((object_type.attribute(&order.attribute)?, order.descending)));
    let keys = keys.collect::<Result<Vec<(usize, bool)>, Error>>()?;
    objects.sort_by(|left, right| {
        let compared = keys.iter().map(|(index, descending)| {
            let ordering = left[*index].order(&right[*index]);
            if *descending { ordering.reverse() } else { ordering }
        });
        compared.into_iter().find(|ordering| ordering.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_describe_the_whole_value() {
        for (text, value, expected) in [
            ("a|b", "b", true),
            ("a|b", "bc", false),
            ("(?x) a b # comment", "ab", true),
            ("(?x) a b # comment", "abc", false),
            ("(?x:a b)", "ab", true),
            ("a#", "a#", true),
            ("a", "a\n", false),
            ("[warning|critical]", "critical", true),
            ("[warning|critical]", "critical!", false),
            ("[023]", "2", true),
            ("[023]", "23", false),
        ] {
            assert_eq!(pattern(text).unwrap().is_match(value), expected, "{text} {value}");
        }
        let error = pattern("a)|(?:b").unwrap_err().to_string();
        assert!(error.contains("\"a)|(?:b\" is not a regular expression"), "{error}");
    }
}
