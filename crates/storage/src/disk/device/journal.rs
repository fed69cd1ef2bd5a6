//! The metadata of a device on the medium: two regions, each a checkpoint of the catalog and a log of later records.
//!
//! Invariants: the region with the higher epoch is current, and the other one is complete until the next checkpoint has been
//! synced; a log block that was synced is never written again; replay ends at the first block that is not intact, so the
//! records that are found are a prefix of those that were written.

use super::catalog::Catalog;
use super::layout::{BLOCK, Header, corrupt};
use super::medium::Medium;
use super::record::Record;
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::io;

const REGION_MAGIC: &[u8; 8] = b"CELLARCP";
const LOG_MAGIC: &[u8; 8] = b"CELLARLG";
/// Bytes of a log block before its records: checksum, record bytes, magic, format, epoch, number.
const LOG_HEADER: usize = 4 + 4 + 8 + 8 + 8 + 8;
const PAYLOAD: usize = BLOCK as usize - LOG_HEADER;
/// Blocks that a log has at least.
const LOG_BLOCKS_MIN: u64 = 32;

/// Where the next records go.
#[derive(Debug, Clone)]
pub struct Journal {
    header: Header,
    region: usize,
    epoch: u64,
    /// First block of the log on the medium, and the blocks of the log.
    start: u64,
    blocks: u64,
    /// The block that takes the next records, counted from the start of the log, and its records.
    pub next: u64,
    tail: Vec<u8>,
}

/// What a device contains.
pub struct Loaded {
    pub catalog: Catalog,
    pub journal: Option<Journal>,
    /// The catalog contains tentative changes of a process that was killed.
    pub has_unconfirmed: bool,
}

impl Journal {
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns whether the log has space for some records of a file operation.
    pub fn has_space(&self, records: usize) -> bool {
        // Records of a fixed size have at most 33 bytes, and one may have a long name.
        let blocks = (records * 33 + 300).div_ceil(PAYLOAD - 300) as u64 + 2;
        self.next + blocks < self.blocks
    }

    /// Ends the block that takes records: later records go to the next one. Returns its number.
    pub fn seal(&mut self) -> u64 {
        if !self.tail.is_empty() {
            self.tail.clear();
            self.next += 1;
        }
        self.next
    }

    /// Writes records to the log, and returns the number of the last block. After an error the journal is as before; what
    /// was written is written again.
    pub fn append(&mut self, medium: &dyn Medium, records: &[Record]) -> io::Result<u64> {
        let mut changed = self.clone();
        let mut bytes = Vec::new();
        for record in records {
            bytes.clear();
            record.encode(&mut bytes);
            if changed.tail.len() + bytes.len() > PAYLOAD {
                changed.write(medium)?;
                changed.seal();
            }
            changed.tail.extend_from_slice(&bytes);
        }
        changed.write(medium)?;
        *self = changed;
        Ok(self.next)
    }

    fn write(&self, medium: &dyn Medium) -> io::Result<()> {
        if self.next >= self.blocks {
            return Err(io::Error::other("the metadata log is full"));
        }
        let mut block = vec![0; 4];
        block.put_u32(self.tail.len() as u32);
        block.put_bytes(LOG_MAGIC);
        block.put_u64(self.header.format_id);
        block.put_u64(self.epoch);
        block.put_u64(self.next);
        block.put_bytes(&self.tail);
        block.resize(BLOCK as usize, 0);
        let checksum = crc32c::crc32c(&block[4..]);
        block[..4].copy_from_slice(&checksum.to_le_bytes());
        medium.write_metadata(&block, (self.start + self.next) * BLOCK)
    }

    /// Returns the records of a block of the log; None if the block is not intact.
    fn read(&self, medium: &dyn Medium, number: u64) -> io::Result<Option<Vec<Record>>> {
        let mut block = vec![0; BLOCK as usize];
        medium.read_metadata(&mut block, (self.start + number) * BLOCK)?;
        let decode = || -> Result<Option<Vec<Record>>, Corrupt> {
            let mut reader = Reader::new(&block);
            let checksum = reader.u32("log checksum")?;
            let length = reader.u32("log length")? as usize;
            let is_current = checksum == crc32c::crc32c(&block[4..])
                && reader.take(8, "log magic")? == LOG_MAGIC
                && reader.u64("format id")? == self.header.format_id
                && reader.u64("epoch")? == self.epoch
                && reader.u64("block number")? == number;
            if !is_current || length > PAYLOAD {
                return Ok(None);
            }
            let mut reader = Reader::new(&block[LOG_HEADER..LOG_HEADER + length]);
            let mut records = Vec::new();
            while reader.remaining() > 0 {
                records.push(Record::decode(&mut reader)?);
            }
            Ok(Some(records))
        };
        decode().map_err(corrupt)
    }

