//! Allocates hash tables.

/// Bytes of the smallest pages of memory.
const PAGE_BYTES: usize = 4096;

/// Returns zeroes and writes to each of their pages. A lookup reads a slot before it writes the slot. In memory that the allocator has just
/// obtained, that read would map the kernel's page of zeroes, and the write would replace it: a second page fault, and an interrupt of all
/// processors on which threads of the cell run. With two threads that fill tables, such interrupts took more time than the lookups.
pub fn zeroed<T: Copy + Default>(len: usize) -> Vec<T> {
    let mut table = vec![T::default(); len];
    let step = (PAGE_BYTES / size_of::<T>().max(1)).max(1);
    let write = |item: &mut T| *item = std::hint::black_box(T::default());
    table.iter_mut().step_by(step).for_each(write);
    table.last_mut().into_iter().for_each(write);
    table
}

#[cfg(test)]
mod tests {
    use super::{PAGE_BYTES, zeroed};

    /// The page faults of this thread so far.
    fn page_faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(7).unwrap().parse().unwrap()
    }

    #[test]
    fn a_new_table_is_mapped_for_writing() {
        const PAGES: usize = 16 << 10;
        let mut table = zeroed::<u64>(PAGES * PAGE_BYTES / 8);
        let before = page_faults();
        let pages = || (0..PAGES).map(|page| page * PAGE_BYTES / 8);
        assert_eq!(pages().map(|at| table[at]).sum::<u64>(), 0);
        pages().for_each(|at| table[at] += 1);
        assert!(page_faults() - before < PAGES as u64 / 16, "{} page faults", page_faults() - before);
    }

    #[test]
    fn tables_of_all_lengths_have_zeroes_only() {
        for len in [0, 1, 511, 512, 513, 100_000] {
            assert_eq!(zeroed::<u64>(len), vec![0; len]);
            assert_eq!(zeroed::<[u64; 2]>(len), vec![[0; 2]; len]);
        }
    }
}
