//! ALTER DISKGROUP: changes of the disks, with the clauses of Oracle's statement of that name.

use super::super::connection::Connection;
use super::super::error::Error;
use super::super::names::{cell_disk_name, grid_disk_name};
use crate::group::parse_time;
use cellar_cell::group::parse_file_redundancy;
use cellar_format::wire::{GroupAction, GroupRequest};

const POWER_MAX: u32 = 11;

/// What a statement asks for. Disks are paths, or names of cell disks or grid disks.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    operation: Operation,
    /// Set before the operation.
    power: Option<u32>,
}

#[derive(Debug, PartialEq, Eq)]
enum Operation {
    Add {
        failure_group: Option<String>,
        paths: Vec<String>,
    },
    Drop {
        disks: Vec<String>,
        force: bool,
    },
    /// Of all disks that are being dropped if none is named.
    Undrop {
        disks: Vec<String>,
    },
    Replace {
        disk: String,
        path: String,
    },
    /// Begins a rebalance, unless the statement only sets the power.
    Rebalance {
        begins: bool,
    },
    RepairTime {
        seconds: u64,
    },
    /// A file type, `=`, and its redundancy.
    FileRedundancy {
        argument: String,
    },
}

/// Templates of Oracle's disk groups, with the file types that they stand for.
const TEMPLATES: [(&str, &str); 4] =
    [("ONLINELOG", "wal"), ("DATAFILE", "relation"), ("TEMPFILE", "temporary"), ("CONTROLFILE", "control")];

/// The words of an operation.
struct Words<'w>(&'w [String]);

impl Words<'_> {
    fn takes(&mut self, keyword: &str) -> bool {
        let found = self.0.first().is_some_and(|word| word.eq_ignore_ascii_case(keyword));
        self.0 = &self.0[usize::from(found)..];
        found
    }

    fn expect(&mut self, keyword: &str) -> Result<(), Error> {
        if self.takes(keyword) { Ok(()) } else { Err(self.unexpected(keyword)) }
    }

    fn text(&mut self, expected: &str) -> Result<String, Error> {
        let (first, rest) = self.0.split_first().ok_or_else(|| self.unexpected(expected))?;
        self.0 = rest;
        Ok(first.clone())
    }

    /// Takes names with commas between them.
    fn list(&mut self, expected: &str) -> Result<Vec<String>, Error> {
        let mut names = vec![self.text(expected)?];
        while self.takes(",") {
            names.push(self.text(expected)?);
        }
        Ok(names)
    }

    fn unexpected(&self, expected: &str) -> Error {
        Error::syntax(self.0.first().map(String::as_str), expected)
    }

    fn power(&mut self) -> Result<u32, Error> {
        let text = self.text("a power from 0 to 11")?;
        let power = text.parse().ok().filter(|power| *power <= POWER_MAX);
        power.ok_or_else(|| Error::invalid_value(format!("POWER {text}: write a number from 0 to {POWER_MAX}")))
    }
}

