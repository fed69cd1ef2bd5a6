//! Saved facts: facts about the blocks of files, which a clean stop writes to a file on the group's first disk, and the next start
//! reads. Layout: `docs/format/storage-index.md`.
//!
//! The storage does not interpret the facts. It guarantees that a start returns facts about a file only if no byte of the
//! file has changed since the facts were saved:
//! - *The writer* runs after the volume was synced, its threads have ended and its metadata stores are closed
//!   ([`Volume::close_saving_facts`]). The header, which makes the facts valid, is written after everything else is durable.
//! - *A later start, of any release, that does not read the facts.* The facts contain the headers of the metadata stores as
//!   the clean stop left them. redb changes the header durably when it opens a store, before the daemon can change a file,
//!   and again when it closes the store, so the headers match for the first process that opens the group only.
//! - *A start that reads the facts* removes them durably before it opens the stores. If the removal fails, the facts are
//!   not used, and the changed headers invalidate them.
//! - *Files that were restored, copied or changed by other programs* have another stamp (inode number, length and times on
//!   the filesystem of the cell disk) than the facts contain. Such a file has no facts. Disks that were swapped for disks of
//!   another group have another group id; a disk restored to an earlier state has another metadata header.
//! - *Failed syncs.* After a failed sync the kernel may drop bytes that a scan has read. Such a file has no facts.
//! - *Damage.* Checksums cover every byte. The checksum in the header covers the checksums of all frames, so frames of
//!   another file are not accepted.
//!
//! A [`super::ReadOnlyVolume`] neither reads nor removes the facts.

use super::{Ino, Namespace, Volume};
use crate::disk::{Disk, DiskFile};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::group::{Group, Uuid};
use crate::meta::{HEADER_BYTES, header_of};
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::collections::HashSet;
use std::sync::Arc;

const FILE: &str = "storage-index";
const MAGIC: &[u8; 8] = b"CELLSIDX";
const VERSION: u32 = 1;
const FILE_HEADER_BYTES: usize = 64;
const CHECKSUM_AT: usize = FILE_HEADER_BYTES - 4;
/// Length and checksum of a frame.
const FRAME_HEADER_BYTES: usize = 8;
/// A frame is written when it has this many bytes.
const FRAME_BYTES: usize = 1 << 20;
/// Maximum length of a frame: a frame and one more record.
const FRAME_BYTES_MAX: usize = 4 << 20;

/// The first byte of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum FrameKind {
    /// The headers of the metadata stores.
    Binding = 1,
    /// Inodes and their stamps.
    Stamps = 2,
    Facts = 3,
}

/// The header of the facts file.
#[derive(Debug, PartialEq, Eq)]
struct FileHeader {
    group_id: Uuid,
    frames: u64,
    /// CRC-32C of the checksums of all frames.
    checksum: u32,
}

impl FileHeader {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FILE_HEADER_BYTES);
        bytes.put_bytes(MAGIC);
        bytes.put_u32(VERSION);
        bytes.put_u32(0);
        bytes.put_bytes(self.group_id.bytes());
        bytes.put_u64(self.frames);
        bytes.put_u32(self.checksum);
        bytes.resize(CHECKSUM_AT, 0);
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32(checksum);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes);
        if reader.take(8, "magic of the storage index")? != MAGIC {
            return Err(Corrupt::new("magic of the storage index", 0, "the file was not completed"));
        }
        let version = reader.u32("version of the storage index")?;
        if version != VERSION {
            let found = format!("version {version}; this release reads version {VERSION}");
            return Err(Corrupt::new("version of the storage index", 8, found));
        }
        let computed = crc32c::crc32c(bytes.get(..CHECKSUM_AT).unwrap_or_default());
        reader.u32("reserved")?;
        let group_id = Uuid::from_bytes(reader.take(16, "group id")?.try_into().expect("16 bytes"));
        let frames = reader.u64("frames")?;
        let checksum = reader.u32("checksum of the frames")?;
        reader.take(CHECKSUM_AT - reader.position(), "reserved")?;
        let own = reader.u32("header checksum")?;
        if own != computed {
            return Err(Corrupt::new("header checksum", CHECKSUM_AT, format!("{own:08x}, computed {computed:08x}")));
        }
        Ok(Self { group_id, frames, checksum })
    }
}

