//! Field types of the report document that accept what `jsonb` builders produce: NULL for an empty list or text, and
//! numbers where the document has text.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;
use std::fmt;
use std::ops::Deref;

/// A text. NULL becomes the empty text; numbers and booleans become their JSON form.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(String);

impl Text {
    /// Returns the text, or None if the text is empty.
    pub fn known(&self) -> Option<&str> {
        (!self.0.is_empty()).then_some(self.0.as_str())
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Null => Ok(Self::default()),
            Value::String(text) => Ok(Self(text)),
            scalar @ (Value::Bool(_) | Value::Number(_)) => Ok(Self(scalar.to_string())),
            other => Err(D::Error::custom(format!("expected a text, found {other}"))),
        }
    }
}

/// A list. NULL becomes the empty list, because `jsonb_agg` returns NULL for no rows.
#[derive(Clone, Debug, PartialEq)]
pub struct List<T>(Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> From<Vec<T>> for List<T> {
    fn from(items: Vec<T>) -> Self {
        Self(items)
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default()))
    }
}
