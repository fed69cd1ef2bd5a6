//! The cell's memory budget: one [`Account`] per kind of memory, whose limits add up to the budget.
//!
//! Caches keep their limits by eviction. Scans acquire a [`Grant`](cellar_scan::Grant) before they use memory; a scan
//! without a grant passes its blocks through, and groups without a grant are sent early.
//!
//! The budget does not contain metadata (see docs/operations.md), stacks, and the buffers of FUSE requests and of
//! compressions.

use std::sync::Arc;

use cellar_scan::Account;

/// A kind of memory. Each kind has one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum MemoryKind {
    /// Regions of files and of compression units: `cellar_storage`'s cache.
    PageCache,
    /// Opened compression units: [`super::UnitDirectories`].
    UnitDirectories,
    /// Facts about regions and allocation units: [`super::StorageIndex`], verified checksums, incompressible units, candidates for
    /// the columnar cache.
    StorageIndex,
    /// Final transaction states: [`super::CommitCache`].
    CommitCache,
    /// Decoded columns and result frames of running scans: `crate::smart_scan`.
    ScanBuffers,
    /// Groups and top-N lists of running scans: `cellar_scan`.
    Groups,
}

impl MemoryKind {
    pub const ALL: [Self; 6] = [
        Self::PageCache,
        Self::UnitDirectories,
        Self::StorageIndex,
        Self::CommitCache,
        Self::ScanBuffers,
        Self::Groups,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::PageCache => "page_cache",
            Self::UnitDirectories => "unit_directories",
            Self::StorageIndex => "storage_index",
            Self::CommitCache => "commit_cache",
            Self::ScanBuffers => "scan_buffers",
            Self::Groups => "groups",
        }
    }

    /// Returns the kind's share of the working memory, in eighths.
    fn eighths(self) -> u64 {
        match self {
            Self::PageCache => 0,
            Self::StorageIndex | Self::CommitCache => 1,
            Self::UnitDirectories | Self::ScanBuffers | Self::Groups => 2,
        }
    }
}

/// The least working memory: enough for a few scans at a time.
pub const WORKING_BYTES_MIN: u64 = 64 << 20;

/// Returns the default working memory beside a page cache of `cache_bytes`.
pub fn default_working_bytes(cache_bytes: u64) -> u64 {
    (cache_bytes / 2).max(512 << 20)
}

#[derive(Debug)]
pub struct MemoryBudget {
    accounts: [Arc<Account>; MemoryKind::ALL.len()],
}

/// The use and the limit of one kind of memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    pub kind: MemoryKind,
    pub used_bytes: u64,
    pub limit_bytes: u64,
}

impl Default for MemoryBudget {
    /// Returns the default budget beside a small page cache.
    fn default() -> Self {
        Self::new(0, default_working_bytes(0))
    }
}

impl MemoryBudget {
    /// Returns a budget of `cache_bytes` for the page cache, and of `working_bytes` for all other kinds.
    pub fn new(cache_bytes: u64, working_bytes: u64) -> Self {
        let limit = |kind: MemoryKind| match kind {
            MemoryKind::PageCache => cache_bytes,
            kind => working_bytes / 8 * kind.eighths(),
        };
        Self { accounts: MemoryKind::ALL.map(|kind| Account::new(limit(kind))) }
    }

    pub fn account(&self, kind: MemoryKind) -> &Arc<Account> {
        &self.accounts[kind as usize]
    }

    /// Returns the sum of all limits.
    pub fn limit(&self) -> u64 {
        self.accounts.iter().map(|account| account.limit()).sum()
    }

    /// Returns the bytes that were released since the start, over all kinds.
    pub fn released(&self) -> u64 {
        self.accounts.iter().map(|account| account.released()).sum()
    }

    /// Returns the use of every kind. The page cache counts its own use, `cache_used_bytes`.
    pub fn usage(&self, cache_used_bytes: u64) -> [MemoryUse; MemoryKind::ALL.len()] {
        MemoryKind::ALL.map(|kind| {
            let account = self.account(kind);
            let used_bytes = if kind == MemoryKind::PageCache { cache_used_bytes } else { account.used() };
            MemoryUse { kind, used_bytes, limit_bytes: account.limit() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_all_kinds_add_up_to_the_budget() {
        let budget = MemoryBudget::new(128 << 20, 512 << 20);
        assert_eq!(budget.limit(), 640 << 20);
        for (index, kind) in MemoryKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert!(budget.account(kind).limit() > 0, "{kind:?}");
        }
        let groups = budget.account(MemoryKind::Groups);
        groups.add(7);
        let usage = budget.usage(5);
        assert_eq!((usage[0].used_bytes, usage[0].limit_bytes), (5, 128 << 20));
        assert_eq!((usage[5].used_bytes, usage[5].limit_bytes), (7, 128 << 20));
    }
}
