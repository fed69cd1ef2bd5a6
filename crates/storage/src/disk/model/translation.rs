//! The page-mapped translation layer of a flash device: where each mapping unit is stored, and garbage collection.
//!
//! Invariants: a unit is always written to the same die; a mapped unit is valid in exactly one slot of one block; the valid count of a block is the number of its
//! valid slots; a die keeps at least one free block for collection. The layer does not know how long operations take: the flash
//! model runs each operation, then asks for the next step.

use super::parameters::{FlashParameters, TranslationParameters};
use std::collections::VecDeque;

/// No unit, or no place.
const NONE: u32 = u32::MAX;

/// A slot of a mapping unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    die: u32,
    slot: u32,
}

#[derive(Debug)]
pub struct Translation {
    /// Of each unit; `die` is NONE for a unit that is not mapped.
    places: Vec<Place>,
    dies: Vec<Die>,
    slots_per_block: u32,
    pub units_per_page: usize,
    /// Units that a step of garbage collection copies.
    units_per_step: usize,
    foreground_free: usize,
    idle_free: usize,
}

#[derive(Debug)]
struct Die {
    /// The unit in each slot; NONE if the slot is free or its content was superseded.
    units: Vec<u32>,
    valid: Vec<u32>,
    /// Sum of `valid`.
    valid_sum: usize,
    free: VecDeque<u32>,
    /// Blocks that are fully written.
    full: Vec<u32>,
    /// The block that is being written, and its next slot.
    open: u32,
    next_slot: u32,
    victim: Option<Victim>,
}

#[derive(Debug, Clone, Copy)]
struct Victim {
    block: u32,
    next_slot: u32,
}

/// A step of garbage collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Units that were copied to another block of the die, and the pages that were read for them.
    Copy {
        units: usize,
        pages: usize,
    },
    Erase,
}

impl Translation {
    pub fn new(flash: &FlashParameters, parameters: &TranslationParameters) -> Self {
        let dies = flash.channels * flash.dies_per_channel;
        let block_bytes = flash.page_bytes * flash.pages_per_block;
        let physical = flash.capacity_bytes as f64 * (1.0 + parameters.over_provisioning_percent / 100.0);
        // One block is open and one is free for collection in addition.
        let blocks = (physical / (dies as u64 * block_bytes) as f64).ceil() as usize + 2;
        // The last free block is for collection itself.
        let share = |percent: f64| ((blocks as f64 * percent / 100.0).ceil() as usize).max(2);
        let slots_per_block = (block_bytes / parameters.mapping_bytes) as u32;
        let die = || Die {
            units: vec![NONE; blocks * slots_per_block as usize],
            valid: vec![0; blocks],
            valid_sum: 0,
            free: (1..blocks as u32).collect(),
            full: Vec::new(),
            open: 0,
            next_slot: 0,
            victim: None,
        };
        let foreground_free = share(parameters.foreground_free_percent);
        Self {
            places: vec![
                Place { die: NONE, slot: NONE };
                flash.capacity_bytes.div_ceil(parameters.mapping_bytes) as usize
            ],
            dies: (0..dies).map(|_| die()).collect(),
            slots_per_block,
            units_per_page: (flash.page_bytes / parameters.mapping_bytes) as usize,
            units_per_step: (flash.page_bytes / parameters.mapping_bytes) as usize * parameters.collection_pages,
            foreground_free,
            idle_free: share(parameters.idle_free_percent).max(foreground_free + 1),
        }
    }

    pub fn is_mapped(&self, unit: u32) -> bool {
        self.places.get(unit as usize).is_some_and(|place| place.die != NONE)
    }

    /// Ends the validity of a unit's content.
    pub fn unmap(&mut self, unit: u32) {
        let Some(place) = self.places.get_mut(unit as usize) else { return };
        if place.die != NONE {
            let die = &mut self.dies[place.die as usize];
            die.units[place.slot as usize] = NONE;
            die.valid[(place.slot / self.slots_per_block) as usize] -= 1;
            die.valid_sum -= 1;
            *place = Place { die: NONE, slot: NONE };
        }
    }

    /// Returns whether a write to the die must wait for garbage collection.
    pub fn must_collect(&self, die: usize) -> bool {
        let state = &self.dies[die];
        (state.free.len() < self.foreground_free || state.victim.is_some() && state.free.len() == self.foreground_free)
            && self.can_collect(die)
    }

    /// Returns whether idle time is to be used for garbage collection.
    pub fn wants_idle_collection(&self, die: usize) -> bool {
        self.dies[die].free.len() < self.idle_free && self.can_collect(die)
    }

    fn can_collect(&self, die: usize) -> bool {
        let state = &self.dies[die];
        let valid_in_full = state.valid_sum - state.valid[state.open as usize] as usize;
        state.victim.is_some() || valid_in_full < state.full.len() * self.slots_per_block as usize
    }

    /// Stores a unit on a die.
    pub fn write(&mut self, die: usize, unit: u32) {
        self.unmap(unit);
        self.append(die, unit);
    }

