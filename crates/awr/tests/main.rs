//! The tests of the crate, one module per file: one program links faster than one per file.

#![recursion_limit = "512"]

mod oracle_support;
mod support;

mod articles;
mod history;
mod oracle;
mod oracle_forms;
mod oracle_outputs;
mod reports;
mod rules;
mod statement;
