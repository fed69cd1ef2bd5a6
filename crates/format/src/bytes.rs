//! Bounds-checked little-endian reading and writing of wire and disk formats.

/// Invalid bytes: the field that was read, its offset in the payload, and the value found there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("corrupt {what} at byte {offset}: {found}")]
pub struct Corrupt {
    pub what: &'static str,
    pub offset: usize,
    pub found: String,
}

impl Corrupt {
    pub fn new(what: &'static str, offset: usize, found: impl Into<String>) -> Self {
        Self { what, offset, found: found.into() }
    }
}

/// Reads fields off the front of a byte slice.
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub fn position(&self) -> usize {
        self.position
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], Corrupt> {
        if count > self.remaining() {
            let found = format!("{count} bytes needed, {} left", self.remaining());
            return Err(Corrupt::new(what, self.position, found));
        }
        let taken = &self.bytes[self.position..self.position + count];
        self.position += count;
        Ok(taken)
    }

    pub fn u8(&mut self, what: &'static str) -> Result<u8, Corrupt> {
        Ok(self.take(1, what)?[0])
    }

    pub fn bool(&mut self, what: &'static str) -> Result<bool, Corrupt> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Corrupt::new(what, self.position - 1, format!("{other}, not 0 or 1"))),
        }
    }

    pub fn u16(&mut self, what: &'static str) -> Result<u16, Corrupt> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32, Corrupt> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub fn u64(&mut self, what: &'static str) -> Result<u64, Corrupt> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Reads a u32 length and as many bytes.
    pub fn blob(&mut self, what: &'static str) -> Result<&'a [u8], Corrupt> {
        let length = self.u32(what)? as usize;
        self.take(length, what)
    }

    pub fn string(&mut self, what: &'static str) -> Result<String, Corrupt> {
        let offset = self.position;
        String::from_utf8(self.blob(what)?.to_vec()).map_err(|_| Corrupt::new(what, offset, "not UTF-8"))
    }

    /// Reads a u32 count of items of at least `item_bytes` each. Fails if the remaining bytes are too few for the
    /// items, which bounds the caller's allocation.
    pub fn count(&mut self, item_bytes: usize, what: &'static str) -> Result<usize, Corrupt> {
        let offset = self.position;
        let count = self.u32(what)? as usize;
        if count.saturating_mul(item_bytes) > self.remaining() {
            return Err(Corrupt::new(what, offset, format!("{count} items in {} bytes", self.remaining())));
        }
        Ok(count)
    }

    /// Fails if bytes are left.
    pub fn finish(&self, what: &'static str) -> Result<(), Corrupt> {
        match self.remaining() {
            0 => Ok(()),
            extra => Err(Corrupt::new(what, self.position, format!("{extra} extra bytes"))),
        }
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Corrupt> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }
}

/// Appends fields to a byte vector; the counterpart of [`Reader`].
pub trait Write {
    fn put_u8(&mut self, value: u8);
    fn put_bytes(&mut self, bytes: &[u8]);

    fn put_bool(&mut self, value: bool) {
        self.put_u8(value as u8);
    }
    fn put_u16(&mut self, value: u16) {
        self.put_bytes(&value.to_le_bytes());
    }
    fn put_u32(&mut self, value: u32) {
        self.put_bytes(&value.to_le_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.put_bytes(&value.to_le_bytes());
    }
    fn put_blob(&mut self, blob: &[u8]) {
        self.put_u32(blob.len() as u32);
        self.put_bytes(blob);
    }
}

impl Write for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
