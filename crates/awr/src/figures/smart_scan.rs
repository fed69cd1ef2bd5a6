//! Smart Scan efficiency. Source: "Exadata X3 in action: Measuring Smart Scan efficiency with AWR" (F. Pachot, 2013),
//! including its warnings about ratios that mislead.

use super::{Figure, percent, ratio};
use crate::document::{Document, Measure, names};

/// The statistics that the figures are computed from; bytes unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SmartScan {
    pub eligible: Measure,
    pub saved_by_storage_index: Measure,
    pub returned: Measure,
    pub interconnect: Measure,
    pub uncompressed: Measure,
    pub read: Measure,
    pub written: Measure,
    pub read_requests: Measure,
    pub flash_hits: Measure,
}

impl SmartScan {
    pub fn of(document: &Document) -> Self {
        Self {
            eligible: document.statistic(names::ELIGIBLE),
            saved_by_storage_index: document.statistic_beside(names::SAVED, names::ELIGIBLE),
            returned: document.statistic_beside(names::RETURNED, names::ELIGIBLE),
            interconnect: document.statistic(names::INTERCONNECT),
            uncompressed: document.statistic(names::UNCOMPRESSED),
            read: document.statistic(names::READ_BYTES),
            written: document.statistic(names::WRITE_BYTES),
            read_requests: document.statistic(names::READ_REQUESTS),
            flash_hits: document.statistic(names::FLASH_HITS),
        }
    }

    /// Bytes whose transfer to the database was avoided: eligible - returned. Negative if decompression in the cell grew
    /// the data more than filtering reduced it.
    pub fn avoided_bytes(&self) -> Measure {
        Some(self.eligible? - self.returned?)
    }

    /// The same by the difference between the database's I/O and the interconnect's, for a given number of copies of each
    /// write: read + copies * written - interconnect.
    pub fn avoided_bytes_by_interconnect(&self, write_copies: f64) -> Measure {
        Some(self.read? + write_copies * self.written? - self.interconnect?)
    }

    /// Bytes that were read in the cell and filtered there: eligible - saved by storage index - returned.
    pub fn filtered_bytes(&self) -> Measure {
        Some(self.avoided_bytes()? - self.saved_by_storage_index?)
    }

    /// Compressed size per uncompressed size of the scanned data: (eligible - saved by storage index) / uncompressed.
    pub fn compression_ratio(&self) -> Figure {
        let scanned = self.eligible.zip(self.saved_by_storage_index).map(|(eligible, saved)| eligible - saved);
        match ratio(scanned, self.uncompressed) {
            Some(value) if value > 1.0 => Figure::NotMeaningful(
                value,
                "more bytes were eligible than uncompressed: bytes that passed through the cell, or were read from a \
                 columnar cache, do not count as uncompressed",
            ),
            value => value.into(),
        }
    }

    /// Smart Scan efficiency: returned / (uncompressed + saved by storage index). 1/6 is shown as 1:6.
    pub fn efficiency(&self) -> Figure {
        let input =
            self.uncompressed.zip(self.saved_by_storage_index).map(|(uncompressed, saved)| uncompressed + saved);
        match ratio(self.returned, input) {
            Some(value) if value > 1.0 => Figure::NotMeaningful(
                value,
                "more bytes were returned than scanned: bytes that passed through the cell count as returned, but not as \
                 uncompressed",
            ),
            value => value.into(),
        }
    }

    /// Returned per eligible bytes. Compares uncompressed with compressed bytes where tables are compressed.
    pub fn returned_per_eligible(&self) -> Figure {
        let value = ratio(self.returned, self.eligible);
        match (value, self.compression_ratio()) {
            (Some(value), Figure::Value(compression)) if compression < 0.95 => Figure::NotMeaningful(
                value,
                "tables are compressed: returned bytes are uncompressed, eligible bytes are compressed",
            ),
            (Some(value), _) if value > 1.0 => {
                Figure::NotMeaningful(value, "more bytes were returned than eligible: rows are returned uncompressed")
            }
            _ => value.into(),
        }
    }

    /// Returned by Smart Scan per interconnect bytes.
    pub fn returned_per_interconnect(&self) -> Figure {
        match ratio(self.returned, self.interconnect) {
            Some(value) if self.written.is_none_or(|written| written > 0.0) => Figure::NotMeaningful(
                value,
                "the interconnect carries both directions: writes and their copies, redo and temporary files are included",
            ),
            value => value.into(),
        }
    }

    /// Copies of each written byte on the interconnect: (interconnect - read + eligible - returned) / written. 1 without
    /// mirroring, 2 for normal and 3 for high redundancy. Not meaningful below 0.9, and far from a whole number.
    pub fn write_copies(&self) -> Figure {
        let copies = self.interconnect.zip(self.read).zip(self.avoided_bytes());
        let copies = ratio(copies.map(|((interconnect, read), avoided)| interconnect - read + avoided), self.written);
        match copies {
            Some(value) if value < 0.9 => Figure::NotMeaningful(
                value,
                "less was written to the cells than by the database: files outside of the cells",
            ),
            Some(value) if (value - value.round()).abs() > 0.1 => Figure::NotMeaningful(
                value,
                "not a whole number: several redundancies, or statistics that were read at different times",
            ),
            value => value.into(),
        }
    }

    /// Read requests satisfied by the flash cache, in per cent of the database's read requests.
    pub fn flash_hit_percent(&self) -> Measure {
        percent(self.flash_hits, self.read_requests)
    }
}

/// Prints an efficiency as "1:n".
pub fn one_to(efficiency: f64) -> String {
    match efficiency {
        zero if zero <= 0.0 => "1:∞".to_owned(),
        efficiency if 1.0 / efficiency < 9.95 => format!("1:{:.1}", 1.0 / efficiency).replace(".0", ""),
        efficiency => format!("1:{:.0}", 1.0 / efficiency),
    }
}
