//! What one Smart Scan counted, in one list that the wire, the client and the cell share.

macro_rules! scan_stats {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Counts of one block range of a Smart Scan; they add up over ranges. Bytes unless the name says otherwise.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[repr(C)]
        pub struct ScanStats { $($(#[$doc])* pub $field: u64,)* }

        impl ScanStats {
            pub const FIELDS: usize = [$(stringify!($field)),*].len();

            pub fn to_array(self) -> [u64; Self::FIELDS] {
                [$(self.$field),*]
            }

            pub fn from_array(values: [u64; Self::FIELDS]) -> Self {
                let [$($field),*] = values;
                Self { $($field),* }
            }

            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

scan_stats! {
    /// On-disk bytes under the scan, skipped and passed-through ones included: of a page that is current in a
    /// compression unit, an equal share of the unit's bytes.
    eligible_bytes,
    /// Those of them not read because the storage index excluded their region, or the bounds in a compression unit
    /// their chunk.
    saved_by_storage_index_bytes,
    /// Bytes that the cell sent back, frames and passed-through blocks included.
    returned_bytes,
    /// Bytes of the pages that the predicate and projection worked on, as they are uncompressed.
    uncompressed_bytes,
    /// Bytes of blocks that Postgres has to read itself.
    passthru_bytes,
    /// Blocks passed through because a row's visibility stayed undecided.
    passthru_blocks_visibility,
    /// Blocks passed through because the cell could not evaluate the predicate on some row.
    passthru_blocks_predicate,
    /// Blocks passed through because the page could not be decoded.
    passthru_blocks_page,
    /// Read requests to cell disks that the scan caused.
    disk_read_requests,
    /// Bytes read from cell disks for the scan.
    disk_read_bytes,
    /// Bytes found in the cell's own page cache; of a compression unit, those of the columns that were read.
    cache_hit_bytes,
    /// Blocks in which the commit cache resolved a row's status.
    blocks_helped_by_commit_cache,
    /// Transaction ids looked up in the commit cache.
    commit_cache_queries,
    /// Transaction ids found there.
    found_in_commit_cache,
    /// Rows that a snapshot check and the predicate were applied to.
    rows_scanned,
    /// Rows sent back, groups included.
    rows_returned,
    /// Rows that went into groups.
    rows_aggregated,
    /// CPU time of the cell for the scan, nanoseconds.
    cell_cpu_ns,
}
