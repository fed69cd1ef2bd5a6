//! Items by partition, for merges in partitions by hash.

/// Items by partition, such as the groups of an aggregator. Items are numbered from 1.
pub struct Partitions {
    items: Vec<u32>,
    /// Where the items of each partition end.
    ends: Vec<usize>,
}

impl Partitions {
    /// `numbers` has the partition of each item.
    pub fn new(numbers: &[u16], count: usize) -> Self {
        let mut next = vec![0; count + 1];
        numbers.iter().for_each(|number| next[usize::from(*number) + 1] += 1);
        for partition in 0..count {
            next[partition + 1] += next[partition];
        }
        let mut items = vec![0; numbers.len()];
        for (item, number) in (1..).zip(numbers) {
            let at = &mut next[usize::from(*number)];
            items[*at] = item;
            *at += 1;
        }
        next.truncate(count);
        Self { items, ends: next }
    }

    /// The items of a partition, in ascending order.
    pub fn get(&self, number: usize) -> &[u32] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.items[start..self.ends[number]]
    }
}
