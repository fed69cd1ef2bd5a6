//! Names that a server tells a cell, which otherwise knows databases by OID and processes by number.

use crate::bytes::{Corrupt, Reader, Write};
use crate::postgres::Oid;

/// Maximum length of a name of PostgreSQL, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// All databases of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseNames {
    /// The directories of the cluster on the cell, relative to the mount's root: the data directory first, and the version
    /// directories of tablespaces.
    pub roots: Vec<String>,
    pub databases: Vec<(Oid, String)>,
}

/// The consumer groups of processes: those of all processes of a server, or that of the sender.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsumerGroups {
    pub processes: Vec<(u32, String)>,
}

impl DatabaseNames {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.roots.len() as u32);
        self.roots.iter().for_each(|root| out.put_blob(root.as_bytes()));
        encode_names(&self.databases, out);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let count = reader.count(4, "roots")?;
        let roots = (0..count).map(|_| reader.string("root")).collect::<Result<_, _>>()?;
        let databases = decode_names(&mut reader, "database name")?;
        reader.finish("database names")?;
        Ok(Self { roots, databases })
    }
}

impl ConsumerGroups {
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode_names(&self.processes, out);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let processes = decode_names(&mut reader, "consumer group")?;
        reader.finish("consumer groups")?;
        Ok(Self { processes })
    }
}

fn encode_names(names: &[(u32, String)], out: &mut Vec<u8>) {
    out.put_u32(names.len() as u32);
    for (number, name) in names {
        out.put_u32(*number);
        out.put_blob(name.as_bytes());
    }
}

fn decode_names(reader: &mut Reader<'_>, what: &'static str) -> Result<Vec<(u32, String)>, Corrupt> {
    let count = reader.count(8, what)?;
    let name = |_| {
        let (number, offset) = (reader.u32(what)?, reader.position());
        let name = reader.string(what)?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Corrupt::new(what, offset, format!("{} bytes", name.len())));
        }
        Ok((number, name))
    };
    (0..count).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_encoding_and_long_or_empty_ones_are_refused() {
        let names =
            DatabaseNames { roots: vec![String::new(), "space/PG_15".into()], databases: vec![(5, "ä".into())] };
        let mut bytes = Vec::new();
        names.encode(&mut bytes);
        assert_eq!(DatabaseNames::decode(&bytes).unwrap(), names);
        bytes.push(0);
        assert!(DatabaseNames::decode(&bytes).is_err());
        for (length, is_valid) in [(0, false), (1, true), (NAME_BYTES_MAX, true), (NAME_BYTES_MAX + 1, false)] {
            let groups = ConsumerGroups { processes: vec![(7, "x".repeat(length))] };
            let mut bytes = Vec::new();
            groups.encode(&mut bytes);
            assert_eq!(ConsumerGroups::decode(&bytes).is_ok(), is_valid, "{length}");
        }
    }
}