impl Change {
    /// Returns None if the words are another operation.
    pub fn parse(words: &[String]) -> Result<Option<Self>, Error> {
        let mut words = Words(words);
        let operation = match () {
            () if words.takes("ADD") => {
                let failure_group = match words.takes("FAILGROUP") {
                    true => Some(words.text("the name of a failure group")?),
                    false => None,
                };
                words.expect("DISK")?;
                Operation::Add { failure_group, paths: words.list("the path of a disk")? }
            }
            () if words.takes("DROP") => {
                words.expect("DISK")?;
                let disks = words.list("a disk")?;
                let force = words.takes("FORCE");
                if !force {
                    words.takes("NOFORCE");
                }
                Operation::Drop { disks, force }
            }
            () if words.takes("UNDROP") => match words.takes("DISKS") {
                true => Operation::Undrop { disks: Vec::new() },
                false => {
                    words.expect("DISK")?;
                    Operation::Undrop { disks: words.list("a disk")? }
                }
            },
            () if words.takes("REPLACE") => {
                words.expect("DISK")?;
                let disk = words.text("a disk")?;
                words.expect("WITH")?;
                Operation::Replace { disk, path: words.text("the path of a disk")? }
            }
            () if words.takes("SET") => {
                words.takes("ATTRIBUTE");
                words.expect("DISK_REPAIR_TIME")?;
                words.takes("=");
                let text = words.text("a time")?;
                let seconds = parse_time(&text);
                let invalid = |hint: String| Error::invalid_value(format!("DISK_REPAIR_TIME {text}: {hint}"));
                Operation::RepairTime { seconds: seconds.map_err(invalid)? }
            }
            () if words.takes("MODIFY") => {
                words.expect("TEMPLATE")?;
                let name = words.text("a file type")?;
                words.expect("ATTRIBUTES")?;
                words.takes("(");
                let redundancy = match () {
                    () if words.takes("MIRROR") => "normal".to_owned(),
                    () => words.text("MIRROR, HIGH or DEFAULT")?.to_ascii_lowercase(),
                };
                words.takes(")");
                let of_template = TEMPLATES.iter().find(|(template, _)| template.eq_ignore_ascii_case(&name));
                let argument =
                    format!("{}={redundancy}", of_template.map_or(name.as_str(), |(_, file_type)| file_type));
                parse_file_redundancy(&argument).map_err(Error::invalid_value)?;
                Operation::FileRedundancy { argument }
            }
            () if words.takes("REBALANCE") => {
                let power = if words.takes("POWER") { Some(words.power()?) } else { None };
                let operation = Operation::Rebalance { begins: power.is_none() };
                return words.end().map(|()| Some(Self { operation, power }));
            }
            () => return Ok(None),
        };
        let power = match words.takes("REBALANCE") {
            true => {
                words.expect("POWER")?;
                Some(words.power()?)
            }
            false => None,
        };
        words.end().map(|()| Some(Self { operation, power }))
    }

    /// Runs the change, and returns what happened: the end of a sentence that starts with the name of the group.
    pub fn run(&self, cell: &Connection) -> Result<&'static str, Error> {
        if let Some(power) = self.power {
            cell.send(&GroupRequest { power, ..GroupRequest::on_group(GroupAction::Power) })?;
        }
        match &self.operation {
            Operation::Add { failure_group, paths } => {
                let action = if failure_group.is_some() { GroupAction::AddTo } else { GroupAction::Add };
                let argument = failure_group.clone().unwrap_or_default();
                let mut is_configured = true;
                for path in paths {
                    let request =
                        GroupRequest { argument: argument.clone(), ..GroupRequest::on_disk(action, path.clone()) };
                    is_configured &= cell.add(&request)?;
                }
                Ok(added(is_configured))
            }
            Operation::Drop { disks, force } => {
                let action = if *force { GroupAction::DropForce } else { GroupAction::Drop };
                for disk in disks_of(cell, disks)? {
                    cell.send(&GroupRequest::on_disk(action, disk))?;
                }
                Ok("successfully altered")
            }
            Operation::Undrop { disks } => {
                let disks = if disks.is_empty() { dropping(cell)? } else { disks_of(cell, disks)? };
                for disk in disks {
                    cell.send(&GroupRequest::on_disk(GroupAction::Undrop, disk))?;
                }
                Ok("successfully altered")
            }
            Operation::Replace { disk, path } => {
                let disk = disks_of(cell, std::slice::from_ref(disk))?.remove(0);
                let request = GroupRequest::on_disk(GroupAction::Replace, disk);
                Ok(added(cell.add(&GroupRequest { argument: path.clone(), ..request })?))
            }
            Operation::Rebalance { begins: false } => Ok("successfully altered"),
            Operation::Rebalance { begins: true } => {
                cell.send(&GroupRequest::on_group(GroupAction::Rebalance))?;
                Ok("rebalance started")
            }
            Operation::RepairTime { seconds } => {
                let request = GroupRequest::on_group(GroupAction::RepairTime);
                cell.send(&GroupRequest { seconds: *seconds, ..request })?;
                Ok("successfully altered")
            }
            Operation::FileRedundancy { argument } => {
                let request = GroupRequest::on_group(GroupAction::FileRedundancy);
                cell.send(&GroupRequest { argument: argument.clone(), ..request })?;
                Ok("successfully altered; the next rebalance converts existing files")
            }
        }
    }
}

impl Words<'_> {
    fn end(&self) -> Result<(), Error> {
        if self.0.is_empty() { Ok(()) } else { Err(self.unexpected("the end of the command")) }
    }
}

fn added(is_configured: bool) -> &'static str {
    match is_configured {
        true => "successfully altered",
        false => {
            "successfully altered; add the new disk to disk_group.disks in the configuration file before the next start"
        }
    }
}

