//! A relation as requests describe it: the name of its file, the cluster's page format and the tuple descriptor.
//!
//! The cell's session resolves the file name to disk objects. No frame from a cell contains a file name.

use crate::bytes::{Corrupt, Reader, Write};
use crate::postgres::{Align, Oid, Width};

/// The value of an attribute in tuples that are older than the attribute (`attmissingval`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Missing {
    Null,
    /// Fixed width: `typlen` bytes. Varlena: the whole datum with its header.
    Value(Vec<u8>),
}

/// One column of the tuple descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attribute {
    /// The base type of a domain; 0 for a dropped column.
    pub type_oid: Oid,
    pub typmod: i32,
    pub width: Width,
    pub align: Align,
    pub by_value: bool,
    pub missing: Missing,
}

/// The relation that a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// Path of the relation's first segment, relative to the mount's root.
    pub file: String,
    /// Blocks in a full segment (`RELSEG_SIZE`); never 0 in a decoded relation.
    pub segment_blocks: u32,
    /// Whether the cluster has data checksums.
    pub checksums: bool,
    /// The database encoding (`pg_enc`).
    pub encoding: u32,
    pub attributes: Vec<Attribute>,
}

impl Relation {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_blob(self.file.as_bytes());
        out.put_u32(self.segment_blocks);
        out.put_bool(self.checksums);
        out.put_u32(self.encoding);
        out.put_u32(self.attributes.len() as u32);
        for attribute in &self.attributes {
            attribute.encode(out);
        }
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let file = reader.string("file")?;
        let segment_blocks = reader.u32("segment blocks")?;
        if segment_blocks == 0 {
            return Err(Corrupt::new("segment blocks", reader.position(), "0"));
        }
        let checksums = reader.bool("checksums")?;
        let encoding = reader.u32("encoding")?;
        let count = reader.count(13, "attributes")?;
        let attributes = (0..count).map(|_| Attribute::decode(reader)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { file, segment_blocks, checksums, encoding, attributes })
    }
}

impl Attribute {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.type_oid);
        out.put_u32(self.typmod as u32);
        out.put_u16(self.width.typlen() as u16);
        out.put_u8(self.align.typalign());
        out.put_bool(self.by_value);
        match &self.missing {
            Missing::Null => out.put_bool(false),
            Missing::Value(value) => {
                out.put_bool(true);
                out.put_blob(value);
            }
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let type_oid = reader.u32("type")?;
        let typmod = reader.u32("typmod")? as i32;
        let at = reader.position();
        let typlen = reader.u16("typlen")? as i16;
        let width = Width::from_typlen(typlen).ok_or_else(|| Corrupt::new("typlen", at, typlen.to_string()))?;
        let typalign = reader.u8("typalign")?;
        let align = Align::from_typalign(typalign).ok_or_else(|| Corrupt::new("typalign", at, typalign.to_string()))?;
        let by_value = reader.bool("typbyval")?;
        if by_value && !matches!(width, Width::Fixed(1 | 2 | 4 | 8)) {
            return Err(Corrupt::new("typbyval", at, format!("typlen {typlen}")));
        }
        let missing = match reader.bool("missing flag")? {
            false => Missing::Null,
            true => Missing::Value(reader.blob("missing value")?.to_vec()),
        };
        if let (Missing::Value(value), Width::Fixed(bytes)) = (&missing, width)
            && value.len() != bytes as usize
        {
            return Err(Corrupt::new("missing value", at, format!("{} bytes for typlen {bytes}", value.len())));
        }
        Ok(Self { type_oid, typmod, width, align, by_value, missing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relation_decodes_to_its_equal_and_a_truncated_relation_is_corrupt() {
        let attribute = Attribute {
            type_oid: 23,
            typmod: -1,
            width: Width::Fixed(4),
            align: Align::Int,
            by_value: true,
            missing: Missing::Value(vec![7, 0, 0, 0]),
        };
        let dropped = Attribute { type_oid: 0, missing: Missing::Null, ..attribute.clone() };
        let relation = Relation {
            file: "base/5/16384".to_owned(),
            segment_blocks: 131_072,
            checksums: true,
            encoding: 6,
            attributes: vec![attribute, dropped],
        };
        let mut bytes = Vec::new();
        relation.encode(&mut bytes);
        assert_eq!(Relation::decode(&mut Reader::new(&bytes)).unwrap(), relation);
        for length in 0..bytes.len() {
            Relation::decode(&mut Reader::new(&bytes[..length])).unwrap_err();
        }
    }
}
