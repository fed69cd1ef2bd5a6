//! A document with the figures that sections and rules use, and helpers for both.

mod sql;

pub use sql::{Sql, by_plan, captured_us};

use crate::document::{Document, Measure, Timestamp};
use crate::figures::load::transactions;
use crate::figures::time::TimeModel;
use crate::sql_id;

pub struct View<'a> {
    pub document: &'a Document,
    pub model: TimeModel,
    pub transactions: Measure,
    /// Statements, summed over roles and plans.
    pub sql: Vec<Sql<'a>>,
}

impl<'a> View<'a> {
    pub fn new(document: &'a Document) -> Self {
        Self {
            document,
            model: TimeModel::of(document),
            transactions: transactions(document),
            sql: sql::aggregate(document),
        }
    }

    /// A total as a rate per second.
    pub fn per_second(&self, total: Measure) -> Measure {
        crate::figures::per_second(total, self.document.elapsed_us)
    }

    /// Whether the document has statistics of statements: of those that did not end, it has only texts.
    pub fn has_statistics(&self) -> bool {
        self.sql.iter().any(|sql| sql.calls.is_some() || sql.elapsed_us.is_some())
    }

    /// A statement's time as per cent of DB time; None for a statement of background workers, which is no part of DB time.
    pub fn sql_percent(&self, sql: &Sql<'_>) -> Measure {
        self.model.percent_of_db_time(sql.elapsed_us.filter(|_| !sql.is_background))
    }

    /// Returns what the source's detail says about its absence, or else the hint.
    pub fn missing(&self, source: &str, hint: &str) -> String {
        match self.document.source(source) {
            Some(found) if found.available == Some(false) && !found.detail.is_empty() => {
                format!("Not available: {source}: {}", found.detail)
            }
            _ => format!("Not available: {hint}"),
        }
    }

    /// The text of a statement on one line, cut to a number of characters; its SQL_ID if the text is unknown.
    pub fn sql_text(&self, query_id: Option<i64>, characters: usize) -> String {
        let Some(query_id) = query_id else { return String::new() };
        let known = self.sql.iter().find(|sql| sql.query_id == Some(query_id) && !sql.text.is_empty());
        known.map_or_else(|| sql_id::format(query_id), |sql| one_line(sql.text, characters))
    }
}

/// A text on one line, cut to a number of characters.
pub fn one_line(text: &str, characters: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.chars().count() > characters {
            return line.chars().take(characters.saturating_sub(1)).chain(['…']).collect();
        }
    }
    line
}

/// The name of a relation with its schema, if known.
pub fn qualified(schema: &str, name: &str) -> String {
    if schema.is_empty() { name.to_owned() } else { format!("{schema}.{name}") }
}

/// A time stamp of the document in Oracle's form; unchanged if the text is no time stamp.
pub fn time_text(time: &str) -> String {
    Timestamp::parse(time).map_or_else(|| time.to_owned(), |time| time.to_string())
}

/// The items with a key above 0, greatest key first, at most `rows`.
pub fn top<T>(items: impl IntoIterator<Item = T>, rows: usize, key: impl Fn(&T) -> Measure) -> Vec<T> {
    let mut keyed: Vec<(f64, T)> =
        items.into_iter().filter_map(|item| key(&item).filter(|key| *key > 0.0).map(|key| (key, item))).collect();
    keyed.sort_by(|a, b| b.0.total_cmp(&a.0));
    keyed.truncate(rows);
    keyed.into_iter().map(|(_, item)| item).collect()
}
