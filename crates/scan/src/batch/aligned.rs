//! A growable byte buffer whose first byte has an address divisible by eight.

/// Bytes, stored in eight-byte words.
#[derive(Debug, Default, Clone)]
pub struct AlignedBuffer {
    words: Vec<u64>,
    bytes: usize,
}

impl AlignedBuffer {
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the allocated memory in bytes.
    pub fn capacity(&self) -> usize {
        self.words.capacity() * 8
    }

    /// Removes the contents without freeing the memory.
    pub fn clear(&mut self) {
        self.bytes = 0;
    }

    pub fn as_slice(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }

    /// Appends `count` bytes of unspecified content and returns them.
    pub fn grow(&mut self, count: usize) -> &mut [u8] {
        let start = self.bytes;
        self.bytes += count;
        let words = self.bytes.div_ceil(8);
        if words > self.words.len() {
            self.words.resize(words.max(self.words.len() * 2).max(512), 0);
        }
        &mut self.as_mut_slice()[start..]
    }

    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.grow(bytes.len()).copy_from_slice(bytes);
    }
}

impl std::ops::Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}
