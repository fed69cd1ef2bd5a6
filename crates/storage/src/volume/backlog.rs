//! Work that the volume has put off: redo logs that wait for a checkpoint, and metadata transactions that failed.

use super::Volume;
use crate::file::{FileData, Units};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes of all redo logs.
    pub redo_log_bytes: u64,
    /// Bytes of the longest redo log. A writer waits for a checkpoint of a log of 64 MiB.
    pub redo_log_longest_bytes: u64,
    /// Files whose redo logs wait for a checkpoint in the background.
    pub checkpoints_queued: u64,
    /// Metadata transactions that failed since the volume was opened.
    pub commit_failures: u64,
}

impl Volume {
    pub fn backlog(&self) -> Backlog {
        // The lock of a redo log may be held during a write, so the namespace is not locked meanwhile.
        let files: Vec<Arc<FileData>> = {
            let namespace = self.namespace.read();
            namespace.nodes().filter_map(|(_, node)| node.file.clone()).filter(|file| file.units().is_some()).collect()
        };
        let lengths = files.iter().filter_map(|file| file.units().map(Units::redo_log_bytes));
        let (sum, longest) = lengths.fold((0, 0), |(sum, longest), bytes: u64| (sum + bytes, bytes.max(longest)));
        Backlog {
            redo_log_bytes: sum,
            redo_log_longest_bytes: longest,
            checkpoints_queued: self.checkpoint_requests.len() as u64,
            commit_failures: self.commit_failures.load(Ordering::Relaxed),
        }
    }
}
