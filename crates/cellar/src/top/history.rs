//! The readings of the last minutes, and active sessions over time.

use super::reading::{CLASSES, IDLE, NO_DATABASE, Reading, Session, class_index};
use std::collections::VecDeque;

/// Slots of the chart that are kept.
pub const SLOTS_MAX: usize = 600;
/// Slots whose samples average the activity of statements.
pub const WINDOW_SLOTS: usize = 60;
/// Readings before the last one that rates are computed over.
const RATE_READINGS: usize = 5;

/// The active sessions at one moment.
#[derive(Debug, Clone, Default)]
pub struct Slot {
    pub classes: [f64; CLASSES],
    /// Empty for slots from before the start.
    pub samples: Vec<Sample>,
}

impl Slot {
    pub fn total(&self) -> f64 {
        self.classes[..IDLE].iter().fold(0.0, |sum, sessions| sum + sessions)
    }
}

/// Identifies a statement in one database. PostgreSQL knows the query identifier only after it has parsed the statement and
/// locked its tables; before, the text identifies the statement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatementKey {
    pub query_id: Option<i64>,
    /// Empty if there is a query identifier.
    pub text: String,
    pub database: String,
}

impl StatementKey {
    pub fn counted(query_id: i64, database: String) -> Self {
        Self { query_id: Some(query_id), text: String::new(), database }
    }

    /// Returns the statement of a session; None without a statement.
    pub fn of(session: &Session) -> Option<Self> {
        let database = session.database.clone().unwrap_or_else(|| NO_DATABASE.to_owned());
        match (session.query_id, &session.query) {
            (Some(query_id), _) => Some(Self::counted(query_id, database)),
            (None, Some(text)) => Some(Self { query_id: None, text: text.clone(), database }),
            (None, None) => None,
        }
    }
}

/// One active session.
#[derive(Debug, Clone)]
pub struct Sample {
    pub pid: i32,
    pub class: usize,
    /// The wait event; None on a CPU.
    pub event: Option<String>,
    pub statement: Option<StatementKey>,
    pub database: Option<String>,
}

#[derive(Debug, Default)]
pub struct History {
    readings: VecDeque<Reading>,
    slots: VecDeque<Slot>,
    /// Number of slots since the start.
    pushed: usize,
}

impl History {
    /// Adds the slots before the start: seconds before now, class, number of sessions.
    pub fn begin_with(&mut self, activity: &[(f64, String, f64)], interval_seconds: f64) {
        let oldest = activity.iter().map(|(age, ..)| *age).fold(0.0, f64::max);
        let count = ((oldest / interval_seconds).ceil() as usize).min(SLOTS_MAX / 2);
        let mut slots = vec![Slot::default(); count];
        // A slot longer than a second averages the seconds that it contains.
        let weight = 1.0 / interval_seconds.max(1.0);
        for (age, class, sessions) in activity {
            let before = (age / interval_seconds) as usize;
            if before < count {
                slots[count - 1 - before].classes[class_index(class)] += sessions * weight;
            }
        }
        self.slots = slots.into();
    }

    pub fn push(&mut self, reading: Reading) {
        if reading.server.is_some() {
            let mut slot = Slot::default();
            for session in reading.sessions.iter().filter(|session| session.is_active) {
                slot.classes[session.class()] += 1.0;
                slot.samples.push(Sample {
                    pid: session.pid,
                    class: session.class(),
                    event: session.wait_event.clone(),
                    statement: StatementKey::of(session),
                    database: session.database.clone(),
                });
            }
            self.slots.push_back(slot);
            self.pushed += 1;
        }
        self.readings.push_back(reading);
        while self.slots.len() > SLOTS_MAX {
            self.slots.pop_front();
        }
        while self.readings.len() > RATE_READINGS + 1 {
            self.readings.pop_front();
        }
    }

    pub fn last(&self) -> Option<&Reading> {
        self.readings.back()
    }

    /// Returns the reading that rates are computed from: the oldest one since the server and the cells answer alike.
    pub fn base(&self) -> Option<&Reading> {
        let last = self.readings.back()?;
        let is_comparable = |reading: &&Reading| {
            let (before, after) = (reading.server.as_ref(), last.server.as_ref());
            let is_same_start = match (before, after) {
                (Some(before), Some(after)) => before.uptime_seconds <= after.uptime_seconds,
                (before, after) => before.is_some() == after.is_some(),
            };
            is_same_start
                && reading.cell_io.is_empty() == last.cell_io.is_empty()
                && reading.statements.is_empty() == last.statements.is_empty()
        };
        let count = self.readings.len().saturating_sub(1);
        self.readings.iter().take(count).find(is_comparable)
    }

    pub fn slots(&self) -> &VecDeque<Slot> {
        &self.slots
    }

    /// The slots since the start, of the last minute if the interval is a second; newest last.
    pub fn window(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().skip(self.slots.len() - self.pushed.min(WINDOW_SLOTS).min(self.slots.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_activity_fills_the_slots_before_now() {
        let mut history = History::default();
        let activity = [(0.0, "CPU".to_owned(), 2.0), (3.0, "CPU".to_owned(), 1.0), (3.0, "User I/O".to_owned(), 4.0)];
        history.begin_with(&activity, 1.0);
        let totals: Vec<f64> = history.slots().iter().map(Slot::total).collect();
        assert_eq!(totals, [0.0, 0.0, 2.0]);
        history.begin_with(&activity, 2.0);
        let totals: Vec<f64> = history.slots().iter().map(Slot::total).collect();
        assert_eq!(totals, [2.5, 1.0]);
    }
}