    fn append(&mut self, die: usize, unit: u32) {
        let state = &mut self.dies[die];
        if state.next_slot == self.slots_per_block {
            state.full.push(state.open);
            state.open = state.free.pop_front().expect("a free block is kept for collection");
            state.next_slot = 0;
        }
        let slot = state.open * self.slots_per_block + state.next_slot;
        state.next_slot += 1;
        state.units[slot as usize] = unit;
        state.valid[state.open as usize] += 1;
        state.valid_sum += 1;
        if let Some(place) = self.places.get_mut(unit as usize) {
            *place = Place { die: die as u32, slot };
        }
    }

    /// Runs the next step of garbage collection on a die: copies valid units of the block with the
    /// fewest, or erases it. Call only if [`Self::must_collect`] or [`Self::wants_idle_collection`].
    pub fn collect(&mut self, die: usize) -> Step {
        let slots = self.slots_per_block;
        let state = &mut self.dies[die];
        let victim = match state.victim {
            Some(victim) => victim,
            None => {
                let fewest = (0..state.full.len()).min_by_key(|index| state.valid[state.full[*index] as usize]);
                let block = state.full.swap_remove(fewest.expect("a full block exists"));
                Victim { block, next_slot: 0 }
            }
        };
        let (mut next, mut moved, mut pages, mut last_page) = (victim.next_slot, Vec::new(), 0, NONE);
        while next < slots && moved.len() < self.units_per_step {
            let unit = state.units[(victim.block * slots + next) as usize];
            if unit != NONE {
                let page = next / self.units_per_page as u32;
                pages += usize::from(page != last_page);
                last_page = page;
                moved.push(unit);
            }
            next += 1;
        }
        if moved.is_empty() {
            state.victim = None;
            debug_assert_eq!(state.valid[victim.block as usize], 0);
            state.free.push_back(victim.block);
            return Step::Erase;
        }
        state.victim = Some(Victim { next_slot: next, ..victim });
        for unit in &moved {
            self.unmap(*unit);
            self.append(die, *unit);
        }
        Step::Copy { units: moved.len(), pages }
    }

    #[cfg(test)]
    fn check(&self) {
        for (number, die) in self.dies.iter().enumerate() {
            let blocks = die.valid.len() as u32;
            for block in 0..blocks {
                let slots = block * self.slots_per_block..(block + 1) * self.slots_per_block;
                let valid = slots.clone().filter(|slot| die.units[*slot as usize] != NONE).count();
                assert_eq!(valid as u32, die.valid[block as usize]);
                for slot in slots.filter(|slot| die.units[*slot as usize] != NONE) {
                    let unit = die.units[slot as usize];
                    assert_eq!(self.places[unit as usize], Place { die: number as u32, slot });
                }
            }
            assert_eq!(die.valid_sum, die.valid.iter().sum::<u32>() as usize);
            assert!(!die.free.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parameters::ModelParameters;
    use super::*;

    fn small() -> Translation {
        let text = include_str!("../../../models/flash-mlc.toml").replace("1_073_741_824", "268_435_456");
        let Ok(ModelParameters::Flash(flash)) = ModelParameters::parse(&text) else { panic!("a flash model") };
        Translation::new(&flash, flash.translation.as_ref().unwrap())
    }

    /// Rewrites random units of a full device many times over.
    #[test]
    fn every_unit_stays_in_one_place_during_garbage_collection() {
        let mut translation = small();
        let units = translation.places.len() as u32;
        let dies = translation.dies.len();
        let (mut random, mut copied, mut erases) = (1_u64, 0, 0);
        for step in 0..units * 4 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let unit = if step < units { step } else { (random >> 33) as u32 % units };
            let die = unit as usize / translation.units_per_page % dies;
            while translation.must_collect(die) {
                match translation.collect(die) {
                    Step::Copy { units, .. } => copied += units,
                    Step::Erase => erases += 1,
                }
            }
            translation.write(die, unit);
        }
        translation.check();
        let amplification = 1.0 + copied as f64 / f64::from(units * 3);
        assert!(erases > 1000, "{erases} erases");
        // Greedy collection of uniform random writes with 7 % spare blocks amplifies 5 to 9 times (Desnoyers, "Analytic
        // Modeling of SSD Write Performance", SYSTOR 2012: about (1 + S) / (2 S) for spare share S).
        assert!((4.0..9.0).contains(&amplification), "write amplification {amplification}");
        for unit in 0..units {
            translation.unmap(unit);
        }
        translation.check();
    }

    #[test]
    fn idle_collection_ends_when_enough_blocks_are_free() {
        let mut translation = small();
        let units = translation.places.len() as u32;
        for step in 0..units {
            translation.write(step as usize / translation.units_per_page % translation.dies.len(), step);
        }
        for unit in 0..units / 10 {
            translation.unmap(unit * 10);
        }
        let mut steps = 0;
        while translation.wants_idle_collection(0) {
            translation.collect(0);
            steps += 1;
            assert!(steps < 1_000_000, "collection does not end");
        }
        assert!(translation.dies[0].free.len() >= translation.idle_free);
        translation.check();
    }
}
