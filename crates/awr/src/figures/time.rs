//! The time model: where sessions spent their time.

use super::{percent, ratio, sum};
use crate::document::{Document, Event, How, Measure, names};

/// Wait classes, in the order of Oracle's documentation; `CPU` is first.
pub const CLASSES: [&str; 13] = [
    "CPU",
    "User I/O",
    "System I/O",
    "Commit",
    "Concurrency",
    "Application",
    "Configuration",
    "Administrative",
    "Network",
    "Cluster",
    "Scheduler",
    "Other",
    "Idle",
];

/// DB time and its parts, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeModel {
    pub elapsed_us: Measure,
    /// Wall-clock time that foreground sessions were active in a request.
    pub db_time_us: Measure,
    pub db_cpu_us: Measure,
    /// Time that foreground sessions were runnable, but waited for a core.
    pub run_queue_us: Measure,
    /// Non-idle waits of foreground sessions.
    pub wait_us: Measure,
    /// Idle waits inside of statements, such as pg_sleep(): a part of DB time, because PostgreSQL counts the sessions as active.
    pub idle_us: Measure,
}

impl TimeModel {
    pub fn of(document: &Document) -> Self {
        let databases = |field: fn(&crate::document::Database) -> Measure| sum(document.databases.iter().map(field));
        Self {
            elapsed_us: document.elapsed_us,
            db_time_us: document.db_time_us.or_else(|| document.time(names::time::DB_TIME)),
            db_cpu_us: document.time(names::time::DB_CPU),
            run_queue_us: document.time(names::time::RUN_QUEUE).or_else(|| databases(|database| database.run_queue_us)),
            wait_us: sum(foreground_waits(document).map(|event| event.time_us)),
            // Oracle's idle waits are no part of DB time; PostgreSQL's are sampled in sessions that execute a statement.
            idle_us: sum(document
                .events
                .iter()
                .filter(|event| is_foreground(event) && &*event.class == "Idle" && event.how == Some(How::Sampled))
                .map(|event| event.time_us)),
        }
    }

    /// Time waiting for a core outside of waits. A session that was woken from a wait shows the wait until the session
    /// runs, so that a part of the run-queue time is in the waits already: the time that DB CPU and waits leave of DB time
    /// bounds the other part.
    pub fn run_queue_outside_waits_us(&self) -> Measure {
        let run_queue_us = self.run_queue_us?;
        match (self.db_time_us, self.db_cpu_us) {
            (Some(db_time), Some(cpu)) => Some(run_queue_us.min((db_time - cpu - self.all_waits_us()).max(0.0))),
            _ => Some(run_queue_us),
        }
    }

    /// DB time that is neither DB CPU, nor waiting for a core, nor a wait, idle or not. Negative if the parts exceed DB time, which
    /// sampled waits can. None without DB time or DB CPU.
    ///
    /// Source: DB time = DB CPU + waits, the Oracle Database Performance Method.
    pub fn unaccounted_us(&self) -> Measure {
        let run_queue_us = self.run_queue_outside_waits_us().unwrap_or(0.0);
        Some(self.db_time_us? - self.db_cpu_us? - run_queue_us - self.all_waits_us())
    }

    /// All waits that are part of DB time.
    fn all_waits_us(&self) -> f64 {
        self.wait_us.unwrap_or(0.0) + self.idle_us.unwrap_or(0.0)
    }

    /// Average active sessions: DB time per elapsed time.
    pub fn average_active_sessions(&self) -> Measure {
        ratio(self.db_time_us, self.elapsed_us)
    }

    /// A time as per cent of DB time.
    pub fn percent_of_db_time(&self, us: Measure) -> Measure {
        percent(us, self.db_time_us)
    }

    /// A time as average active sessions: the number of sessions that spent the whole interval with it.
    pub fn active_sessions(&self, us: Measure) -> Measure {
        ratio(us, self.elapsed_us)
    }

    /// Sessions on CPU or waiting for a core: (DB CPU + run queue) per elapsed time.
    pub fn sessions_on_cpu(&self) -> Measure {
        ratio(sum([self.db_cpu_us, self.run_queue_us]), self.elapsed_us)
    }

    /// CPU utilisation of the host by foreground sessions, in per cent.
    pub fn percent_of_host_cpu(&self, cpus: Measure) -> Measure {
        percent(ratio(self.db_cpu_us, self.elapsed_us), cpus)
    }
}

/// Average time of one wait, in microseconds.
pub fn average_wait_us(time_us: Measure, waits: Measure) -> Measure {
    ratio(time_us, waits)
}

/// Non-idle waits of foreground sessions. An event without the mark is a foreground event.
pub fn foreground_waits(document: &Document) -> impl Iterator<Item = &Event> {
    document.events.iter().filter(|event| is_foreground(event) && is_wait(event))
}

/// Non-idle waits of background processes.
pub fn background_waits(document: &Document) -> impl Iterator<Item = &Event> {
    document.events.iter().filter(|event| !is_foreground(event) && is_wait(event))
}

pub fn is_foreground(event: &Event) -> bool {
    event.foreground.unwrap_or(true)
}

/// Whether the event is a wait that counts: neither idle nor time on CPU.
pub fn is_wait(event: &Event) -> bool {
    !matches!(&*event.class, "Idle" | "CPU")
}

/// Sums of one wait class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassTime {
    pub class: String,
    pub waits: Measure,
    pub time_us: Measure,
}

/// Sums of the wait classes of some events, longest time first. A sum of waits is None if an event of the class is sampled
/// and therefore has no count.
pub fn wait_classes<'a>(events: impl Iterator<Item = &'a Event> + Clone) -> Vec<ClassTime> {
    let mut classes: Vec<ClassTime> = Vec::new();
    for event in events {
        let index = classes.iter().position(|class| class.class == *event.class).unwrap_or_else(|| {
            classes.push(ClassTime { class: event.class.to_string(), waits: Some(0.0), time_us: None });
            classes.len() - 1
        });
        let class = &mut classes[index];
        class.waits = class.waits.zip(event.waits).map(|(sum, waits)| sum + waits);
        class.time_us = sum([class.time_us, event.time_us]);
    }
    classes.sort_by(|a, b| b.time_us.partial_cmp(&a.time_us).unwrap_or(std::cmp::Ordering::Equal));
    classes
}

/// Time of the foreground waits of one class.
pub fn class_us(document: &Document, class: &str) -> Measure {
    sum(foreground_waits(document).filter(|event| &*event.class == class).map(|event| event.time_us))
}
