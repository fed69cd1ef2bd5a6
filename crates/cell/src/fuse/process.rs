//! The priority of requests for space by the processes of PostgreSQL that must not run out of space.
//!
//! If the checkpointer or the startup process cannot write, the cluster completes no checkpoint or does not start. If the
//! background writer cannot write, sessions find only dirty buffers and fail. A failed write of another process is an
//! error of one statement. PostgreSQL shows the kind of a process in its title. Titles are read only after a request
//! found too little space.

use cellar_storage::{Error, ErrorKind, SpacePriority};
use std::time::{Duration, Instant};

const TITLE_PREFIX: &str = "postgres: ";
const PRIORITIES: [(&str, SpacePriority); 3] = [
    ("checkpointer", SpacePriority::Highest),
    ("startup", SpacePriority::Highest),
    ("background writer", SpacePriority::High),
];

/// How often, and how long, a request of the highest priority waits for space that the cell frees by recompression.
const FREEING_POLL: Duration = Duration::from_millis(100);
const FREEING_WAIT: Duration = Duration::from_secs(5);

/// Calls `attempt` with the priority of a file. After an error of kind `NoSpace`, calls `attempt` with the priority of
/// process `pid` if that is higher; with the highest priority again and again for [`FREEING_WAIT`].
pub fn with_priority<T>(
    priority: SpacePriority,
    pid: u32,
    attempt: impl Fn(SpacePriority) -> Result<T, Error>,
) -> Result<T, Error> {
    match attempt(priority) {
        Err(error) if error.kind() == ErrorKind::NoSpace => match of_process(pid) {
            SpacePriority::Highest => attempt_patiently(|| attempt(SpacePriority::Highest)),
            higher if higher > priority => attempt(higher),
            _ => Err(error),
        },
        result => result,
    }
}

fn attempt_patiently<T>(attempt: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let deadline = Instant::now() + FREEING_WAIT;
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::NoSpace && Instant::now() < deadline => {
                std::thread::sleep(FREEING_POLL)
            }
            result => return result,
        }
    }
}

/// Returns the priority of a process; `Normal` for a process in another pid namespace.
fn of_process(pid: u32) -> SpacePriority {
    let title = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let title = title.split(|byte| *byte == 0).next().unwrap_or_default();
    std::str::from_utf8(title).map(of_title).unwrap_or_default()
}

/// The title is `postgres: KIND …`, or `postgres: CLUSTER: KIND …` if `cluster_name` is set.
fn of_title(title: &str) -> SpacePriority {
    let Some(title) = title.strip_prefix(TITLE_PREFIX) else { return SpacePriority::Normal };
    let without_cluster = title.split_once(": ").map_or(title, |(_, rest)| rest);
    let is = |kind: &str| {
        let starts =
            |title: &str| title.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        starts(title) || starts(without_cluster)
    };
    PRIORITIES.iter().find(|(kind, _)| is(kind)).map_or(SpacePriority::Normal, |(_, priority)| *priority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_show_the_kind_of_a_process() {
        for (title, priority) in [
            ("postgres: checkpointer ", SpacePriority::Highest),
            ("postgres: 15/main: checkpointer ", SpacePriority::Highest),
            ("postgres: startup recovering 000000010000000000000003", SpacePriority::Highest),
            ("postgres: main: startup ", SpacePriority::Highest),
            ("postgres: background writer ", SpacePriority::High),
            ("postgres: alice postgres [local] DELETE", SpacePriority::Normal),
            ("postgres: main: alice checkpointer [local] idle", SpacePriority::Normal),
            ("postgres: startups postgres [local] idle", SpacePriority::Normal),
            ("checkpointer", SpacePriority::Normal),
            ("", SpacePriority::Normal),
        ] {
            assert_eq!(of_title(title), priority, "{title}");
        }
        assert_eq!(of_process(0), SpacePriority::Normal);
    }
}
