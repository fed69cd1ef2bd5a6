//! A device in memory that can lose power: every write since the last sync is then lost, torn or kept, in any order.

use super::Random;
use cellar_storage::disk::Medium;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that a device writes atomically.
const SECTOR: usize = 512;
const BLOCK: usize = 4096;

#[derive(Debug, Default)]
struct State {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// Blocks written since the last sync, with their offsets.
    unsynced: Vec<(usize, Vec<u8>)>,
    operations: u64,
    /// Operations from this number on fail.
    power_off_at: Option<u64>,
    session: u8,
    fails_next_sync: bool,
}

#[derive(Debug, Clone)]
pub struct MemoryMedium(Arc<Mutex<State>>);

impl MemoryMedium {
    pub fn new(bytes: usize) -> Self {
        let state = State { durable: vec![0; bytes], current: vec![0; bytes], ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Makes every operation after the next `operations` fail.
    pub fn power_off_after(&self, operations: u64) {
        let mut state = self.0.lock();
        state.power_off_at = Some(state.operations + operations);
    }

    pub fn is_off(&self) -> bool {
        let state = self.0.lock();
        state.power_off_at.is_some_and(|at| state.operations >= at)
    }

    /// The next sync fails, and every unsynced write is lost, as if the kernel had dropped them.
    pub fn fail_next_sync(&self) {
        self.0.lock().fails_next_sync = true;
    }

    /// Returns the device with the power on. Without `loses_power` only the process was killed.
    pub fn restarted(&self, loses_power: bool, random: &mut Random) -> Self {
        let mut state = self.0.lock();
        let mut after = State { session: state.session, ..State::default() };
        if loses_power {
            after.session += 1;
            let mut left = std::mem::take(&mut state.unsynced);
            let quarters = random.below(5);
            while !left.is_empty() {
                let (offset, data) = left.swap_remove(random.below(left.len() as u64) as usize);
                let is_torn = random.below(4) == 0;
                let is_kept = random.below(4) < quarters;
                for (sector, bytes) in data.chunks(SECTOR).enumerate() {
                    if if is_torn { random.below(2) == 0 } else { is_kept } {
                        let at = offset + sector * SECTOR;
                        state.durable[at..at + SECTOR].copy_from_slice(bytes);
                    }
                }
            }
            after.durable.clone_from(&state.durable);
            after.current = std::mem::take(&mut state.durable);
        } else {
            // The operating system keeps the writes, and they are still not durable.
            after.unsynced = std::mem::take(&mut state.unsynced);
            after.durable = std::mem::take(&mut state.durable);
            after.current = std::mem::take(&mut state.current);
        }
        Self(Arc::new(Mutex::new(after)))
    }

    fn change(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        let at = offset as usize;
        assert!(at.is_multiple_of(BLOCK) && data.len().is_multiple_of(BLOCK), "{at} {}", data.len());
        for (block, bytes) in data.chunks(BLOCK).enumerate() {
            state.count()?;
            let at = at + block * BLOCK;
            state.current[at..at + BLOCK].copy_from_slice(bytes);
            state.unsynced.push((at, bytes.to_vec()));
        }
        Ok(())
    }

    fn fetch(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.0.lock();
        if state.power_off_at.is_some_and(|at| state.operations >= at) {
            return Err(io::Error::other("the power is off"));
        }
        let at = offset as usize;
        buffer.copy_from_slice(&state.current[at..at + buffer.len()]);
        Ok(())
    }
}

impl State {
    fn count(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.power_off_at.is_some_and(|at| self.operations > at) {
            true => Err(io::Error::other("the power is off")),
            false => Ok(()),
        }
    }
}

impl Medium for MemoryMedium {
    fn size(&self) -> u64 {
        self.0.lock().current.len() as u64
    }
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.fetch(buffer, offset)
    }
    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.change(data, offset)
    }
    fn write_metadata(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.change(data, offset)
    }
    fn read_metadata(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.fetch(buffer, offset)
    }
    fn sync(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.count()?;
        let unsynced = std::mem::take(&mut state.unsynced);
        if std::mem::take(&mut state.fails_next_sync) {
            for (at, data) in unsynced {
                let durable = state.durable[at..at + data.len()].to_vec();
                state.current[at..at + data.len()].copy_from_slice(&durable);
            }
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        for (at, data) in unsynced {
            state.durable[at..at + data.len()].copy_from_slice(&data);
        }
        Ok(())
    }
    fn discard(&self, range: Range<u64>) -> io::Result<()> {
        let mut state = self.0.lock();
        state.count()?;
        let range = range.start as usize..range.end as usize;
        state.unsynced.retain(|(at, _)| !range.contains(at));
        state.current[range.clone()].fill(0xdd);
        state.durable[range].fill(0xdd);
        Ok(())
    }
    fn power_session(&self) -> [u8; 16] {
        [self.0.lock().session; 16]
    }
    fn lock(&self) -> io::Result<bool> {
        Ok(true)
    }
}
