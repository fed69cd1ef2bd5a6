//! Evaluates conditions, and orders objects.

use super::ast::{Condition, Operand, Operator, Order};
use super::error::Error;
use super::objects::{Object, ObjectType};
use super::recorded::{ALL_TIMES, Recorded, Times};
use super::value::Value;
use regex_lite::Regex;

/// Bytes of memory that a compiled pattern may take.
const PATTERN_SIZE_MAX: usize = 1 << 20;

/// Compiles the regular expression of LIKE. It describes the whole value, and is case-sensitive.
///
/// Oracle's manual writes alternatives in brackets, `severity like '[warning|critical]'`. As a regular expression this describes
/// one character, so that a pattern of this form also describes each of the alternatives.
pub fn pattern(text: &str) -> Result<Regex, Error> {
    let shown = text;
    let bracketed = alternatives(text).map(|alternatives| format!("{text}|{alternatives}"));
    let text = bracketed.as_deref().unwrap_or(text);
    let compile = |text: &str| regex_lite::RegexBuilder::new(text).size_limit(PATTERN_SIZE_MAX).build();
    // On its own first: parentheses that only match those added below are an error.
    let compiled = compile(text).and_then(|_| {
        // A comment, which flag x allows, ends with its line. If # begins a comment, the parenthesis after it is missing.
        let line_end = if compile(&format!("(?:{text}#)")).is_err() { "\n" } else { "" };
        compile(&format!("^(?:{text}{line_end})$"))
    });
    compiled.map_err(|error| Error::invalid_value(format!("\"{shown}\" is not a regular expression: {error}")))
}

/// Returns the alternatives of a pattern that consists of words with `|` between them, in brackets.
fn alternatives(pattern: &str) -> Option<&str> {
    let inner = pattern.strip_prefix('[')?.strip_suffix(']')?;
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "_- ".contains(c));
    (inner.contains('|') && inner.split('|').all(is_word)).then_some(inner)
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
            Condition::Compare { attribute, operator: Operator::Like, operand } if !operand.is_empty() => {
                let (index, pattern) = (object_type.attribute(attribute)?, pattern(operand.text())?);
                Self::Like { index, pattern, operand: operand.clone() }
            }
            Condition::Compare { attribute, operator, operand } => {
                let index = object_type.attribute(attribute)?;
                // LIKE NULL and LIKE '' mean that the attribute is not set.
                let operator = if *operator == Operator::Like { Operator::Equal } else { *operator };
                Self::Compare { index, operator, operand: operand.clone() }
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
                value => Some(value.equals_number(operand) || pattern.is_match(&value.plain())),
            },
        }
    }
}

impl Filter {
    /// Returns the times in milliseconds since 1970 outside of which the condition does not hold, as far as attributes that tell
    /// the time decide about it. Fails if the condition compares such an attribute with something else than a time.
    pub fn times(&self, attributes: &[Recorded]) -> Result<Times, Error> {
        Ok(match self {
            Self::And(left, right) => {
                let (left, right) = (left.times(attributes)?, right.times(attributes)?);
                *left.start().max(right.start())..=*left.end().min(right.end())
            }
            Self::Or(left, right) => {
                let (left, right) = (left.times(attributes)?, right.times(attributes)?);
                *left.start().min(right.start())..=*left.end().max(right.end())
            }
            Self::Not(inner) => inner.times(attributes).map(|_| ALL_TIMES)?,
            Self::Compare { index, operator, operand } => {
                match attributes.iter().find(|attribute| attribute.index() == *index) {
                    Some(attribute) => attribute.times(*operator, operand)?,
                    None => ALL_TIMES,
                }
            }
            Self::Like { .. } => ALL_TIMES,
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
            ("[warning|critical]", "warning", true),
            ("[warning|critical]", "w", true),
            ("[warning|critical]", "warnings", false),
            ("[^a|b]", "b", false),
            ("[a|]", "a", true),
            ("[ab|c].*", "ab|c", true),
            ("[ab|c].*", "xab", false),
        ] {
            assert_eq!(pattern(text).unwrap().is_match(value), expected, "{text} {value}");
        }
        let error = pattern("a)|(?:b").unwrap_err().to_string();
        assert!(error.contains("\"a)|(?:b\" is not a regular expression"), "{error}");
    }
}
