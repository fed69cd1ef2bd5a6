//! The status of a cell, as `cellar cell status` shows it.

use crate::bytes::{Corrupt, Reader, Write};

/// The status of a running cell. Counters start at zero with the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellStatus {
    pub name: String,
    pub mount: String,
    pub version: String,
    pub pid: u32,
    pub uptime_seconds: u64,
    pub disks: Vec<DiskStatus>,
    pub cache_capacity_bytes: u64,
    pub cache_used_bytes: u64,
    /// The memory budget, kind by kind.
    pub memory: Vec<MemoryStatus>,
    /// Regions whose summaries the last clean stop saved and the start loaded.
    pub storage_index_loaded_regions: u64,
    pub scans: u64,
    pub eligible_bytes: u64,
    pub saved_by_storage_index_bytes: u64,
    pub returned_bytes: u64,
}

/// One kind of memory, with its use and its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryStatus {
    pub kind: String,
    pub used_bytes: u64,
    pub limit_bytes: u64,
}

/// One cell disk, with the sizes of its file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskStatus {
    pub path: String,
    pub total_bytes: u64,
    /// Free bytes beyond the reserve.
    pub available_bytes: u64,
    pub reserve_bytes: u64,
    /// The part of the reserve that is free.
    pub reserve_free_bytes: u64,
}

impl CellStatus {
    pub fn encode(&self, out: &mut Vec<u8>) {
        for text in [&self.name, &self.mount, &self.version] {
            out.put_blob(text.as_bytes());
        }
        out.put_u32(self.pid);
        out.put_u64(self.uptime_seconds);
        out.put_u32(self.disks.len() as u32);
        for disk in &self.disks {
            out.put_blob(disk.path.as_bytes());
            out.put_u64(disk.total_bytes);
            out.put_u64(disk.available_bytes);
            out.put_u64(disk.reserve_bytes);
            out.put_u64(disk.reserve_free_bytes);
        }
        out.put_u32(self.memory.len() as u32);
        for memory in &self.memory {
            out.put_blob(memory.kind.as_bytes());
            out.put_u64(memory.used_bytes);
            out.put_u64(memory.limit_bytes);
        }
        for value in [
            self.cache_capacity_bytes,
            self.cache_used_bytes,
            self.storage_index_loaded_regions,
            self.scans,
            self.eligible_bytes,
            self.saved_by_storage_index_bytes,
            self.returned_bytes,
        ] {
            out.put_u64(value);
        }
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let (name, mount, version) =
            (reader.string("cell's name")?, reader.string("mount")?, reader.string("version")?);
        let (pid, uptime_seconds) = (reader.u32("pid")?, reader.u64("uptime")?);
        let count = reader.count(20, "cell disks")?;
        let mut disks = Vec::with_capacity(count);
        for _ in 0..count {
            disks.push(DiskStatus {
                path: reader.string("cell disk")?,
                total_bytes: reader.u64("disk size")?,
                available_bytes: reader.u64("free space")?,
                reserve_bytes: reader.u64("reserve")?,
                reserve_free_bytes: reader.u64("free part of the reserve")?,
            });
        }
        let count = reader.count(20, "kinds of memory")?;
        let mut memory = Vec::with_capacity(count);
        for _ in 0..count {
            memory.push(MemoryStatus {
                kind: reader.string("kind of memory")?,
                used_bytes: reader.u64("memory in use")?,
                limit_bytes: reader.u64("memory limit")?,
            });
        }
        let status = Self {
            name,
            mount,
            version,
            pid,
            uptime_seconds,
            disks,
            memory,
            cache_capacity_bytes: reader.u64("page cache")?,
            cache_used_bytes: reader.u64("page cache")?,
            storage_index_loaded_regions: reader.u64("storage index")?,
            scans: reader.u64("scans")?,
            eligible_bytes: reader.u64("scan counts")?,
            saved_by_storage_index_bytes: reader.u64("scan counts")?,
            returned_bytes: reader.u64("scan counts")?,
        };
        reader.finish("status")?;
        Ok(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_decodes_to_its_equal_and_a_truncated_status_is_corrupt() {
        let (path, total_bytes, available_bytes) = ("/disk1".into(), 9, 6);
        let disk = DiskStatus { path, total_bytes, available_bytes, reserve_bytes: 2, reserve_free_bytes: 1 };
        let status = CellStatus {
            name: "cell1".into(),
            mount: "/srv".into(),
            version: "1".into(),
            pid: 7,
            disks: vec![disk.clone(), disk],
            memory: vec![MemoryStatus { kind: "groups".into(), used_bytes: 6, limit_bytes: 7 }],
            storage_index_loaded_regions: 8,
            scans: 3,
            returned_bytes: 5,
            ..CellStatus::default()
        };
        let mut payload = Vec::new();
        status.encode(&mut payload);
        assert_eq!(CellStatus::decode(&payload).unwrap(), status);
        for cut in 0..payload.len() {
            CellStatus::decode(&payload[..cut]).unwrap_err();
        }
    }
}
