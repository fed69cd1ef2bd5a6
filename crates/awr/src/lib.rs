//! AWR reports: a report document in; text, HTML or JSON out.
//!
//! The crate is pure: no I/O, no clock, no knowledge of PostgreSQL or of cells. [`document`] is the input. [`figures`]
//! contains each derived figure once, with its definition. [`sections`] turns a document into titled tables; every
//! output form and the comparison of periods read the same tables. [`rules`] judges a document by the rules of one table,
//! and returns [`findings`]. [`report`] puts sections together: one instance, several instances, two periods. [`render`] writes a report.
//! [`oracle`] reads Oracle's reports.

pub mod document;
pub mod figures;
pub mod findings;
pub mod oracle;
pub mod render;
pub mod report;
pub mod rules;
pub mod sections;
pub mod sql_id;
pub mod table;
pub mod view;
