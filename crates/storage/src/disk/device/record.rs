//! Changes of the catalog, as records of the journal.

use crate::disk::{FileKey, Stream};
use cellar_format::bytes::{Corrupt, Reader, Write};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    Create {
        id: u64,
        key: FileKey,
    },
    Remove {
        id: u64,
    },
    /// Blocks of a file that contain data. Tentative: valid after a loss of power only if confirmed, because the data may be
    /// lost, and the blocks then contain the bytes of other files.
    Map {
        id: u64,
        logical: u64,
        physical: u64,
        count: u64,
    },
    /// Blocks that are allocated and read as zeros.
    Reserve {
        id: u64,
        logical: u64,
        physical: u64,
        count: u64,
    },
    Unmap {
        id: u64,
        logical: u64,
        count: u64,
    },
    /// Tentative: the bytes between the old and the new end may be lost.
    Grow {
        id: u64,
        length: u64,
    },
    Shrink {
        id: u64,
        length: u64,
    },
    /// The present session changes data of the file in place.
    Touch {
        id: u64,
    },
    /// Data and tentative records in earlier blocks than this one are durable.
    Confirm {
        block: u64,
    },
}

impl Record {
    /// Returns the file that the record changes; None for a confirmation.
    pub fn file(&self) -> Option<u64> {
        match self {
            Self::Create { id, .. }
            | Self::Remove { id }
            | Self::Map { id, .. }
            | Self::Reserve { id, .. }
            | Self::Unmap { id, .. }
            | Self::Grow { id, .. }
            | Self::Shrink { id, .. }
            | Self::Touch { id } => Some(*id),
            Self::Confirm { .. } => None,
        }
    }

    pub fn is_tentative(&self) -> bool {
        matches!(self, Self::Map { .. } | Self::Grow { .. })
    }

    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut numbers = |tag: u8, numbers: &[u64]| {
            bytes.put_u8(tag);
            numbers.iter().for_each(|number| bytes.put_u64(*number));
        };
        match self {
            Self::Create { id, key } => {
                numbers(1, &[*id]);
                encode_key(key, bytes);
            }
            Self::Remove { id } => numbers(2, &[*id]),
            Self::Map { id, logical, physical, count } => numbers(3, &[*id, *logical, *physical, *count]),
            Self::Reserve { id, logical, physical, count } => numbers(4, &[*id, *logical, *physical, *count]),
            Self::Unmap { id, logical, count } => numbers(5, &[*id, *logical, *count]),
            Self::Grow { id, length } => numbers(6, &[*id, *length]),
            Self::Shrink { id, length } => numbers(7, &[*id, *length]),
            Self::Touch { id } => numbers(8, &[*id]),
            Self::Confirm { block } => numbers(9, &[*block]),
        }
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let at = reader.position();
        let tag = reader.u8("journal record")?;
        let mut number = || reader.u64("journal record");
        let record = match tag {
            1 => Self::Create { id: number()?, key: decode_key(reader)? },
            2 => Self::Remove { id: number()? },
            3 => Self::Map { id: number()?, logical: number()?, physical: number()?, count: number()? },
            4 => Self::Reserve { id: number()?, logical: number()?, physical: number()?, count: number()? },
            5 => Self::Unmap { id: number()?, logical: number()?, count: number()? },
            6 => Self::Grow { id: number()?, length: number()? },
            7 => Self::Shrink { id: number()?, length: number()? },
            8 => Self::Touch { id: number()? },
            9 => Self::Confirm { block: number()? },
            other => return Err(Corrupt::new("journal record", at, format!("type {other}"))),
        };
        Ok(record)
    }
}

/// Longest name of a file, in bytes.
pub const NAME_MAX: usize = 255;

pub fn encode_key(key: &FileKey, bytes: &mut Vec<u8>) {
    match key {
        FileKey::Named(name) => {
            bytes.put_u8(0);
            bytes.put_blob(name.as_bytes());
        }
        FileKey::OfInode(ino, stream) => {
            bytes.put_u8(1 + *stream as u8);
            bytes.put_u64(*ino);
        }
    }
}

pub fn decode_key(reader: &mut Reader<'_>) -> Result<FileKey, Corrupt> {
    let at = reader.position();
    match reader.u8("file kind")? {
        0 => Ok(FileKey::Named(reader.string("file name")?)),
        kind => match Stream::ALL.get(kind as usize - 1) {
            Some(stream) => Ok(FileKey::OfInode(reader.u64("inode")?, *stream)),
            None => Err(Corrupt::new("file kind", at, format!("{kind}"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_back_as_written() {
        let records = [
            Record::Create { id: 1, key: FileKey::Named("metadata.redb".into()) },
            Record::Create { id: 2, key: FileKey::OfInode(1 << 40, Stream::Redo1) },
            Record::Remove { id: 3 },
            Record::Map { id: 4, logical: 5, physical: 6, count: 7 },
            Record::Reserve { id: 4, logical: 5, physical: 6, count: 7 },
            Record::Unmap { id: 4, logical: 5, count: 7 },
            Record::Grow { id: 8, length: 9 },
            Record::Shrink { id: 8, length: 9 },
            Record::Touch { id: 10 },
            Record::Confirm { block: 11 },
        ];
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.encode(&mut bytes));
        let mut reader = Reader::new(&bytes);
        for record in &records {
            assert_eq!(Record::decode(&mut reader).unwrap(), *record);
        }
        assert_eq!(reader.remaining(), 0);
        assert!(Record::decode(&mut Reader::new(&[77])).is_err());
    }
}
