//! Parameters of device models: TOML files in `crates/storage/models`, which are built in, or files of the user.

use serde::Deserialize;
use std::path::Path;

const BUILT_IN: [(&str, &str); 5] = [
    ("hdd-15k", include_str!("../../../models/hdd-15k.toml")),
    ("hdd-7k2", include_str!("../../../models/hdd-7k2.toml")),
    ("flash-slc", include_str!("../../../models/flash-slc.toml")),
    ("flash-mlc", include_str!("../../../models/flash-mlc.toml")),
    ("flash-array", include_str!("../../../models/flash-array.toml")),
];

/// The parameters of one model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ModelParameters {
    HardDisk(HardDiskParameters),
    Flash(FlashParameters),
    ArrayLink(ArrayLinkParameters),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardDiskParameters {
    pub capacity_bytes: u64,
    pub rotations_per_minute: f64,
    /// Seek times of reads: to the next track, over a third of the tracks, over all tracks.
    pub seek_track_ms: f64,
    pub seek_average_ms: f64,
    pub seek_full_ms: f64,
    pub write_settle_ms: f64,
    /// Sustained rate of each zone, outer to inner. Zones have the same number of tracks.
    pub zone_mb_per_s: Vec<f64>,
    pub read_ahead_bytes: u64,
    pub interface_mb_per_s: f64,
    pub command_ms: f64,
    /// Time that the mechanics need between two requests that are not neighbours, besides the seek.
    pub reposition_ms: f64,
    pub queue_depth: usize,
    pub starvation_ms: f64,
    /// Volatile write cache; 0 for none.
    pub write_cache_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashParameters {
    pub capacity_bytes: u64,
    pub page_bytes: u64,
    pub pages_per_block: u64,
    pub read_us: f64,
    pub program_us: f64,
    pub erase_us: f64,
    pub channel_mb_per_s: f64,
    pub channels: usize,
    pub dies_per_channel: usize,
    pub interface_mb_per_s: f64,
    /// Requests that the controller processes.
    pub requests_per_s: f64,
    pub command_us: f64,
    /// Write buffer that survives loss of power.
    pub write_buffer_bytes: u64,
    /// None: pages are written in place, and a program includes its share of an erase.
    pub translation: Option<TranslationParameters>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TranslationParameters {
    pub mapping_bytes: u64,
    pub over_provisioning_percent: f64,
    pub foreground_free_percent: f64,
    pub idle_free_percent: f64,
    pub idle_after_ms: f64,
    /// Pages that garbage collection copies while requests to the die wait.
    pub collection_pages: usize,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayLinkParameters {
    pub link_mb_per_s: f64,
    /// Latency of each direction.
    pub link_us: f64,
    pub queue_depth: usize,
    pub device: Box<ModelParameters>,
}

impl ModelParameters {
    /// Returns the names of the built-in models.
    pub fn built_in() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Reads a built-in model, or a file if the name contains a slash. The error says what to write instead.
    pub fn read(name: &str) -> Result<Self, String> {
        if name.contains('/') {
            let text = std::fs::read_to_string(Path::new(name)).map_err(|error| format!("model {name}: {error}"))?;
            return Self::parse(&text).map_err(|error| format!("model {name}: {error}"));
        }
        let text = BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text).ok_or_else(|| {
            let known: Vec<&str> = Self::built_in().collect();
            format!("model \"{name}\" does not exist; write one of {}, or the path of a file", known.join(", "))
        })?;
        Self::parse(text).map_err(|error| format!("model {name}: {error}"))
    }

    /// Parses the text of a parameter file and checks the values.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parameters: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        parameters.check()?;
        Ok(parameters)
    }

    fn check(&self) -> Result<(), String> {
        let positive = |values: &[(&str, f64)]| match values.iter().find(|(_, value)| !(*value > 0.0 && *value < 1e18))
        {
            Some((name, value)) => Err(format!("{name} = {value} is not a positive number")),
            None => Ok(()),
        };
        match self {
            Self::HardDisk(disk) => {
                positive(&[
                    ("capacity_bytes", disk.capacity_bytes as f64),
                    ("rotations_per_minute", disk.rotations_per_minute),
                    ("seek_track_ms", disk.seek_track_ms),
                    ("interface_mb_per_s", disk.interface_mb_per_s),
                    ("queue_depth", disk.queue_depth as f64),
                    ("starvation_ms", disk.starvation_ms),
                    ("number of zones", disk.zone_mb_per_s.len() as f64),
                    ("zone_mb_per_s", disk.zone_mb_per_s.iter().copied().fold(f64::INFINITY, f64::min)),
                ])?;
                if !(disk.seek_track_ms < disk.seek_average_ms && disk.seek_average_ms < disk.seek_full_ms) {
                    return Err("seek_track_ms, seek_average_ms and seek_full_ms must increase".into());
                }
                match disk.write_settle_ms.min(disk.command_ms).min(disk.reposition_ms) >= 0.0 {
                    true => Ok(()),
                    false => Err("write_settle_ms, command_ms and reposition_ms must not be negative".into()),
                }
            }
            Self::Flash(flash) => {
                positive(&[
                    ("capacity_bytes", flash.capacity_bytes as f64),
                    ("page_bytes", flash.page_bytes as f64),
                    ("pages_per_block", flash.pages_per_block as f64),
                    ("read_us", flash.read_us),
                    ("program_us", flash.program_us),
                    ("erase_us", flash.erase_us),
                    ("channel_mb_per_s", flash.channel_mb_per_s),
                    ("channels", flash.channels as f64),
                    ("dies_per_channel", flash.dies_per_channel as f64),
                    ("interface_mb_per_s", flash.interface_mb_per_s),
                    ("requests_per_s", flash.requests_per_s),
                    ("command_us", flash.command_us),
                    ("write_buffer_bytes", flash.write_buffer_bytes as f64),
                ])?;
                match &flash.translation {
                    Some(translation) => translation.check(flash),
                    None => Ok(()),
                }
            }
            Self::ArrayLink(link) => {
                positive(&[
                    ("link_mb_per_s", link.link_mb_per_s),
                    ("link_us", link.link_us),
                    ("queue_depth", link.queue_depth as f64),
                ])?;
                link.device.check()
            }
        }
    }

    /// Returns the device's addresses, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        match self {
            Self::HardDisk(disk) => disk.capacity_bytes,
            Self::Flash(flash) => flash.capacity_bytes,
            Self::ArrayLink(link) => link.device.capacity_bytes(),
        }
    }
}

