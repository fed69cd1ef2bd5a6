//! The tests of the crate, one module per file: one program links faster than one per file.

mod support;

mod aggregate;
mod hostile_bytes;
mod index;
mod memory;
mod postgres;
mod top_n;
mod unit;
mod unit_postgres;
mod unit_scan;
