//! Items by partition, for merges in partitions by hash.

/// Items by partition, such as the groups of an aggregator.
pub struct Partitions<T> {
    items: Vec<T>,
    /// Where the items of each partition end.
    ends: Vec<usize>,
}

impl<T: Copy + Default> Partitions<T> {
    /// `numbers` has the partition of each item.
    pub fn new(items_in_order: impl Iterator<Item = T>, numbers: &[u16], count: usize) -> Self {
        let mut next = vec![0; count + 1];
        numbers.iter().for_each(|number| next[usize::from(*number) + 1] += 1);
        for partition in 0..count {
            next[partition + 1] += next[partition];
        }
        let mut items = vec![T::default(); numbers.len()];
        for (item, number) in items_in_order.zip(numbers) {
            let at = &mut next[usize::from(*number)];
            items[*at] = item;
            *at += 1;
        }
        next.truncate(count);
        Self { items, ends: next }
    }

    /// The items of a partition, in their order.
    pub fn get(&self, number: usize) -> &[T] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.items[start..self.ends[number]]
    }
}
