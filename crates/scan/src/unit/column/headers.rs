//! Reads the tuple header fields that decide visibility, page by page.

use super::super::encoding::IntBlockCache;
use super::super::open::Unit;
use super::super::page::{HEADER_FIELDS, HeaderField};
use super::super::section::{Result, corrupt};
use cellar_format::ByteSource;

/// Reads header fields, page by page. Caches the most recently decoded blocks of one unit.
#[derive(Debug, Default)]
pub struct HeaderReader {
    unit: Option<u64>,
    caches: [IntBlockCache; HEADER_FIELDS.len()],
    fields: [Vec<i64>; HEADER_FIELDS.len()],
}

impl HeaderReader {
    /// The fields that decide visibility.
    const NEEDED: [HeaderField; 3] = [HeaderField::Xmin, HeaderField::Xmax, HeaderField::Infomask];

    /// Reads the fields of all rows of a page.
    pub fn read(&mut self, unit: &Unit, source: &dyn ByteSource, page: usize) -> Result<()> {
        if self.unit != Some(unit.id()) {
            *self = Self { unit: Some(unit.id()), ..Self::default() };
        }
        let rows = unit.page_rows(page);
        let Some((number, chunk)) = unit.chunk_of(page) else { return corrupt("page", page, "in no chunk") };
        let first = chunk.row_range().start;
        let (section, rows) = (unit.section(source), rows.start - first..rows.end - first);
        for field in Self::NEEDED {
            let (cache, out) = (&mut self.caches[field as usize], &mut self.fields[field as usize]);
            out.clear();
            chunk.header(field).read(section, number, rows.clone(), cache, out)?;
        }
        Ok(())
    }

    /// One number for each row of the page, for the fields that [`Self::read`] reads.
    pub fn field(&self, field: HeaderField) -> &[i64] {
        &self.fields[field as usize]
    }
}