/// Facts of an earlier process that are still valid. The file is removed already.
#[derive(Debug)]
pub struct SavedFacts {
    frames: Frames,
    /// The inodes that did not change since the facts were saved.
    unchanged: HashSet<Ino>,
    /// The next frame, read ahead to find the end of the stamps.
    next: Option<Vec<u8>>,
}

impl SavedFacts {
    /// Returns whether a file is unchanged since the facts were saved. Facts about other files must not be used.
    pub fn is_unchanged(&self, ino: Ino) -> bool {
        self.unchanged.contains(&ino)
    }

    pub fn unchanged_files(&self) -> usize {
        self.unchanged.len()
    }

    /// Returns the records of the next frame; None after the last frame. After an error, facts of earlier frames must not
    /// be used either.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>> {
        let frame = match self.next.take() {
            Some(frame) => Some(frame),
            None => self.frames.next()?,
        };
        match frame {
            Some(mut frame) if frame[0] == FrameKind::Facts as u8 => {
                frame.remove(0);
                Ok(Some(frame))
            }
            Some(frame) => Err(corrupt(Corrupt::new("frame kind", 0, frame[0].to_string()))),
            None => Ok(None),
        }
    }
}

/// Reads the frames of a facts file in order, and verifies them.
#[derive(Debug)]
struct Frames {
    file: Arc<dyn DiskFile>,
    offset: u64,
    left: u64,
    /// Checksum of the checksums of the frames read so far, and the same of all frames.
    checksum: u32,
    expected: u32,
}

impl Frames {
    /// Returns the next frame, which is not empty; None after the last frame.
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.left == 0 {
            if self.checksum != self.expected {
                let found = format!("{:08x}, expected {:08x}", self.checksum, self.expected);
                return Err(corrupt(Corrupt::new("checksum of the frames", FILE_HEADER_BYTES, found)));
            }
            return Ok(None);
        }
        let mut header = [0; FRAME_HEADER_BYTES];
        self.read(&mut header)?;
        let mut reader = Reader::new(&header);
        let (length, checksum) = reader
            .u32("frame length")
            .and_then(|length| Ok((length, reader.u32("frame checksum")?)))
            .map_err(corrupt)?;
        if length == 0 || length as usize > FRAME_BYTES_MAX {
            return Err(corrupt(Corrupt::new("frame length", self.offset as usize, length.to_string())));
        }
        let mut frame = vec![0; length as usize];
        self.read(&mut frame)?;
        let computed = crc32c::crc32c(&frame);
        if computed != checksum {
            let found = format!("{checksum:08x}, computed {computed:08x}");
            return Err(corrupt(Corrupt::new("frame checksum", self.offset as usize, found)));
        }
        self.checksum = crc32c::crc32c_append(self.checksum, &checksum.to_le_bytes());
        self.left -= 1;
        Ok(Some(frame))
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<()> {
        let count = self.file.read_at(buffer, self.offset).context(|| "could not read the storage index".into())?;
        if count < buffer.len() {
            return Err(corrupt(Corrupt::new("frame", self.offset as usize, "the end of the file")));
        }
        self.offset += count as u64;
        Ok(())
    }
}

fn corrupt(error: Corrupt) -> Error {
    Error::new(ErrorKind::Corrupt, error.to_string())
}

/// Writes a facts file.
pub struct FactsWriter {
    file: Arc<dyn DiskFile>,
    offset: u64,
    frames: u64,
    checksum: u32,
    /// The incomplete frame, with its kind.
    frame: Vec<u8>,
    saved: HashSet<Ino>,
}

impl FactsWriter {
    /// Returns whether facts about a file can be saved. The reader ignores facts about other files.
    pub fn accepts(&self, ino: Ino) -> bool {
        self.saved.contains(&ino)
    }

    /// Appends a record, which `encode` appends to the vector. A record is never divided between frames.
    pub fn record(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.append(FrameKind::Facts, encode)
    }

