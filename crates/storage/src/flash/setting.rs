//! CELL_FLASH_CACHE: which reads of a file fill the cache, and which pages stay.
//!
//! Invariants: a page of a file with `NONE` is not in the index; a page of a file with `KEEP` leaves the cache for pages of other
//! files only while the segments of the keep queue exceed their quota.

use std::sync::atomic::AtomicU64;

/// What CELL_FLASH_CACHE says about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum FlashSetting {
    /// Small reads fill the cache, large ones while it has free segments.
    #[default]
    Default = 0,
    /// All reads fill the cache, and pages of files with another setting do not displace those of the file.
    Keep = 1,
    /// No read fills the cache.
    None = 2,
}

impl FlashSetting {
    pub const ALL: [Self; 3] = [Self::Default, Self::Keep, Self::None];

    /// Returns the setting with a number, as in the log and in the file service's ioctl.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| *setting as u8 == code)
    }

    /// Returns the value of CELL_FLASH_CACHE.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "DEFAULT",
            Self::Keep => "KEEP",
            Self::None => "NONE",
        }
    }
}

/// What the cache has of one file, and what it did for the file since the cell started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlashContent {
    pub ino: u64,
    pub setting: FlashSetting,
    pub cached_bytes: u64,
    pub hits: u64,
    pub misses: u64,
}

/// Requests of one object.
#[derive(Debug, Default)]
pub struct Uses {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
}
