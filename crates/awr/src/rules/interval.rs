//! Rules about the interval itself: what its figures omit.

use super::{Found, Judgement, share_text};
use crate::table::duration;
use crate::view::{View, time_text};

/// Kinds of notes that make figures incomplete.
const INTERRUPTIONS: [&str; 7] = ["restart", "crash", "reset", "evicted", "clock", "upgrade", "failed"];
const ROWS: usize = 8;

pub(super) fn unaccounted(view: &View<'_>) -> Judgement {
    let us = view.model.unaccounted_us()?;
    if view.model.percent_of_db_time(Some(us))? < 20.0 {
        return Some(Vec::new());
    }
    let found = Found::new("A part of DB time is neither DB CPU nor a wait")
        .impact(us)
        .evidence("time-model", format!("unaccounted for: {}, {}", duration(us), share_text(view, us)))
        .recommend("Shorten cellar.awr_sample_period for short waits, and check that no source is missing", None);
    Some(vec![found])
}

pub(super) fn interrupted(view: &View<'_>) -> Judgement {
    let interrupts = |kind: &str| INTERRUPTIONS.iter().any(|interruption| kind.contains(interruption));
    let notes: Vec<_> = view.document.notes.iter().filter(|note| interrupts(&note.kind)).collect();
    if notes.is_empty() {
        return Some(Vec::new());
    }
    let mut found = Found::new("Events in the interval make its figures incomplete");
    for note in notes.iter().take(ROWS) {
        let object = note.object.known().map_or_else(String::new, |object| format!(" ({object})"));
        found = found.evidence("notes", format!("{}: {}{object}: {}", time_text(&note.time), note.kind, note.text));
    }
    Some(vec![found.recommend("Prefer an interval without these events", None)])
}
