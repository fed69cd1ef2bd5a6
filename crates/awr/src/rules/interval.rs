//! Rules about the interval itself: what its figures omit.

use super::{Found, Judgement, share_text};
use crate::figures::time::foreground_waits;
use crate::table::duration;
use crate::view::{View, time_text};

/// Kinds of notes that make figures incomplete.
const INTERRUPTIONS: [&str; 7] = ["restart", "crash", "reset", "evicted", "clock", "upgrade", "failed"];
const ROWS: usize = 8;

/// The least unaccounted time, in per cent of DB time.
const UNACCOUNTED_PERCENT: f64 = 20.0;
/// Parts that exceed DB time by fewer standard errors of the sampled waits may do so by chance.
const STANDARD_ERRORS: f64 = 3.0;

pub(super) fn unaccounted(view: &View<'_>) -> Judgement {
    let us = view.model.unaccounted_us()?;
    let percent = view.model.percent_of_db_time(Some(us))?;
    if percent <= -UNACCOUNTED_PERCENT {
        return Some(exceeded(view, -us).into_iter().collect());
    }
    if percent < UNACCOUNTED_PERCENT {
        return Some(Vec::new());
    }
    let found = Found::new("A part of DB time is neither DB CPU nor a wait")
        .impact(us)
        .evidence("time-model", format!("unaccounted for: {}, {}", duration(us), share_text(view, us)))
        .recommend("Shorten cellar.awr_sample_period for short waits, and check that no source is missing", None);
    Some(vec![found])
}

/// The parts of DB time exceed DB time: DB time lacks sessions, or the parts contain too much.
fn exceeded(view: &View<'_>, us: f64) -> Option<Found> {
    let error_us =
        foreground_waits(view.document).filter_map(|event| event.stderr_us).map(|us| us * us).sum::<f64>().sqrt();
    if us <= STANDARD_ERRORS * error_us {
        return None;
    }
    let text =
        format!("unaccounted for: -{}; standard error of the sampled waits: {}", duration(us), duration(error_us));
    let found = Found::new("DB CPU and waits exceed DB time").evidence("time-model", text);
    Some(
        found.recommend(
            "Set track_activities to on for all roles and databases: DB time lacks sessions without it",
            None,
        ),
    )
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
