//! The consumer groups of processes, as connections to the cell have told them.
//!
//! A backend tells its own group when it scans, a worker of the server those of all processes. Of several connections, the one whose
//! statement about a process changed last counts. A connection that ends takes its statements with it.

use crate::request::GroupId;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct ProcessGroups {
    /// The statements about a process, the newest last.
    groups: RwLock<HashMap<u32, Vec<(u64, GroupId)>>>,
    last_connection: AtomicU64,
}

impl ProcessGroups {
    /// Returns the group of a process; None if no connection has told it.
    pub fn of(&self, process: u32) -> Option<GroupId> {
        self.groups.read().get(&process).and_then(|told| told.last()).map(|(_, group)| *group)
    }

    pub fn connect(self: &Arc<Self>) -> ToldGroups {
        let connection = self.last_connection.fetch_add(1, Ordering::Relaxed) + 1;
        ToldGroups { all: self.clone(), connection, processes: Vec::new() }
    }
}

/// What one connection has told.
#[derive(Debug)]
pub struct ToldGroups {
    all: Arc<ProcessGroups>,
    connection: u64,
    processes: Vec<u32>,
}

impl ToldGroups {
    /// Replaces what the connection has told.
    pub fn set(&mut self, told: &[(u32, GroupId)]) {
        let told: HashMap<u32, GroupId> = told.iter().copied().collect();
        let groups = &mut *self.all.groups.write();
        for process in self.processes.drain(..).filter(|process| !told.contains_key(process)) {
            forget(groups, self.connection, process);
        }
        for (process, group) in told {
            self.processes.push(process);
            let all = groups.entry(process).or_default();
            if !all.contains(&(self.connection, group)) {
                all.retain(|(connection, _)| *connection != self.connection);
                all.push((self.connection, group));
            }
        }
    }
}

impl Drop for ToldGroups {
    fn drop(&mut self) {
        self.set(&[]);
    }
}

fn forget(groups: &mut HashMap<u32, Vec<(u64, GroupId)>>, connection: u64, process: u32) {
    if let Some(told) = groups.get_mut(&process) {
        told.retain(|(from, _)| *from != connection);
        if told.is_empty() {
            groups.remove(&process);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_change_counts_and_a_connection_that_ends_takes_its_statements_along() {
        let groups = Arc::new(ProcessGroups::default());
        let (mut worker, mut backend) = (groups.connect(), groups.connect());
        let [first, second, third] = [GroupId(11), GroupId(12), GroupId(13)];
        worker.set(&[(100, first), (200, first)]);
        backend.set(&[(100, second)]);
        assert_eq!([100, 200, 300].map(|process| groups.of(process)), [Some(second), Some(first), None]);
        worker.set(&[(100, first), (200, third)]);
        assert_eq!([100, 200].map(|process| groups.of(process)), [Some(second), Some(third)], "100 did not change");
        worker.set(&[(100, third)]);
        assert_eq!([100, 200].map(|process| groups.of(process)), [Some(third), None]);
        drop(worker);
        assert_eq!(groups.of(100), Some(second));
        drop(backend);
        assert!(groups.groups.read().is_empty());
    }
}
