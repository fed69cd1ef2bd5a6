//! The tests of the program, one module per file: one program links faster than one per file.

#![recursion_limit = "512"]

#[path = "../../awr/tests/support/mod.rs"]
mod support;

mod awr;
mod cellcli;
mod daemon;
mod dcli;
mod devices;
mod flash;
mod inspect;
mod keep_awake;
