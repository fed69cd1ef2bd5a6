//! Reading Oracle's reports: AWR (instance, RAC global, PDB, comparison, SQL) and Statspack, as HTML or text.
//!
//! [`model`] is the model of a report; [`value`] interprets its cells.

pub mod model;
pub mod value;
