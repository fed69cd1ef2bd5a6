//! What the layers know of a request to a cell disk besides its bytes: who issues it, and whether others wait for it.

mod origin;
mod urgent;

pub use origin::{DatabaseId, GroupId, IoKind, IoSize, Origin, SMALL_BYTES_MAX, carried, current, within};
pub(crate) use urgent::{Expedited, Urgency, Waiting, is_urgent, with_urgency};
