//! The settings of files, and what the cache has of each file.

use super::FlashCache;
use super::disk::Changing;
use super::format::Object;
use super::index::{CachedObject, pages_of};
use super::location::PAGE;
use super::setting::{FlashContent, FlashSetting};
use crate::disk::Stream;
use crate::error::{Context, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The part of all segments that the keep queue may have, in percent.
const KEEP_PERCENT: u64 = 80;

fn add(content: &mut FlashContent, object: &CachedObject) {
    let uses = object.uses();
    content.cached_bytes += object.pages().max(0) as u64 * PAGE;
    content.hits += uses.hits.load(Ordering::Relaxed);
    content.misses += uses.misses.load(Ordering::Relaxed);
}

impl FlashCache {
    /// Returns the segments that the keep queue may have.
    pub(super) fn keep_segments_max(&self) -> u64 {
        u64::from(self.segment_count) * KEEP_PERCENT / 100
    }

    pub fn setting(&self, ino: u64) -> FlashSetting {
        self.settings.lock().get(&ino).copied().unwrap_or_default()
    }

    /// Changes the setting of a file. Returns the former one. Pages that the file may not have in the cache any more, or that
    /// were kept, leave the cache. The caller syncs the file afterwards: until then, its regions count as unsynced. A checkpoint
    /// makes the setting durable.
    pub fn set_setting(&self, ino: u64, setting: FlashSetting) -> Result<FlashSetting> {
        // Objects have the setting that the last call stored.
        let _changing = self.changing_settings.lock();
        let former = self.store_setting(ino, setting);
        if former == setting {
            return Ok(former);
        }
        // An object that is created from now on has the new setting.
        for object in &self.objects_of(ino) {
            object.set_setting(setting);
            if (setting == FlashSetting::None || former == FlashSetting::Keep)
                && let Err(error) = self.drop_pages(object)
            {
                // The next call tries again.
                self.store_setting(ino, former);
                return Err(error).context(|| format!("could not drop inode {ino} from the flash cache"));
            }
        }
        self.make_settings_durable();
        Ok(former)
    }

    /// As [`Self::set_setting`] for a file that was created just now, and has no pages.
    pub fn set_setting_of_new(&self, ino: u64, setting: FlashSetting) {
        let _changing = self.changing_settings.lock();
        self.store_setting(ino, setting);
        self.objects_of(ino).iter().for_each(|object| object.set_setting(setting));
        self.make_settings_durable();
    }

    fn objects_of(&self, ino: u64) -> Vec<Arc<CachedObject>> {
        self.objects.lock().values().filter(|object| object.object.ino == ino).cloned().collect()
    }

    /// Returns the former setting.
    fn store_setting(&self, ino: u64, setting: FlashSetting) -> FlashSetting {
        let mut settings = self.settings.lock();
        let former = match setting {
            FlashSetting::Default => settings.remove(&ino),
            _ => settings.insert(ino, setting),
        };
        former.unwrap_or_default()
    }

    /// Removes all pages of an object, by the rules of a change: the log may still contain them.
    fn drop_pages(&self, object: &CachedObject) -> std::io::Result<()> {
        let _no_repair = object.lock_out_repairs()?;
        let change = self.begin_change(object, &pages_of(&(0..u64::MAX)))?;
        drop(Changing { object, change });
        Ok(())
    }

    /// Forgets the setting of a file that was removed.
    pub(super) fn forget_setting(&self, ino: u64) {
        self.settings.lock().remove(&ino);
    }

    /// Returns what the cache has of a file on any of the first `stripes` stripes.
    pub fn content_of(&self, ino: u64, stripes: u16) -> FlashContent {
        let setting = self.setting(ino);
        let mut content = FlashContent { ino, setting, cached_bytes: 0, hits: 0, misses: 0 };
        // Of a cache that is switched off, nothing is used any more.
        for stripe in 0..if self.is_on() { stripes } else { 0 } {
            for stream in [Stream::Data, Stream::Units] {
                if let Some(object) = self.object(Object { stripe, ino, stream }, false) {
                    add(&mut content, &object);
                }
            }
        }
        content
    }

    /// Returns the files that have pages in the cache, requests, or a setting, in the order of their inodes.
    pub fn contents(&self) -> Vec<FlashContent> {
        let mut found: BTreeMap<u64, FlashContent> = BTreeMap::new();
        for (ino, setting) in self.settings.lock().iter() {
            let content = FlashContent { ino: *ino, setting: *setting, cached_bytes: 0, hits: 0, misses: 0 };
            found.insert(*ino, content);
        }
        let objects: Vec<_> = self.objects.lock().values().cloned().collect();
        for object in objects.into_iter().filter(|_| self.is_on()) {
            let (ino, setting) = (object.object.ino, object.setting());
            let new = FlashContent { ino, setting, cached_bytes: 0, hits: 0, misses: 0 };
            add(found.entry(ino).or_insert(new), &object);
        }
        let is_used = |content: &FlashContent| {
            content.setting != FlashSetting::Default || content.cached_bytes + content.hits + content.misses > 0
        };
        found.into_values().filter(is_used).collect()
    }
}
