//! Where the regions of a file are stored: successive runs of regions, each on one container.

use cellar_format::bytes::{Corrupt, Reader, Write};
use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes of a region, the unit of placement. Every allocation-unit size is a multiple.
pub const REGION: u64 = 1 << 20;
/// The end of a run without an end.
pub const OPEN_END: u32 = u32::MAX;

/// Never empty; the first run starts at region 0, and neighbours are on different containers. The last run has no end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs(Vec<(u32, u16)>);

/// Returns the region that contains a byte. Regions beyond the 32-bit range count as the last one.
fn region_at(offset: u64) -> u32 {
    (offset / REGION).min(u64::from(OPEN_END) - 1) as u32
}

/// Returns the regions that a byte range touches.
pub fn regions_of(range: &Range<u64>) -> Range<u32> {
    region_at(range.start)..range.end.div_ceil(REGION).min(u64::from(OPEN_END)) as u32
}

/// Returns the bytes of regions.
pub fn bytes_of(regions: &Range<u32>) -> Range<u64> {
    let end = if regions.end == OPEN_END { u64::MAX } else { u64::from(regions.end) * REGION };
    u64::from(regions.start) * REGION..end
}

impl Runs {
    pub fn all_on(container: u16) -> Self {
        Self(vec![(0, container)])
    }

    /// Returns the container of all regions; None if there are several.
    pub fn single(&self) -> Option<u16> {
        (self.0.len() == 1).then(|| self.0[0].1)
    }

    /// Returns the container of the last regions, where the file grows.
    pub fn tail(&self) -> u16 {
        self.0.last().expect("there is a run").1
    }

    /// Returns the number of runs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn containers(&self) -> BTreeSet<u16> {
        self.0.iter().map(|(_, container)| *container).collect()
    }

    fn index_at(&self, region: u32) -> usize {
        self.0.partition_point(|(start, _)| *start <= region) - 1
    }

    fn end_of(&self, index: usize) -> u32 {
        self.0.get(index + 1).map_or(OPEN_END, |(start, _)| *start)
    }

    /// Returns the container of some regions; None if there are several.
    pub fn container_of(&self, regions: &Range<u32>) -> Option<u16> {
        let index = self.index_at(regions.start);
        (regions.end <= self.end_of(index)).then(|| self.0[index].1)
    }

    /// Splits a byte range where the container changes.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, u16)> + '_ {
        let mut next = range.start;
        std::iter::from_fn(move || {
            if next >= range.end {
                return None;
            }
            let start = next;
            let index = self.index_at(region_at(start));
            next = bytes_of(&(0..self.end_of(index))).end.min(range.end);
            Some((start..next, self.0[index].1))
        })
    }

    /// Returns the runs on a container.
    pub fn on(&self, container: u16) -> Vec<Range<u32>> {
        let runs = self.0.iter().enumerate().filter(|(_, (_, on))| *on == container);
        runs.map(|(index, (start, _))| *start..self.end_of(index)).collect()
    }

    /// Assigns regions to a container.
    pub fn assign(&mut self, regions: &Range<u32>, container: u16) {
        if regions.is_empty() {
            return;
        }
        let after = (regions.end != OPEN_END).then(|| (regions.end, self.0[self.index_at(regions.end)].1));
        self.0.retain(|(start, _)| !regions.contains(start) && *start != regions.end);
        let at = self.0.partition_point(|(start, _)| *start < regions.start);
        self.0.splice(at..at, std::iter::once((regions.start, container)).chain(after));
        self.0.dedup_by_key(|(_, container)| *container);
    }

    pub fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.put_u32(self.0.len() as u32);
        for (start, container) in &self.0 {
            bytes.put_u32(*start);
            bytes.put_u16(*container);
        }
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let at = reader.position();
        let count = reader.count(6, "runs")?;
        let mut runs: Vec<(u32, u16)> = Vec::with_capacity(count);
        for _ in 0..count {
            runs.push((reader.u32("start of a run")?, reader.u16("container of a run")?));
        }
        let is_ascending = runs.windows(2).all(|pair| pair[0].0 < pair[1].0);
        match runs.first() {
            Some((0, _)) if is_ascending => Ok(Self(runs)),
            _ => Err(Corrupt::new("runs", at, format!("{runs:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_agree_with_a_list_of_regions() {
        let mut seed = 7u64;
        let mut random = |limit: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % limit
        };
        for _ in 0..200 {
            let (mut runs, mut model) = (Runs::all_on(0), vec![0u16; 40]);
            for _ in 0..30 {
                let start = random(40) as u32;
                let end = start + random(u64::from(40 - start)) as u32;
                let end = if random(8) == 0 { OPEN_END } else { end };
                let container = random(3) as u16;
                runs.assign(&(start..end), container);
                (start..end.min(40)).for_each(|region| model[region as usize] = container);
                for (region, expected) in (0..40u32).zip(&model) {
                    assert_eq!(runs.container_of(&(region..region + 1)), Some(*expected), "{runs:?}");
                }
                assert!(runs.0.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1), "{runs:?}");
            }
            let mut bytes = Vec::new();
            runs.encode(&mut bytes);
            assert_eq!(Runs::decode(&mut Reader::new(&bytes)).unwrap(), runs);
            let pieces: Vec<_> = runs.pieces(REGION / 2..33 * REGION).collect();
            assert_eq!((pieces[0].0.start, pieces[pieces.len() - 1].0.end), (REGION / 2, 33 * REGION));
            assert!(pieces.windows(2).all(|pair| pair[0].0.end == pair[1].0.start && pair[0].1 != pair[1].1));
        }
    }
}