    fn append(&mut self, kind: FrameKind, encode: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        if self.frame.len() >= FRAME_BYTES || self.frame.first().is_some_and(|first| *first != kind as u8) {
            self.write_frame()?;
        }
        if self.frame.is_empty() {
            self.frame.push(kind as u8);
        }
        encode(&mut self.frame);
        Ok(())
    }

    fn write_frame(&mut self) -> Result<()> {
        if self.frame.is_empty() {
            return Ok(());
        }
        if self.frame.len() > FRAME_BYTES_MAX {
            let message = format!("a record of the storage index has {} bytes", self.frame.len());
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let checksum = crc32c::crc32c(&self.frame);
        let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES + self.frame.len());
        bytes.put_u32(self.frame.len() as u32);
        bytes.put_u32(checksum);
        bytes.append(&mut self.frame);
        self.file.write_at(&bytes, self.offset).context(describe)?;
        self.checksum = crc32c::crc32c_append(self.checksum, &checksum.to_le_bytes());
        self.offset += bytes.len() as u64;
        self.frames += 1;
        Ok(())
    }

    /// Makes all frames durable, then the header, which makes them valid. Returns the length of the file in bytes.
    fn finish(mut self, group_id: Uuid) -> Result<u64> {
        self.write_frame()?;
        self.file.sync().context(describe)?;
        let header = FileHeader { group_id, frames: self.frames, checksum: self.checksum };
        self.file.write_at(&header.encode(), 0).context(describe)?;
        self.file.sync().context(describe)?;
        Ok(self.offset)
    }
}

fn describe() -> String {
    "could not write the storage index".into()
}

/// Returns the headers of the metadata stores, in the order of the disks. The stores must not be open.
fn binding(group: &Group) -> Result<Vec<u8>> {
    let headers = group.accessible_disks().iter().map(|disk| header_of(disk.as_ref())).collect::<Result<Vec<_>>>()?;
    Ok(headers.concat())
}

/// Facts that belong to the present state of the group, before the stamps of files were compared.
#[derive(Debug)]
pub(super) struct FoundFacts(Frames);

impl FoundFacts {
    /// Finds the facts of the last clean stop and removes their file. Must be called before the metadata stores are opened.
    /// Facts that are damaged or do not belong to the present state of the group are removed with a warning.
    pub fn take(group: &Group) -> Option<Self> {
        let disks = group.accessible_disks();
        let disk = disks.first()?.as_ref();
        let place = disk.path().display();
        let found = Self::find(group, disk).transpose()?;
        if let Err(error) = disk.remove_named(FILE) {
            log::warn!(
                "could not remove the saved storage index from cell disk {place}: {error}; the index starts empty"
            );
            return None;
        }
        found.inspect_err(|error| log::warn!("ignored the saved storage index of cell disk {place}: {error}")).ok()
    }

    fn find(group: &Group, disk: &dyn Disk) -> Result<Option<Self>> {
        let opened = disk.open_existing(FILE).context(|| "could not open the file".into())?;
        let Some(file) = opened else { return Ok(None) };
        let mut header = [0; FILE_HEADER_BYTES];
        let count = file.read_at(&mut header, 0).context(|| "could not read the file".into())?;
        let FileHeader { group_id, frames, checksum } = FileHeader::decode(&header[..count]).map_err(corrupt)?;
        if group_id != group.id() {
            let message = format!("it belongs to disk group {group_id}, not to {}", group.id());
            return Err(Error::new(ErrorKind::ForeignDisk, message));
        }
        let offset = FILE_HEADER_BYTES as u64;
        let mut frames = Frames { file, offset, left: frames, checksum: 0, expected: checksum };
        let mut expected = vec![FrameKind::Binding as u8];
        expected.extend(binding(group)?);
        match frames.next()? {
            Some(found) if found == expected => Ok(Some(Self(frames))),
            _ => Err(Error::new(ErrorKind::Stale, "the metadata changed since the index was saved")),
        }
    }

    /// Compares the stamps of the files. Must be called before the volume changes any file.
    pub fn compare(self, namespace: &Namespace) -> Option<SavedFacts> {
        let compared = self.unchanged_files(namespace);
        compared.inspect_err(|error| log::warn!("ignored the saved storage index: {error}")).ok()
    }

