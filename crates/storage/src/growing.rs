//! A list that grows while other threads read it: slices that were returned before stay valid, and keep their length.

use std::sync::OnceLock;

/// Each push keeps the former items, so a list that grows often needs much memory. The lists of a disk group grow with
/// its disks only, those of write-back with commands that begin it.
#[derive(Debug)]
pub struct Growing<T> {
    items: Vec<T>,
    next: OnceLock<Box<Growing<T>>>,
}

impl<T: Clone> Growing<T> {
    pub fn new(items: Vec<T>) -> Self {
        Self { items, next: OnceLock::new() }
    }

    /// Returns the present items.
    pub fn all(&self) -> &[T] {
        &self.last().items
    }

    pub fn push(&self, item: T) {
        loop {
            let last = self.last();
            let mut items = last.items.clone();
            items.push(item.clone());
            if last.next.set(Box::new(Self::new(items))).is_ok() {
                return;
            }
        }
    }

    fn last(&self) -> &Self {
        let mut last = self;
        while let Some(next) = last.next.get() {
            last = next;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_stays_valid_while_the_list_grows() {
        let list = Growing::new(vec![1]);
        let before = list.all();
        list.push(2);
        list.push(3);
        assert_eq!((before, list.all()), (&[1][..], &[1, 2, 3][..]));
    }
}
