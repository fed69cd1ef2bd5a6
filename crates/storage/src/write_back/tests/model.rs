//! What files may contain after a crash.

use super::*;

/// Sectors of the longest file.
pub const SECTORS: usize = 32;

/// What a crash may leave of a file.
#[derive(Debug, Clone)]
pub struct File {
    /// Numbers of each sector: at the last sync, then after each change since.
    sectors: Vec<Vec<u32>>,
    /// In sectors, likewise.
    lengths: Vec<u64>,
}

impl File {
    pub fn empty() -> Self {
        Self { sectors: vec![vec![0]; SECTORS], lengths: vec![0] }
    }

    pub fn length(&self) -> usize {
        self.lengths[self.lengths.len() - 1] as usize
    }

    pub fn change(&mut self, sectors: Range<usize>, number: u32) {
        self.sectors[sectors].iter_mut().for_each(|numbers| numbers.push(number));
    }

    pub fn synced(&mut self) {
        self.sectors.iter_mut().for_each(|numbers| drop(numbers.drain(..numbers.len() - 1)));
        self.lengths.drain(..self.lengths.len() - 1);
    }

    /// Returns what is wrong with the content after a crash.
    pub fn check(&self, found: &[u32], length: u64) -> std::result::Result<(), String> {
        for (number, (found, allowed)) in found.iter().zip(&self.sectors).enumerate() {
            if !allowed.contains(found) {
                return Err(format!("sector {number} is {found}, not of {allowed:?}"));
            }
        }
        let (length, lengths) = (length / SECTOR, &self.lengths);
        match lengths.iter().min() <= Some(&length) && lengths.iter().max() >= Some(&length) {
            true => Ok(()),
            false => Err(format!("the length is {length} sectors, not of {lengths:?}")),
        }
    }

    pub fn current(&self) -> Vec<u32> {
        self.sectors.iter().map(|numbers| numbers[numbers.len() - 1]).collect()
    }
}

/// The files that the metadata have, and what they contain.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub files: std::collections::BTreeMap<u64, File>,
    last_number: u32,
}

/// Each method changes the model before the file: a change that fails because the power is off may be there.
impl Model {
    pub fn known(&self) -> Vec<u64> {
        self.files.keys().copied().collect()
    }

    pub fn file(&mut self, ino: u64) -> &mut File {
        self.files.get_mut(&ino).expect("the file exists")
    }

    pub fn create(&mut self, cell: &Cell, ino: u64) -> io::Result<()> {
        cell.create(ino)?;
        // The metadata have the file only now.
        self.files.insert(ino, File::empty());
        Ok(())
    }

    pub fn remove(&mut self, cell: &Cell, ino: u64) -> io::Result<()> {
        // The metadata do not have the file any more.
        self.files.remove(&ino);
        cell.store.remove(ino, Stream::Data)
    }

    pub fn write(&mut self, cell: &Cell, ino: u64, sectors: Range<usize>) -> io::Result<()> {
        self.last_number += 1;
        let (number, file) = (self.last_number, self.file(ino));
        file.change(sectors.clone(), number);
        file.lengths.push((file.length() as u64).max(sectors.end as u64));
        cell.write(ino, &sectors, number)
    }

    /// Writes all pages, the last of them before a sync.
    pub fn fill(&mut self, cell: &Cell, ino: u64, pages: usize) -> io::Result<()> {
        self.write(cell, ino, of_pages(0..pages))?;
        self.sync(cell, ino)
    }

    pub fn set_length(&mut self, cell: &Cell, ino: u64, length: usize) -> io::Result<()> {
        let file = self.file(ino);
        file.change(length.min(file.length())..SECTORS, 0);
        file.lengths.push(length as u64);
        cell.file(ino)?.set_len(length as u64 * SECTOR)
    }

    pub fn punch(&mut self, cell: &Cell, ino: u64, sectors: Range<usize>) -> io::Result<()> {
        self.file(ino).change(sectors.clone(), 0);
        cell.file(ino)?.punch(sectors.start as u64 * SECTOR, sectors.len() as u64 * SECTOR)
    }

    pub fn sync(&mut self, cell: &Cell, ino: u64) -> io::Result<()> {
        cell.file(ino)?.sync()?;
        self.file(ino).synced();
        Ok(())
    }

    pub fn check_current(&self, cell: &Cell) -> io::Result<()> {
        for (ino, file) in &self.files {
            assert_eq!(cell.read(*ino, &(0..SECTORS))?, file.current(), "inode {ino}");
            assert_eq!(cell.file(*ino)?.len()?, file.length() as u64 * SECTOR, "length of inode {ino}");
        }
        Ok(())
    }

    /// Checks the files after a crash. What they have becomes their synced content.
    pub fn check(&mut self, cell: &Cell) {
        for (ino, file) in &mut self.files {
            let (found, length) = (cell.read(*ino, &(0..SECTORS)).unwrap(), cell.file(*ino).unwrap().len().unwrap());
            file.check(&found, length).unwrap_or_else(|wrong| panic!("inode {ino}: {wrong}"));
            let length = length / SECTOR;
            *file = File { sectors: found.into_iter().map(|number| vec![number]).collect(), lengths: vec![length] };
        }
    }

    /// Checks that a start without the flash disks names each file that lacks synced changes.
    pub fn check_lacking(&self, machine: &Machine) {
        let lacking = machine.lacking();
        for (ino, file) in &self.files {
            let (found, length) = machine.read_below(*ino, &(0..SECTORS));
            if let Err(wrong) = file.check(&found, length) {
                assert!(lacking.contains(ino), "inode {ino} is not among {lacking:?}: {wrong}");
            }
        }
    }
}