/// Returns the paths of disks that are named by path, and the numbers of those that are named as cell disks or grid disks: a disk
/// may have the path of one that it replaces.
fn disks_of(cell: &Connection, names: &[String]) -> Result<Vec<String>, Error> {
    let (status, group) = (cell.status()?, cell.group()?);
    let disks = group["disks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let find = |name: &String| {
        let disk = disks.iter().find(|disk| {
            let number = disk["disk_number"].as_u64().unwrap_or(0);
            let names = [cell_disk_name(number, &status.name), grid_disk_name(number, &status.name)];
            names.iter().any(|known| known.eq_ignore_ascii_case(name))
        });
        // The cell says which disks exist.
        disk.map_or_else(|| name.clone(), |disk| disk["disk_number"].to_string())
    };
    Ok(names.iter().map(find).collect())
}

/// Returns the paths of the disks that are being dropped.
fn dropping(cell: &Connection) -> Result<Vec<String>, Error> {
    let group = cell.group()?;
    let disks = group["disks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let dropping = disks.iter().filter(|disk| disk["state"] != "NORMAL");
    Ok(dropping.filter_map(|disk| disk["path"].as_str()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Change>, Error> {
        Change::parse(&text.replace(',', " , ").split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn operations_have_the_clauses_of_oracles_statement() {
        let check = |text: &str, operation, power| {
            assert_eq!(parse(text).unwrap(), Some(Change { operation, power }), "{text}");
        };
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let add = |group: Option<&str>, paths: &[&str]| Operation::Add {
            failure_group: group.map(str::to_owned),
            paths: names(paths),
        };
        check("add disk /a, /B", add(None, &["/a", "/B"]), None);
        check("ADD FAILGROUP left DISK /a REBALANCE POWER 0", add(Some("left"), &["/a"]), Some(0));
        let drop = |disks: &[&str], force| Operation::Drop { disks: names(disks), force };
        check("drop disk CD_01_c1 force", drop(&["CD_01_c1"], true), None);
        check("drop disk a, b noforce rebalance power 11", drop(&["a", "b"], false), Some(11));
        check("undrop disks", Operation::Undrop { disks: Vec::new() }, None);
        check("undrop disk a", Operation::Undrop { disks: names(&["a"]) }, None);
        check("replace disk a with /b", Operation::Replace { disk: "a".into(), path: "/b".into() }, None);
        check("rebalance", Operation::Rebalance { begins: true }, None);
        check("rebalance power 7", Operation::Rebalance { begins: false }, Some(7));
        check("set disk_repair_time 3", Operation::RepairTime { seconds: 3 * 3600 }, None);
        check("set attribute disk_repair_time 90m", Operation::RepairTime { seconds: 5400 }, None);
        let of = |argument: &str| Operation::FileRedundancy { argument: argument.into() };
        check("modify template onlinelog attributes ( high )", of("wal=high"), None);
        check("modify template Temporary attributes mirror", of("Temporary=normal"), None);
        check("modify template datafile attributes ( default ) rebalance power 3", of("relation=default"), Some(3));
        assert_eq!(parse("scrub").unwrap(), None);
    }

    #[test]
    fn errors_name_what_was_expected() {
        for (text, expected) in [
            ("add", "at the end of the command: expected DISK"),
            ("add disk", "at the end of the command: expected the path of a disk"),
            ("add disk /a,", "at the end of the command: expected the path of a disk"),
            ("add disk /a /b", "at \"/b\": expected the end of the command"),
            ("drop disk a by force", "at \"by\": expected the end of the command"),
            ("replace disk a", "at the end of the command: expected WITH"),
            ("rebalance power", "at the end of the command: expected a power from 0 to 11"),
            ("rebalance power 12", "CELL-90007: POWER 12: write a number from 0 to 11"),
            ("drop disk a rebalance 3", "at \"3\": expected POWER"),
            ("set colour red", "at \"colour\": expected DISK_REPAIR_TIME"),
            (
                "modify template index attributes ( high )",
                "CELL-90007: \"index\" is not a file type; the types are relation, map, wal, temporary, control, other",
            ),
            ("set disk_repair_time soon", "CELL-90007: DISK_REPAIR_TIME soon: write a number and s, min, h or d"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
