//! Heap pages as bytes: headers, line pointers, tuples, and the locations of columns in tuples.
//!
//! Invariants: every length and offset read from a page is checked before use. This module knows neither visibility nor
//! predicates.

mod checksum;
mod page;
mod page_rows;
mod pglz;
mod prefetch;
mod tuple_layout;
pub mod varlena;

pub use checksum::page_checksum;
pub use page::{Malformed, Page, TupleHeader, is_normal, placement, u16_at, u32_at};
pub use page_rows::{Item, MISSING, NULL, PAGES_BYTES_MAX, PageRows};
pub use prefetch::Prefetch;
pub use tuple_layout::{AttributeRun, Slot, TupleLayout};
