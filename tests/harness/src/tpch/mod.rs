//! TPC-H: data and published answers.

pub mod answers;
pub mod load;
