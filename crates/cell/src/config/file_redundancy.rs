//! `disk_group.file_redundancy`: the redundancy of files of some types in a new group.

use crate::group::parse_file_redundancy;
use cellar_format::wire::FileType;
use cellar_storage::Redundancy;
use std::collections::BTreeMap;

/// Returns the redundancy of the files of some types.
pub fn parse(types: BTreeMap<String, String>, of_group: Redundancy) -> Result<Vec<(FileType, Redundancy)>, String> {
    let parse = |(name, value): (String, String)| {
        let (file_type, redundancy) = parse_file_redundancy(&format!("{name}={value}"))
            .map_err(|error| format!("disk_group.file_redundancy: {error}"))?;
        let redundancy = redundancy.unwrap_or(of_group);
        match redundancy == Redundancy::External || of_group == Redundancy::External {
            true => Err(format!(
                "disk_group.file_redundancy.{name} = \"{value}\"; file types have their own redundancy, \"normal\" or \"high\", in \
                 groups with copies only"
            )),
            false => Ok((file_type, redundancy)),
        }
    };
    types.into_iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn file_types_have_their_own_redundancy_in_groups_with_copies() {
        let parse = |redundancy: &str, types: &str| {
            let text = format!(
                "mount = \"/srv/cellar\"\nsocket = \"/run/s\"\n[disk_group]\nredundancy = \"{redundancy}\"\ndisks = [\"/a\", \"/b\", \"/c\"]\n\
                 [disk_group.file_redundancy]\n{types}\n"
            );
            Config::parse(&text).map(|config| config.disk_group.file_redundancy)
        };
        let types = parse("normal", "wal = \"high\"\ntemporary = \"normal\"").unwrap();
        assert_eq!(types, [(FileType::Temporary, Redundancy::Normal), (FileType::Wal, Redundancy::High)]);
        let refused = [
            ("normal", "index = \"high\"", "the types are relation, map, wal, temporary, control, other"),
            ("normal", "wal = \"double\"", "write wal=normal (2 copies), wal=high (3 copies)"),
            ("normal", "temporary = \"external\"", "in groups with copies only"),
            ("external", "wal = \"normal\"", "in groups with copies only"),
        ];
        for (redundancy, types, expected) in refused {
            let error = parse(redundancy, types).unwrap_err();
            assert!(error.contains(expected), "{types}: {error}");
        }
    }
}