impl TranslationParameters {
    fn check(&self, flash: &FlashParameters) -> Result<(), String> {
        if self.mapping_bytes == 0 || !flash.page_bytes.is_multiple_of(self.mapping_bytes) {
            return Err(format!("mapping_bytes = {} does not divide page_bytes", self.mapping_bytes));
        }
        let shares = [self.foreground_free_percent, self.idle_free_percent, self.over_provisioning_percent];
        if !(shares[0] > 0.0 && shares.is_sorted_by(|lower, upper| lower < upper) && shares[2] <= 1000.0) {
            return Err("foreground_free_percent, idle_free_percent and over_provisioning_percent must increase".into());
        }
        if self.idle_after_ms < 0.0 || self.collection_pages == 0 {
            return Err("idle_after_ms must not be negative, and collection_pages at least 1".into());
        }
        let dies = (flash.channels * flash.dies_per_channel) as u64;
        if flash.write_buffer_bytes < 2 * dies * flash.page_bytes {
            return Err(format!("write_buffer_bytes must be at least two pages of each of {dies} dies"));
        }
        match flash.capacity_bytes / (dies * flash.pages_per_block * flash.page_bytes) {
            0..32 => Err("each die needs at least 32 blocks: raise capacity_bytes, or use fewer dies".into()),
            32..=0x10_0000 => Ok(()),
            _ => Err("a die has more than 1048576 blocks: raise pages_per_block".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_model_is_valid() {
        for name in ModelParameters::built_in() {
            let parameters = ModelParameters::read(name).unwrap();
            assert!(parameters.capacity_bytes() > 1 << 30 || name == "flash-mlc", "{name}");
        }
    }

    #[test]
    fn errors_state_what_to_write() {
        let check = |text: &str, expected: &str| {
            let message = ModelParameters::parse(text).unwrap_err();
            assert!(message.contains(expected), "{expected:?} is not in {message:?}");
        };
        assert!(ModelParameters::read("tape").unwrap_err().contains("write one of hdd-15k"));
        assert!(ModelParameters::read("/nowhere/x.toml").unwrap_err().contains("/nowhere/x.toml"));
        let disk = include_str!("../../../models/hdd-15k.toml");
        check(&disk.replace("seek_track_ms = 0.2", "seek_track_ms = 9"), "must increase");
        check(&disk.replace("queue_depth = 32", "queue_depth = 0"), "queue_depth = 0 is not");
        check(&disk.replace("write_cache_bytes", "cache"), "cache");
        check("kind = \"tape\"", "tape");
        let flash = include_str!("../../../models/flash-mlc.toml");
        check(&flash.replace("mapping_bytes = 8192", "mapping_bytes = 5000"), "divide page_bytes");
        check(&flash.replace("capacity_bytes = 1_073_741_824", "capacity_bytes = 1_000_000"), "at least 32 blocks");
    }
}