    /// Writes a checkpoint of the catalog to the other region and makes that region current. On return the checkpoint and all
    /// earlier data are durable. After an error the next change must be another checkpoint, because the medium may contain
    /// this one.
    pub fn checkpoint(
        current: Option<&Self>,
        header: Header,
        medium: &dyn Medium,
        catalog: &Catalog,
    ) -> io::Result<Self> {
        let (region, epoch) = current.map_or((0, 1), |journal| (1 - journal.region, journal.epoch + 1));
        let bytes = catalog.encode();
        let payload_blocks = (bytes.len() as u64).div_ceil(BLOCK);
        let first = header.region(region) / BLOCK;
        let region_blocks = header.region_bytes / BLOCK;
        if 1 + payload_blocks + LOG_BLOCKS_MIN > region_blocks {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        // The region may have a header of a checkpoint whose sync failed. The sync also makes the data durable.
        medium.write_metadata(&[0; BLOCK as usize], first * BLOCK)?;
        medium.sync()?;
        let mut padded = bytes.clone();
        padded.resize((payload_blocks * BLOCK) as usize, 0);
        medium.write_metadata(&padded, (first + 1) * BLOCK)?;
        medium.sync()?;
        let mut block = Vec::with_capacity(BLOCK as usize);
        block.put_bytes(REGION_MAGIC);
        block.put_u64(header.format_id);
        block.put_u64(epoch);
        block.put_bytes(&medium.power_session());
        block.put_u64(catalog.session);
        block.put_u64(bytes.len() as u64);
        block.put_u32(crc32c::crc32c(&bytes));
        block.resize(BLOCK as usize - 4, 0);
        let checksum = crc32c::crc32c(&block);
        block.put_u32(checksum);
        medium.write_metadata(&block, first * BLOCK)?;
        medium.sync()?;
        let used = 1 + payload_blocks;
        Ok(Self { header, region, epoch, start: first + used, blocks: region_blocks - used, next: 0, tail: Vec::new() })
    }

    /// Reads the metadata of a formatted device.
    pub fn load(header: Header, medium: &dyn Medium) -> io::Result<Loaded> {
        let mut newest: Option<(Journal, Catalog, [u8; 16])> = None;
        for region in 0..2 {
            if let Some(found) = read_region(header, medium, region)?
                && newest.as_ref().is_none_or(|known| known.0.epoch < found.0.epoch)
            {
                newest = Some(found);
            }
        }
        let Some((mut journal, mut catalog, power_session)) = newest else {
            // A loss of power while the device was formatted: nothing was stored.
            return Ok(Loaded { catalog: Catalog::default(), journal: None, has_unconfirmed: false });
        };
        let mut log = Vec::new();
        while journal.next < journal.blocks
            && let Some(records) = journal.read(medium, journal.next)?
        {
            log.extend(records.into_iter().map(|record| (journal.next, record)));
            journal.next += 1;
        }
        let confirmed = log.iter().filter_map(|(_, record)| match record {
            Record::Confirm { block } => Some(*block),
            _ => None,
        });
        let confirmed = confirmed.max().unwrap_or(0);
        let had_power = power_session == medium.power_session();
        let mut has_unconfirmed = false;
        for (block, record) in &log {
            let is_confirmed = !record.is_tentative() || *block < confirmed;
            if had_power || is_confirmed {
                catalog.apply(record);
                has_unconfirmed |= !is_confirmed;
            }
        }
        catalog.drop_data_beyond_ends();
        Ok(Loaded { catalog, journal: Some(journal), has_unconfirmed })
    }
}

type Region = (Journal, Catalog, [u8; 16]);

/// Reads the checkpoint of a region; None if the region is not intact.
fn read_region(header: Header, medium: &dyn Medium, region: usize) -> io::Result<Option<Region>> {
    let first = header.region(region) / BLOCK;
    let mut block = vec![0; BLOCK as usize];
    medium.read_metadata(&mut block, first * BLOCK)?;
    let at = BLOCK as usize - 4;
    let decode = || -> Result<Option<_>, Corrupt> {
        let mut reader = Reader::new(&block);
        let is_intact = reader.take(8, "region magic")? == REGION_MAGIC
            && Reader::new(&block[at..]).u32("region checksum")? == crc32c::crc32c(&block[..at])
            && reader.u64("format id")? == header.format_id;
        if !is_intact {
            return Ok(None);
        }
        let epoch = reader.u64("epoch")?;
        let power_session: [u8; 16] = reader.take(16, "power session")?.try_into().expect("16 bytes");
        let (session, length) = (reader.u64("session")?, reader.u64("checkpoint length")?);
        Ok(Some((epoch, power_session, session, length, reader.u32("checkpoint checksum")?)))
    };
    let Some((epoch, power_session, session, length, checksum)) = decode().map_err(corrupt)? else { return Ok(None) };
    let used = 1 + length.div_ceil(BLOCK);
    let region_blocks = header.region_bytes / BLOCK;
    if used >= region_blocks {
        return Err(corrupt(Corrupt::new("checkpoint length", 48, format!("{length}"))));
    }
    let mut bytes = vec![0; ((used - 1) * BLOCK) as usize];
    medium.read_metadata(&mut bytes, (first + 1) * BLOCK)?;
    bytes.truncate(length as usize);
    if crc32c::crc32c(&bytes) != checksum {
        return Err(corrupt(Corrupt::new("checkpoint checksum", 56, "the metadata of the device are damaged")));
    }
    let catalog = Catalog::decode(&bytes, session).map_err(corrupt)?;
    let (start, blocks) = (first + used, region_blocks - used);
    let journal = Journal { header, region, epoch, start, blocks, next: 0, tail: Vec::new() };
    Ok(Some((journal, catalog, power_session)))
}

#[cfg(test)]
mod tests {
    use super::super::medium::FileMedium;
    use super::*;
    use crate::disk::{FileKey, Stream};

