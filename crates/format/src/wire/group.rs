//! Requests about the disk group of a cell. The answer is JSON text.

use crate::bytes::{Corrupt, Reader, Write};

/// What a request does before the cell reports the state of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum GroupAction {
    Status = 0,
    /// Brings a disk online that was offline.
    Online = 1,
    /// Takes a disk offline.
    Offline = 2,
    /// Starts a scrub.
    Scrub = 3,
    StopScrub = 4,
    /// Adds a blank disk to the group.
    Add = 5,
    /// Empties a disk, which then leaves the group.
    Drop = 6,
    /// Cancels a drop.
    Undrop = 7,
    /// Sets the power of rebalances.
    Power = 8,
    /// Begins a rebalance.
    Rebalance = 9,
    /// Adds a blank disk to the group, in a named failure group.
    AddTo = 10,
    /// Drops a disk without using it any more.
    DropForce = 11,
    /// Adds a disk in place of another one, which is dropped.
    Replace = 12,
    /// Sets how long a disk may be offline before it is dropped by force.
    RepairTime = 13,
    /// Sets the redundancy of new files of a type.
    FileRedundancy = 14,
    /// Switches the flash cache off until the next start of the cell.
    DropFlashCache = 15,
    /// Sets the mode of the flash cache. A change to WriteThrough writes all dirty pages to the cell disks first.
    FlashCacheMode = 16,
    /// Writes all dirty pages to the cell disks, and keeps pages from becoming dirty.
    FlushFlashCache = 17,
    /// Lets pages become dirty again.
    CancelFlush = 18,
}

impl GroupAction {
    /// Returns whether the action concerns the flash cache and not the disk group.
    pub fn is_about_flash(self) -> bool {
        matches!(self, Self::DropFlashCache | Self::FlashCacheMode | Self::FlushFlashCache | Self::CancelFlush)
    }

    fn has_argument(self) -> bool {
        matches!(self, Self::AddTo | Self::Replace | Self::FileRedundancy | Self::FlashCacheMode)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRequest {
    pub action: GroupAction,
    /// Path of the disk; empty for an action on the whole group.
    pub disk: String,
    /// Of a scrub: maximum bytes per second, 0 for no limit.
    pub rate: u64,
    /// Of [`GroupAction::Power`]: 0 to 11.
    pub power: u32,
    /// Of [`GroupAction::AddTo`]: the failure group. Of [`GroupAction::Replace`]: the path of the new disk. Of
    /// [`GroupAction::FileRedundancy`]: the name of the type, `=`, and `normal`, `high` or `default`. Of
    /// [`GroupAction::FlashCacheMode`]: `WriteThrough` or `WriteBack`.
    pub argument: String,
    /// Of [`GroupAction::RepairTime`]; 0 for ever.
    pub seconds: u64,
}

impl GroupRequest {
    pub fn on_group(action: GroupAction) -> Self {
        Self::on_disk(action, String::new())
    }

    pub fn on_disk(action: GroupAction, disk: String) -> Self {
        Self { action, disk, rate: 0, power: 0, argument: String::new(), seconds: 0 }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.action as u8);
        out.put_blob(self.disk.as_bytes());
        match self.action {
            GroupAction::Scrub => out.put_u64(self.rate),
            GroupAction::Power => out.put_u32(self.power),
            action if action.has_argument() => out.put_blob(self.argument.as_bytes()),
            GroupAction::RepairTime => out.put_u64(self.seconds),
            _ => {}
        }
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let action = match reader.u8("group action")? {
            0 => GroupAction::Status,
            1 => GroupAction::Online,
            2 => GroupAction::Offline,
            3 => GroupAction::Scrub,
            4 => GroupAction::StopScrub,
            5 => GroupAction::Add,
            6 => GroupAction::Drop,
            7 => GroupAction::Undrop,
            8 => GroupAction::Power,
            9 => GroupAction::Rebalance,
            10 => GroupAction::AddTo,
            11 => GroupAction::DropForce,
            12 => GroupAction::Replace,
            13 => GroupAction::RepairTime,
            14 => GroupAction::FileRedundancy,
            15 => GroupAction::DropFlashCache,
            16 => GroupAction::FlashCacheMode,
            17 => GroupAction::FlushFlashCache,
            18 => GroupAction::CancelFlush,
            other => return Err(Corrupt::new("group action", 0, other.to_string())),
        };
        let disk = reader.string("path of the disk")?;
        let rate = if action == GroupAction::Scrub { reader.u64("rate")? } else { 0 };
        let power = if action == GroupAction::Power { reader.u32("power")? } else { 0 };
        let argument = if action.has_argument() { reader.string("argument")? } else { String::new() };
        let seconds = if action == GroupAction::RepairTime { reader.u64("seconds")? } else { 0 };
        reader.finish("group request")?;
        Ok(Self { action, disk, rate, power, argument, seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_back_and_a_truncated_one_is_corrupt() {
        let request = |action| GroupRequest::on_disk(action, "/disk1".into());
        let requests = [
            GroupRequest { rate: 7 << 20, ..request(GroupAction::Scrub) },
            GroupRequest { power: 3, ..request(GroupAction::Power) },
            request(GroupAction::Drop),
            request(GroupAction::DropForce),
            GroupRequest { argument: "b".into(), ..request(GroupAction::AddTo) },
            GroupRequest { argument: "/disk2".into(), ..request(GroupAction::Replace) },
            GroupRequest { seconds: 7 << 40, ..request(GroupAction::RepairTime) },
            GroupRequest { argument: "wal=high".into(), ..request(GroupAction::FileRedundancy) },
            GroupRequest { argument: "WriteBack".into(), ..request(GroupAction::FlashCacheMode) },
            request(GroupAction::FlushFlashCache),
            request(GroupAction::CancelFlush),
        ];
        for request in requests {
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            assert_eq!(GroupRequest::decode(&bytes).unwrap(), request);
            for length in 0..bytes.len() {
                assert!(GroupRequest::decode(&bytes[..length]).is_err(), "{length}");
            }
            bytes[0] = 19;
            assert!(GroupRequest::decode(&bytes).is_err());
        }
    }
}
