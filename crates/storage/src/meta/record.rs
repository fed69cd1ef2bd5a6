//! The inode record, in memory and encoded for the metadata store. Layout: `docs/format/disk.md`.

use crate::group::{AuSize, StripeLayout, StripeOrder};
use cellar_format::bytes::{Corrupt, Reader, Write};

const VERSION: u8 = 1;
/// The layout has weights.
const VERSION_WEIGHTS: u8 = 2;

/// The type of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    File = 1,
    Directory = 2,
    Symlink = 3,
    Fifo = 4,
    Socket = 5,
    CharDevice = 6,
    BlockDevice = 7,
}

impl Kind {
    fn from_u8(value: u8) -> Option<Self> {
        use Kind::*;
        [File, Directory, Symlink, Fifo, Socket, CharDevice, BlockDevice].into_iter().find(|kind| *kind as u8 == value)
    }
}

/// The stored attributes of an inode, without its names and content. Times are nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    pub kind: Kind,
    /// Permission bits including set-user-id, set-group-id and sticky.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub device: u32,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub birth: i64,
    /// Some for files, None for other kinds.
    pub layout: Option<StripeLayout>,
    /// The target of a symbolic link; empty for other kinds.
    pub target: Vec<u8>,
}

impl Inode {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(96);
        let weights = self.layout.as_ref().and_then(|layout| layout.order.weights());
        bytes.put_u8(if weights.is_some() { VERSION_WEIGHTS } else { VERSION });
        bytes.put_u8(self.kind as u8);
        bytes.put_u16(self.mode);
        for number in [self.uid, self.gid, self.nlink, self.device] {
            bytes.put_u32(number);
        }
        for time in [self.atime, self.mtime, self.ctime, self.birth] {
            bytes.put_u64(time as u64);
        }
        match &self.layout {
            None => bytes.put_u8(0),
            Some(layout) => {
                bytes.put_u8(layout.au_size.shift());
                bytes.put_u16(layout.start);
                bytes.put_u16(layout.disks.len() as u16);
                layout.disks.iter().for_each(|disk| bytes.put_u16(*disk));
                weights.into_iter().flatten().for_each(|weight| bytes.put_u16(*weight));
            }
        }
        bytes.put_blob(&self.target);
        bytes
    }

    /// Decodes a record of a group of `disk_count` disks. A layout that names a higher disk number is corrupt.
    pub fn decode(bytes: &[u8], disk_count: usize) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8("inode record version")?;
        if !(VERSION..=VERSION_WEIGHTS).contains(&version) {
            return Err(Corrupt::new("inode record version", 0, format!("{version}")));
        }
        let kind = reader.u8("inode kind")?;
        let kind = Kind::from_u8(kind).ok_or_else(|| Corrupt::new("inode kind", 1, format!("{kind}")))?;
        let mode = reader.u16("mode")?;
        let [uid, gid, nlink, device] =
            [reader.u32("uid")?, reader.u32("gid")?, reader.u32("link count")?, reader.u32("device")?];
        let mut time = || reader.u64("time").map(|time| time as i64);
        let [atime, mtime, ctime, birth] = [time()?, time()?, time()?, time()?];
        let at = reader.position();
        let layout = match reader.u8("allocation unit size")? {
            0 => None,
            shift => {
                let corrupt = |found: String| Corrupt::new("layout", at, found);
                let au_size = AuSize::from_shift(shift).map_err(|error| corrupt(error.to_string()))?;
                let start = reader.u16("first disk")?;
                let count = reader.u16("number of disks")?;
                let disks = (0..count).map(|_| reader.u16("disk number")).collect::<Result<Vec<_>, _>>()?;
                let order = match version {
                    VERSION => StripeOrder::Equal,
                    _ => {
                        let weights = (0..count).map(|_| reader.u16("weight")).collect::<Result<Vec<_>, _>>()?;
                        StripeOrder::of(&weights).ok_or_else(|| corrupt(format!("weights {weights:?}")))?
                    }
                };
                let is_start = usize::from(start) < order.period(disks.len());
                if !is_start || disks.iter().any(|disk| *disk as usize >= disk_count) {
                    return Err(corrupt(format!("start {start}, disks {disks:?} of {disk_count}")));
                }
                Some(StripeLayout { au_size, start, disks, order })
            }
        };
        if layout.is_some() != (kind == Kind::File) {
            return Err(Corrupt::new(
                "layout",
                at,
                format!("present: {}, in an inode of kind {kind:?}", layout.is_some()),
            ));
        }
        let target = reader.blob("link target")?.to_vec();
        reader.finish("inode record")?;
        Ok(Self { kind, mode, uid, gid, nlink, device, atime, mtime, ctime, birth, layout, target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Inode {
        let layout =
            Some(StripeLayout { au_size: AuSize::DEFAULT, start: 1, disks: vec![0, 1], order: StripeOrder::Equal });
        let (uid, gid, nlink, device, target) = (101, 104, 2, 0, vec![]);
        let (atime, mtime, ctime, birth) = (-5, 1, 2, 3);
        let (kind, mode) = (Kind::File, 0o600);
        Inode { kind, mode, uid, gid, nlink, device, atime, mtime, ctime, birth, layout, target }
    }

    #[test]
    fn an_inode_reads_back_as_written() {
        assert_eq!(Inode::decode(&example().encode(), 2).unwrap(), example());
    }

    fn weighted_example() -> Inode {
        let order = StripeOrder::of(&[3, 2]).unwrap();
        let layout = Some(StripeLayout { start: 4, order, ..example().layout.unwrap() });
        Inode { layout, ..example() }
    }

    #[test]
    fn only_a_layout_with_weights_needs_the_newer_version() {
        assert_eq!((example().encode()[0], weighted_example().encode()[0]), (1, 2));
        assert_eq!(Inode::decode(&weighted_example().encode(), 2).unwrap(), weighted_example());
    }

    #[test]
    fn weights_of_zero_and_positions_beyond_the_order_are_corrupt() {
        let bytes = weighted_example().encode();
        let layout = bytes.len() - 4 - 4 - 4 - 4;
        for (at, value) in [(layout, 5), (bytes.len() - 8, 0), (bytes.len() - 7, 255)] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            assert!(Inode::decode(&damaged, 2).unwrap_err().to_string().contains("layout"), "byte {at}");
        }
        for length in 0..bytes.len() {
            assert!(Inode::decode(&bytes[..length], 2).is_err(), "{length}");
        }
    }

    #[test]
    fn a_truncated_or_foreign_record_is_corrupt_not_a_panic() {
        let bytes = example().encode();
        for length in 0..bytes.len() {
            assert!(Inode::decode(&bytes[..length], 2).is_err(), "{length}");
        }
        assert!(Inode::decode(&bytes, 1).unwrap_err().to_string().contains("layout"));
    }
}