    const DEVICE_BYTES: u64 = 16 << 20;

    fn medium() -> (tempfile::NamedTempFile, FileMedium, Header) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(DEVICE_BYTES).unwrap();
        let medium = FileMedium::open(file.path(), false).unwrap();
        let header = Header::new(77, medium.size());
        (file, medium, header)
    }

    fn created(id: u64) -> Record {
        Record::Create { id, key: FileKey::OfInode(id, Stream::Data) }
    }

    /// Returns the files of the catalog, in ascending order.
    fn files(loaded: &Loaded) -> Vec<u64> {
        let mut files: Vec<u64> = loaded.catalog.files.keys().copied().collect();
        files.sort_unstable();
        files
    }

    #[test]
    fn records_are_found_up_to_the_first_block_that_is_not_intact() {
        let (_file, medium, header) = medium();
        let mut journal = Journal::checkpoint(None, header, &medium, &Catalog::default()).unwrap();
        for id in 1..=6 {
            journal.append(&medium, &[created(id)]).unwrap();
            journal.seal();
        }
        let found = Journal::load(header, &medium).unwrap();
        assert_eq!(files(&found), [1, 2, 3, 4, 5, 6]);
        assert_eq!(found.journal.unwrap().next, 6);

        let mut block = vec![0; BLOCK as usize];
        medium.read_metadata(&mut block, (journal.start + 3) * BLOCK).unwrap();
        block[60] ^= 1;
        medium.write_metadata(&block, (journal.start + 3) * BLOCK).unwrap();
        let found = Journal::load(header, &medium).unwrap();
        assert_eq!(files(&found), [1, 2, 3], "later blocks do not count, although they are intact");
    }

    #[test]
    fn the_newer_checkpoint_counts_and_an_incomplete_one_does_not() {
        let (_file, medium, header) = medium();
        let first = Journal::checkpoint(None, header, &medium, &Catalog::default()).unwrap();
        let mut catalog = Catalog::default();
        catalog.apply(&created(5));
        let mut second = Journal::checkpoint(Some(&first), header, &medium, &catalog).unwrap();
        second.append(&medium, &[created(6)]).unwrap();
        assert_eq!(files(&Journal::load(header, &medium).unwrap()), [5, 6]);
        // A crash during the third checkpoint: the first region has no valid header.
        medium.write_metadata(&[0; BLOCK as usize], header.region(0)).unwrap();
        assert_eq!(files(&Journal::load(header, &medium).unwrap()), [5, 6]);
        // Without any region nothing was stored.
        medium.write_metadata(&[0; BLOCK as usize], header.region(1)).unwrap();
        assert!(Journal::load(header, &medium).unwrap().journal.is_none());
    }

    #[test]
    fn a_full_log_refuses_records_and_stays_as_it_was() {
        let (_file, medium, header) = medium();
        let mut journal = Journal::checkpoint(None, header, &medium, &Catalog::default()).unwrap();
        let mut id = 0;
        while journal.has_space(1) {
            id += 1;
            journal.append(&medium, &[created(id)]).unwrap();
            journal.seal();
        }
        let many: Vec<Record> = (id + 1..id + 5000).map(created).collect();
        let before = journal.next;
        assert!(journal.append(&medium, &many).unwrap_err().to_string().contains("log is full"));
        assert_eq!(journal.next, before);
        journal.append(&medium, &[created(u64::from(u32::MAX))]).unwrap();
        assert!(files(&Journal::load(header, &medium).unwrap()).contains(&u64::from(u32::MAX)));
    }
}