    fn unchanged_files(self, namespace: &Namespace) -> Result<SavedFacts> {
        let Self(mut frames) = self;
        let (mut unchanged, mut changed) = (HashSet::new(), 0_u64);
        let next = loop {
            let frame = match frames.next()? {
                Some(frame) if frame[0] == FrameKind::Stamps as u8 => frame,
                other => break other,
            };
            let mut reader = Reader::new(&frame[1..]);
            while reader.remaining() > 0 {
                let ino = reader.u64("inode").map_err(corrupt)?;
                let saved = reader.blob("stamps").map_err(corrupt)?;
                let file = namespace.node(ino).ok().and_then(|node| node.file.as_ref());
                match file.map(|file| file.stamps()).transpose()?.flatten() {
                    Some(stamps) if stamps == saved => drop(unchanged.insert(ino)),
                    _ => changed += 1,
                }
            }
        };
        if changed > 0 {
            log::warn!("ignored the saved storage index of {changed} files that another program changed or restored");
        }
        Ok(SavedFacts { frames, unchanged, next })
    }
}

impl Volume {
    /// Returns the facts that the last clean stop saved, at the first call; None if there are none or if they are not
    /// valid. The caller must use the facts before it changes files.
    pub fn take_saved_facts(&self) -> Option<SavedFacts> {
        self.saved_facts.lock().take()
    }

    /// Closes the volume like [`Self::close`] and then saves facts about files for the next start. The caller guarantees
    /// that no request can change a file any more. `files` are the files that the facts are about; `write` appends the
    /// records. An error of saving is logged and leaves no facts.
    pub fn close_saving_facts(
        &self,
        files: impl IntoIterator<Item = Ino>,
        write: impl FnOnce(&mut FactsWriter) -> Result<()>,
    ) -> Result<()> {
        self.close()?;
        let disks = self.group.accessible_disks();
        let Some(disk) = disks.first() else { return Ok(()) };
        let saved = self.stores.lock().close().and_then(|()| self.save_facts(disk.as_ref(), files, write));
        match saved {
            Ok(bytes) => log::debug!("saved the storage index: {bytes} bytes"),
            Err(error) => {
                log::warn!("{error}; the storage index of the next start will be empty");
                if let Err(error) = disk.remove_named(FILE) {
                    log::warn!("could not remove the incomplete storage index: {error}; the next start removes it");
                }
            }
        }
        Ok(())
    }

    fn save_facts(
        &self,
        disk: &dyn Disk,
        files: impl IntoIterator<Item = Ino>,
        write: impl FnOnce(&mut FactsWriter) -> Result<()>,
    ) -> Result<u64> {
        let file = disk.open_named(FILE).context(describe)?;
        file.set_len(0).context(describe)?;
        let (frame, saved) = (Vec::new(), HashSet::new());
        let mut writer = FactsWriter { file, offset: FILE_HEADER_BYTES as u64, frames: 0, checksum: 0, frame, saved };
        let binding = binding(&self.group)?;
        writer.append(FrameKind::Binding, |frame| frame.put_bytes(&binding))?;
        for ino in files {
            let Ok(file) = self.file(ino) else { continue };
            let Some(stamps) = file.stamps()? else { continue };
            if writer.saved.insert(ino) {
                writer.append(FrameKind::Stamps, |frame| {
                    frame.put_u64(ino);
                    frame.put_blob(&stamps);
                })?;
            }
        }
        write(&mut writer)?;
        writer.finish(self.group.id())
    }
}

const _: () = assert!(64 * HEADER_BYTES < FRAME_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_the_header_is_detected() {
        let header = FileHeader { group_id: Uuid::from_bytes([7; 16]), frames: 3, checksum: 9 };
        let bytes = header.encode();
        assert_eq!(FileHeader::decode(&bytes).unwrap(), header);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            FileHeader::decode(&damaged).unwrap_err();
            FileHeader::decode(&bytes[..at]).unwrap_err();
        }
        FileHeader::decode(&[0; FILE_HEADER_BYTES]).unwrap_err();
    }
}
