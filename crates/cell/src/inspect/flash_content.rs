//! Report about the content of the flash cache, by file.

use super::report::{FlashContentFile, FlashContentReport};
use crate::access::{Credentials, Permission};
use crate::fuse::{area_of, relation_of};
use cellar_storage::Volume;
use std::collections::HashMap;

/// Lists the files that have pages in the flash cache, requests or a setting, by path: those in directories that `peer` may list.
pub fn report(volume: &Volume, peer: &Credentials) -> FlashContentReport {
    let (mut files, mut is_listed) = (Vec::new(), HashMap::new());
    for content in volume.flash_contents() {
        // A removed file that is still in use has no path.
        let Some(path) = volume.path_of(content.ino) else { continue };
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        let may_list = |folder: &String| peer.resolve(volume, folder, Permission::List).is_ok();
        if !*is_listed.entry(folder).or_insert_with_key(may_list) {
            continue;
        }
        let (root, database) = area_of(&path);
        files.push(FlashContentFile {
            root,
            database,
            relation: relation_of(&path),
            setting: content.setting.name().to_owned(),
            cached_bytes: content.cached_bytes,
            columnar_bytes: volume.columnar_bytes(content.ino),
            hits: content.hits,
            misses: content.misses,
            path,
        });
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    FlashContentReport { files }
}
