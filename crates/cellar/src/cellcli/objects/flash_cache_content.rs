//! FLASHCACHECONTENT: what the flash cache has of each relation, and of each other file. A relation has the number of its files,
//! which PostgreSQL calls relfilenode.

use super::super::connection::Connection;
use super::super::error::Error;
use super::super::value::Value;
use super::database::DatabaseNames;
use super::{Object, ObjectType};
use crate::cell_source::Metrics;
use cellar_cell::inspect::report::FlashContentFile;
use std::collections::BTreeMap;

pub struct FlashCacheContent;

impl ObjectType for FlashCacheContent {
    fn name(&self) -> &'static str {
        "FLASHCACHECONTENT"
    }

    fn title(&self) -> &'static str {
        "FlashCacheContent"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &[
            "name",
            "cachedKeepSize",
            "cachedSize",
            "cellFlashCache",
            "columnarCacheSize",
            "columnarKeepSize",
            "dbID",
            "dbUniqueName",
            "hitCount",
            "missCount",
            "objectNumber",
        ]
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name", "cachedSize", "hitCount", "missCount"]
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        let document = cell.metrics()?;
        Ok(objects(cell.flash_content()?, &DatabaseNames::of(&Metrics(&document))))
    }
}

/// Adds up the files of each relation. A relation has the name and the setting of its first segment.
fn objects(files: Vec<FlashContentFile>, names: &DatabaseNames) -> Vec<Object> {
    let mut contents: BTreeMap<String, FlashContentFile> = BTreeMap::new();
    for file in files {
        let name = match (file.relation, file.path.rsplit_once('/')) {
            (Some(number), Some((folder, _))) => format!("{folder}/{number}"),
            _ => file.path.clone(),
        };
        match contents.get_mut(&name) {
            None => drop(contents.insert(name, file)),
            Some(content) => {
                content.cached_bytes += file.cached_bytes;
                content.columnar_bytes += file.columnar_bytes;
                content.hits += file.hits;
                content.misses += file.misses;
            }
        }
    }
    contents.into_iter().map(|(name, content)| object(name, &content, names)).collect()
}

fn object(name: String, content: &FlashContentFile, names: &DatabaseNames) -> Object {
    let count = |number: Option<u32>| number.map_or(Value::Unset, |number| Value::Count(number.into()));
    let database = content.database.map_or(Value::Unset, |oid| names.name(&content.root, oid).into());
    let kept = |bytes| Value::Size(if content.setting == "KEEP" { bytes } else { 0 });
    vec![
        name.into(),
        kept(content.cached_bytes),
        Value::Size(content.cached_bytes),
        content.setting.as_str().into(),
        Value::Size(content.columnar_bytes),
        kept(content.columnar_bytes),
        count(content.database),
        database,
        Value::Count(content.hits),
        Value::Count(content.misses),
        count(content.relation),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_files_of_a_relation_are_one_object() {
        let file = |path: &str, relation: Option<u32>, setting: &str| FlashContentFile {
            path: path.into(),
            root: "data".into(),
            database: relation.map(|number| if number == 1001 { 6 } else { 5 }),
            relation,
            setting: setting.into(),
            cached_bytes: 8192,
            columnar_bytes: 4096,
            hits: 2,
            misses: 3,
        };
        let files = vec![
            file("data/base/5/100", Some(100), "KEEP"),
            file("data/base/5/100.1", Some(100), "KEEP"),
            file("data/base/5/100_vm", Some(100), "KEEP"),
            file("data/base/5/1001", Some(1001), "DEFAULT"),
            file("data/pg_wal/1", None, "DEFAULT"),
        ];
        let sample = json!({ "labels": { "root": "data", "database": "6", "name": "sales" }, "value": 1 });
        let document = json!({ "metrics": [{ "name": "cellar_database_info", "samples": [sample] }] });
        let found = objects(files, &DatabaseNames::of(&Metrics(&document)));
        let texts: Vec<Vec<String>> = found.iter().map(|object| object.iter().map(Value::text).collect()).collect();
        assert_eq!(texts[0], ["data/base/5/100", "24K", "24K", "KEEP", "12K", "12K", "5", "data/5", "6", "9", "100"]);
        assert_eq!(texts[1], ["data/base/5/1001", "0", "8K", "DEFAULT", "4K", "0", "6", "sales", "2", "3", "1001"]);
        assert_eq!(texts[2], ["data/pg_wal/1", "0", "8K", "DEFAULT", "4K", "0", "", "", "2", "3", ""]);
        assert_eq!(texts.len(), 3);
    }
}
