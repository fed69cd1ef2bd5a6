//! The JSON document of the page: the document of `cellar top --json` with bounded lists, and the active sessions over time.

use crate::top::history::{History, Slot};
use crate::top::reading::IDLE;
use crate::top::view::View;
use cellar_awr::figures::time::CLASSES as CLASS_NAMES;
use serde::Serialize;

/// Statements and sessions that a document contains; a page is read each second.
const ROWS_MAX: usize = 200;

#[derive(Serialize)]
pub struct Document {
    #[serde(flatten)]
    view: View,
    interval_seconds: f64,
    /// Number of processes, of which `sessions` lists those that the screen shows.
    session_count: usize,
    /// The classes of the elements of `activity`.
    wait_classes: &'static [&'static str],
    /// Active sessions in each slot of `interval_seconds`, by wait class; the newest slot is last.
    activity: Vec<[f64; IDLE]>,
}

impl Document {
    /// Returns None before the first reading.
    pub fn of(history: &History, interval_seconds: f64) -> Option<Self> {
        let mut view = View::of(history)?;
        let session_count = view.sessions.len();
        view.sessions.retain(|session| session.is_busy());
        view.sessions.sort_by(|a, b| a.list_order(b));
        view.sessions.truncate(ROWS_MAX);
        view.statements.truncate(ROWS_MAX);
        if view.server.as_ref().is_some_and(|server| !server.reads_all_statistics) {
            view.hide_texts();
        }
        let of_slot = |slot: &Slot| std::array::from_fn(|class| slot.classes[class]);
        let activity = history.slots().iter().map(of_slot).collect();
        Some(Self { view, interval_seconds, session_count, wait_classes: &CLASS_NAMES[..IDLE], activity })
    }
}
