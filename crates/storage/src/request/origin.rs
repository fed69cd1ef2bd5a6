//! Who issues a request: database, consumer group and kind of I/O.
//!
//! The origin belongs to the calling thread, because the reads and writes of one request are made by different layers, none of
//! which knows databases. A thread that works for another one takes over its origin ([`carried`]).

use std::cell::Cell;

/// Reads and writes of more bytes are large, as Oracle's metrics of cells distinguish them.
pub const SMALL_BYTES_MAX: usize = 128 << 10;

/// Number of a database in [`crate::iorm::Iorm`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatabaseId(pub u32);

/// Number of a consumer group in [`crate::iorm::Iorm`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl DatabaseId {
    /// Files that belong to no database.
    pub const OTHER: Self = Self(0);
}

impl GroupId {
    /// Sessions without a consumer group.
    pub const OTHER: Self = Self(0);
    /// The processes of PostgreSQL that write WAL and checkpoints.
    pub const BACKGROUND: Self = Self(1);
    /// The cell's own work: compression, rebalance, resync, scrub.
    pub const LOW_PRIORITY_BACKGROUND: Self = Self(2);
}

/// Which of a consumer group's requests goes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// Writes and reads of WAL.
    Redo,
    /// Requests that a session waits for, one after the other: reads of blocks, and writes.
    #[default]
    Small,
    /// Reads of scans, and other requests of more than [`SMALL_BYTES_MAX`].
    Large,
    /// Work that no session waits for.
    Background,
}

impl IoKind {
    pub const ALL: [Self; 4] = [Self::Redo, Self::Small, Self::Large, Self::Background];

    /// The share of the kind in the device time of its group while other kinds of the group wait, too.
    pub(crate) fn weight(self) -> f64 {
        match self {
            Self::Redo => 16.0,
            Self::Small => 8.0,
            Self::Large => 4.0,
            Self::Background => 1.0,
        }
    }

    /// Returns whether the controller may hold back requests of this kind.
    pub(crate) fn is_held_back(self) -> bool {
        matches!(self, Self::Large | Self::Background)
    }
}

/// The two sizes that metrics distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoSize {
    Small,
    Large,
}

impl IoSize {
    pub const ALL: [Self; 2] = [Self::Small, Self::Large];

    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    pub database: DatabaseId,
    pub group: GroupId,
    /// The kind of a request whose size makes it no large one.
    pub kind: IoKind,
}

impl Origin {
    /// The cell's own work, which no session waits for.
    pub const CELL: Self =
        Self { database: DatabaseId::OTHER, group: GroupId::LOW_PRIORITY_BACKGROUND, kind: IoKind::Background };

    /// Returns the kind of a request of `bytes`.
    pub(crate) fn kind_of(self, bytes: usize) -> IoKind {
        match self.kind {
            IoKind::Small if bytes > SMALL_BYTES_MAX => IoKind::Large,
            kind => kind,
        }
    }
}

thread_local! {
    static ORIGIN: Cell<Origin> = const { Cell::new(Origin {
        database: DatabaseId::OTHER,
        group: GroupId::OTHER,
        kind: IoKind::Small,
    }) };
}

/// Restores the previous origin, also after a panic.
struct Restore(Origin);

impl Drop for Restore {
    fn drop(&mut self) {
        ORIGIN.set(self.0);
    }
}

/// Returns the origin of the requests of this thread.
pub fn current() -> Origin {
    ORIGIN.get()
}

/// Runs `work`, whose requests have an origin.
pub fn within<T>(origin: Origin, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(ORIGIN.replace(origin));
    work()
}

/// Returns `work` for another thread, where its requests have the origin and the urgency of this thread.
pub fn carried<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let origin = current();
    super::urgent::carried(move || within(origin, work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_applies_within_its_scope_and_in_threads_that_take_it_over() {
        let origin = |database| Origin { database: DatabaseId(database), ..Origin::default() };
        within(origin(1), || {
            within(origin(2), || assert_eq!(current(), origin(2)));
            assert_eq!(current(), origin(1));
            let carried = carried(current);
            assert_eq!(std::thread::scope(|scope| scope.spawn(carried).join().unwrap()), origin(1));
        });
        assert!(std::panic::catch_unwind(|| within(origin(3), || panic!("inside"))).is_err());
        assert_eq!(current(), Origin::default());
    }

    #[test]
    fn only_ordinary_requests_become_large_by_their_size() {
        let of = |kind, bytes| Origin { kind, ..Origin::default() }.kind_of(bytes);
        assert_eq!(of(IoKind::Small, SMALL_BYTES_MAX), IoKind::Small);
        assert_eq!(of(IoKind::Small, SMALL_BYTES_MAX + 1), IoKind::Large);
        assert_eq!(of(IoKind::Large, 8192), IoKind::Large);
        assert_eq!(of(IoKind::Redo, 1 << 20), IoKind::Redo);
        assert_eq!(of(IoKind::Background, 1 << 20), IoKind::Background);
    }
}
