//! TPC-H: tables and data, and the published answers.

pub mod answers;
pub mod load;
