//! The statistics of a Smart Scan: one list of counters for the wire, the client and the cell.

macro_rules! scan_stats {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Counters of one block range of a Smart Scan; the counters of a scan are the sums over its ranges. Units are
        /// bytes unless the name says otherwise.
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
    /// Stored bytes of all blocks in the range, including skipped and passed-through blocks. A current page of a
    /// compression unit counts as an equal share of the unit's bytes.
    eligible_bytes,
    /// The part of `eligible_bytes` that the cell did not read because the storage index excluded the region, or a
    /// compression unit's bounds excluded the chunk.
    saved_by_storage_index_bytes,
    /// The part of `eligible_bytes` that the cell did not read because it scanned units of the columnar cache: the bytes of
    /// their pages, less the bytes read of the units.
    saved_by_columnar_cache_bytes,
    /// Bytes of the frames that the cell returned, including the frames that name passed-through blocks.
    returned_bytes,
    /// Uncompressed bytes of the scanned pages.
    uncompressed_bytes,
    /// Bytes of the blocks that Postgres has to read itself.
    passthru_bytes,
    /// Blocks passed through because the cell could not decide a row's visibility.
    passthru_blocks_visibility,
    /// Blocks passed through because the cell could not evaluate the predicate on some row.
    passthru_blocks_predicate,
    /// Blocks passed through because the page is missing or could not be decoded.
    passthru_blocks_page,
    /// Read requests to cell disks for the scan.
    disk_read_requests,
    /// Bytes read from cell disks for the scan.
    disk_read_bytes,
    /// Read requests for the scan that the flash cache answered.
    flash_read_requests,
    /// Bytes read from the flash cache for the scan.
    flash_read_bytes,
    /// Bytes found in the cell's page cache; of a compression unit, only the bytes of the columns that the scan read.
    cache_hit_bytes,
    /// Blocks in which the commit cache resolved a transaction's state.
    blocks_helped_by_commit_cache,
    /// Transaction ids looked up in the commit cache.
    commit_cache_queries,
    /// Transaction ids found in the commit cache.
    found_in_commit_cache,
    /// Rows that the snapshot check and the predicate were applied to.
    rows_scanned,
    /// Rows returned, groups included.
    rows_returned,
    /// Rows aggregated into groups.
    rows_aggregated,
    /// CPU time of the cell for the scan, in nanoseconds.
    cell_cpu_ns,
}
